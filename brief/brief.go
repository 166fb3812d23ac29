// Package brief shortens texts that stand in messages for people and models.
package brief

// Clip is s, or its first n runes and "…" where it has more.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
