package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// lossy returns s as valid UTF-8: every maximal part of a broken sequence becomes one U+FFFD, which is what Rust's
// from_utf8_lossy and Python's errors="replace" do (Unicode 3.9, "substitution of maximal subparts").
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r != utf8.RuneError || n > 1 {
			out.WriteString(s[i : i+n])
			i += n
			continue
		}
		out.WriteRune(utf8.RuneError)
		i += brokenLen(s[i:])
	}
	return out.String()
}

// brokenLen is the length of the maximal part at the start of s, which begins with a broken sequence.
func brokenLen(s string) int {
	need, lo, hi := 0, byte(0x80), byte(0xbf)
	switch b := s[0]; {
	case b >= 0xc2 && b <= 0xdf:
		need = 1
	case b >= 0xe0 && b <= 0xef:
		need = 2
		if b == 0xe0 {
			lo = 0xa0
		}
		if b == 0xed {
			hi = 0x9f
		}
	case b >= 0xf0 && b <= 0xf4:
		need = 3
		if b == 0xf0 {
			lo = 0x90
		}
		if b == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n <= need && n < len(s) && s[n] >= lo && s[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	return n
}

// runeAt decodes the character of valid UTF-8 s at i; r is -1 and n 0 at the end.
func runeAt(s string, i int) (r rune, n int) {
	if i >= len(s) {
		return -1, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}
