package wording

import "strings"

// Overlap is the length of the longest proper beginning of mark that text ends with: what a stream must hold back while mark may yet come.
func Overlap(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}
