package tokenizer

import "strings"

// mostSplit is how many tokens a character can be in.
const mostSplit = 4

// Texts are what tokens say, each by itself. The first token of several that make one character together has all of it, and the others are "".
func Texts(ids []int32, decode func([]int32) string) []string {
	out := make([]string, len(ids))
	for i := 0; i < len(ids); i++ {
		out[i] = decode(ids[i : i+1])
		if !strings.ContainsRune(out[i], '\uFFFD') {
			continue
		}
		for n := 2; n <= min(mostSplit, len(ids)-i); n++ {
			if whole := decode(ids[i : i+n]); !strings.ContainsRune(whole, '\uFFFD') {
				out[i] = whole
				i += n - 1
				break
			}
		}
	}
	return out
}
