package tools

import (
	"fmt"

	"github.com/agentfly/agentfly/brief"
)

// suggest returns ` (did you mean "x"?)` for the known name nearest to name, or "" when none is near.
func suggest(name string, known []string) string {
	best, least := "", len([]rune(name))/2+1
	for _, k := range known {
		if d := distance(name, k); d < least || d == least && best != "" && k < best {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is Levenshtein's, in runes, on names of at most 64 runes; longer ones are cut.
func distance(a, b string) int {
	x, y := []rune(brief.Clip(a, 64)), []rune(brief.Clip(b, 64))
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(y)]
}
