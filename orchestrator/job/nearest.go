package job

import "strings"

// Nearest returns the known name that is most like name, or "" if none is close: at most a third of its letters differ,
// or one begins with the other.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if len(name) >= 3 && (strings.HasPrefix(k, name) || strings.HasPrefix(name, k) && len(k) >= 3) {
			d = min(d, 1)
		}
		if d < least || d == least && best == "" {
			best, least = k, d
		}
	}
	return best
}

func near(name string, known []string) string {
	if n := Nearest(name, known); n != "" {
		return "; nearest: " + n
	}
	return ""
}

// distance counts insertions, deletions, substitutions and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
