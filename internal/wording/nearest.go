package wording

import (
	"math"
	"strings"
)

// longest is the number of runes of the longest name that is compared: the work grows with its square.
const longest = 64

// Nearest returns the known name that is most like name, of equally near ones the first, or "" if none is close. Close is a name that one
// letter, or a third of name's letters, must be changed, added, left out or swapped with their neighbour to get, in whatever case, and one
// that continues name or that name continues.
func Nearest(name string, known []string) string {
	n := len([]rune(name))
	best, least := "", max(1, n/3)+1
	for _, k := range known {
		d := Distance(strings.ToLower(name), strings.ToLower(k))
		if continues(name, k) || continues(k, name) {
			d = min(d, 1)
		}
		if d < least && d < n {
			best, least = k, d
		}
	}
	return best
}

// continues tells whether long begins with short, and short is long enough to mean something.
func continues(long, short string) bool { return len(short) >= 3 && strings.HasPrefix(long, short) }

// Distance counts the runes to insert, delete, replace or swap with their neighbour, none of them twice, that turn a into b (the optimal
// string alignment distance). Of a name that is too long it is the largest number.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > longest || len(y) > longest {
		return math.MaxInt
	}
	var before []int
	last := make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
