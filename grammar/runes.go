package grammar

import (
	"slices"
	"unicode/utf8"
)

// runeRange is the characters from low to high.
type runeRange struct{ low, high rune }

// runeSet are sorted ranges that do not touch.
type runeSet []runeRange

// everyRune are the characters that UTF-8 can write.
var everyRune = runeSet{{0, 0xD7FF}, {0xE000, utf8.MaxRune}}

// without is the set without a character.
func (s runeSet) without(c rune) runeSet { return s.minus(c, c) }

// minus is the set without the characters from low to high.
func (s runeSet) minus(low, high rune) runeSet {
	var out runeSet
	for _, r := range s {
		if r.low < low {
			out = append(out, runeRange{r.low, min(r.high, low-1)})
		}
		if r.high > high {
			out = append(out, runeRange{max(r.low, high+1), r.high})
		}
	}
	return out
}

func (s runeSet) has(c rune) bool {
	return slices.ContainsFunc(s, func(r runeRange) bool { return r.low <= c && c <= r.high })
}

// expr is one character of the set, in UTF-8.
func (s runeSet) expr() Expr {
	var out []Expr
	for _, r := range s {
		for _, width := range []runeRange{{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, utf8.MaxRune}} {
			low, high := max(r.low, width.low), min(r.high, width.high)
			if low <= high {
				out = append(out, encoded([]byte(string(low)), []byte(string(high)))...)
			}
		}
	}
	return Choice(out...)
}

// encoded are the byte strings from low to high, which are as long and whose bytes but the first are continuations of UTF-8.
func encoded(low, high []byte) []Expr {
	if len(low) == 1 {
		return []Expr{Bytes(low[0], high[0])}
	}
	const first, last = 0x80, 0xBF // of the continuations
	all := func(b byte) []byte { return slices.Repeat([]byte{b}, len(low)-1) }
	behind := func(lead byte, low, high []byte) Expr {
		return Sequence(Bytes(lead, lead), Choice(encoded(low, high)...))
	}
	if low[0] == high[0] {
		return []Expr{behind(low[0], low[1:], high[1:])}
	}
	out := []Expr{behind(low[0], low[1:], all(last))}
	if high[0]-low[0] > 1 {
		middle := []Expr{Bytes(low[0]+1, high[0]-1)}
		for range len(low) - 1 {
			middle = append(middle, Bytes(first, last))
		}
		out = append(out, Sequence(middle...))
	}
	return append(out, behind(high[0], all(first), high[1:]))
}
