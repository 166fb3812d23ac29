// Package wording shortens texts that stand in messages for people and models, says which names there can be, and finds the name that somebody meant
// who wrote an unknown one.
//
// It does not make texts safe for a terminal: package internal/terminal does.
package wording

import "unicode/utf8"

// Clip is s, or its first n runes and "…" where it has more.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// WholeRunes is a text without the part of a character that a limit left at its end.
func WholeRunes(text []byte) []byte {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}
