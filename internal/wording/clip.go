// Package wording shortens texts that stand in messages for people and models, and finds the name that somebody meant who wrote an unknown one.
//
// It does not make texts safe for a terminal: package internal/terminal does.
package wording

// Clip is s, or its first n runes and "…" where it has more.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
