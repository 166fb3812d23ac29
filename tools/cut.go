package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Tokenizer is a model's.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32, skipSpecial bool) string
}

const (
	runesPerToken = 4       // where the tokens are not known
	maxCounted    = 4 << 20 // bytes of a text whose tokens are counted; of a longer one the middle is not looked at
)

// cut keeps the head and the tail of s, so that at most n tokens are left, a marker of what is left out included.
func cut(t Tokenizer, s string, n int) string {
	if t == nil {
		return cutRunes(s, n*runesPerToken)
	}
	more := ""
	if len(s) > maxCounted {
		s, more = strings.ToValidUTF8(s[:maxCounted/2]+s[len(s)-maxCounted/2:], ""), "more than "
	}
	ids := t.Encode(s)
	if len(ids) <= n && more == "" {
		return s
	}
	for keep := min(n, len(ids)); keep > 0; {
		head := keep * 2 / 3
		left := len(ids) - keep
		out := prefix(s, t.Decode(ids[:head], false)) + fmt.Sprintf("\n[%s%d tokens left out]\n", more, left) + suffix(s, t.Decode(ids[len(ids)-(keep-head):], false))
		over := len(t.Encode(out)) - n
		if over <= 0 {
			return out
		}
		keep -= over
	}
	return prefix(s, t.Decode(ids[:min(n, len(ids))], false)) // no room for a marker
}

// prefix is what s and head begin with, whole runes: a token may end within a rune, and a decoder may change spaces.
func prefix(s, head string) string {
	n := 0
	for n < min(len(s), len(head)) && s[n] == head[n] {
		n++
	}
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// suffix is what s and tail end with, whole runes.
func suffix(s, tail string) string {
	n := 0
	for n < min(len(s), len(tail)) && s[len(s)-1-n] == tail[len(tail)-1-n] {
		n++
	}
	for n > 0 && !utf8.RuneStart(s[len(s)-n]) {
		n--
	}
	return s[len(s)-n:]
}

// cutRunes is cut by characters.
func cutRunes(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	marker := fmt.Sprintf("\n[%d characters left out]\n", len(runes)) // as wide as the final one or wider
	keep := n - utf8.RuneCountInString(marker)
	if keep < 1 { // no room for a marker
		return string(runes[:n])
	}
	head := keep * 2 / 3
	tail := keep - head
	return string(runes[:head]) + fmt.Sprintf("\n[%d characters left out]\n", len(runes)-keep) + string(runes[len(runes)-tail:])
}
