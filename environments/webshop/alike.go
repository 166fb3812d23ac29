package webshop

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// alike tells whether two texts have nearly the same words: tokenSetRatio above 85.
func alike(a, b string) bool { return tokenSetRatio(a, b) > 85 }

// tokenSetRatio is that of the Python package thefuzz, 0 to 100, which the authors' code compares attributes and options with. Words are sets: a
// text whose words all stand in the other is 100. Else it is the largest ratio among: the words in common, and these with the words that only the
// one text has, and with those that only the other has.
func tokenSetRatio(a, b string) int {
	x, y := tokenSet(a), tokenSet(b)
	if len(x) == 0 || len(y) == 0 {
		return 0
	}
	var both, onlyX, onlyY []string
	for _, w := range x {
		if slices.Contains(y, w) {
			both = append(both, w)
		} else {
			onlyX = append(onlyX, w)
		}
	}
	for _, w := range y {
		if !slices.Contains(x, w) {
			onlyY = append(onlyY, w)
		}
	}
	common := strings.Join(both, " ")
	withX, withY := strings.Join(append(slices.Clone(both), onlyX...), " "), strings.Join(append(slices.Clone(both), onlyY...), " ")
	return max(ratio(common, withX), ratio(common, withY), ratio(withX, withY))
}

// tokenSet are the different words of a text, sorted: runs of letters, digits and underscores, in lower case, after all that is not ASCII was taken out.
func tokenSet(text string) []string {
	text = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return -1
		}
		return unicode.ToLower(r)
	}, text)
	w := strings.FieldsFunc(text, func(r rune) bool { return !isWord(r) && r != '_' })
	slices.Sort(w)
	return slices.Compact(w)
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// ratio is 100 · 2 · L / (|a| + |b|), rounded, where L is the length of the longest common subsequence in characters; 0 where one is empty.
func ratio(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) == 0 || len(y) == 0 {
		return 0
	}
	row := make([]int, len(y)+1) // longest common subsequence of x[:i] and y[:j]
	for i := range x {
		before := 0 // row[j-1] of x[:i]
		for j := range y {
			above := row[j+1]
			if x[i] == y[j] {
				row[j+1] = before + 1
			} else {
				row[j+1] = max(row[j], above)
			}
			before = above
		}
	}
	return int(math.RoundToEven(100 * 2 * float64(row[len(y)]) / float64(len(x)+len(y))))
}
