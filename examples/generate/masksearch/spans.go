package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// span is a salient part of a passage: a name or a number.
type span struct {
	start, end int // bytes of the passage's text
	kind       string
}

// The kinds of salient spans.
const (
	kindTitle  = "title"  // the name before the colon, of something with a name of its own
	kindName   = "name"   // a name in the definition
	kindNumber = "number" // a year or another number of two digits or more
)

// name is one word with a capital and a small letter.
const name = `\p{Lu}[\p{L}'’-]*\p{Ll}(?:[\p{L}'’-]*\p{L})?`

var (
	// A name is a row of words with a capital, joined by blanks, initials and small words between them included.
	namePattern   = regexp.MustCompile(name + `(?: (?:(?:of|the|de|la|von|van|del|di|da) ){0,2}(?:\p{Lu}\. )*` + name + `)*`)
	numberPattern = regexp.MustCompile(`\d+(?:[.,]\d+)*`)
)

// spans finds the salient spans of a passage, in their order; no two overlap.
func spans(p passage) []span {
	var out []span
	body := len(p.name) + len(": ")
	if capital(p.name) && strings.ContainsFunc(p.name, unicode.IsLower) {
		out = append(out, span{0, len(p.name), kindTitle})
	}
	var inBody []span
	for _, at := range namePattern.FindAllStringIndex(p.Text[body:], -1) {
		s := span{body + at[0], body + at[1], kindName}
		if !insideWord(p.Text, s) && !startsSentence(p.Text, s.start, body) && s.end-s.start >= 3 {
			inBody = append(inBody, s)
		}
	}
	for _, at := range numberPattern.FindAllStringIndex(p.Text[body:], -1) {
		s := span{body + at[0], body + at[1], kindNumber}
		if !insideWord(p.Text, s) && countDigits(p.Text[s.start:s.end]) >= 2 {
			inBody = append(inBody, s)
		}
	}
	slices.SortFunc(inBody, func(a, b span) int { return a.start - b.start })
	return append(out, inBody...)
}

// insideWord reports whether a letter or a digit touches the span: a part of a word is no span.
func insideWord(text string, s span) bool {
	before, after := []rune(text[:s.start]), []rune(text[s.end:])
	touches := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	return len(before) > 0 && touches(before[len(before)-1]) || len(after) > 0 && touches(after[0])
}

// startsSentence reports whether a capital may be there for the sentence's sake.
func startsSentence(text string, at, body int) bool {
	before := strings.TrimRight(text[body:at], " (")
	return before != "" && strings.ContainsAny(before[len(before)-1:], ".!?:")
}

func countDigits(s string) int {
	n := 0
	for _, r := range s {
		if unicode.IsDigit(r) {
			n++
		}
	}
	return n
}

// words are the runs of letters and digits, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// stem is what related words have in common: German and Germany, Paris and Parisian.
func stem(word string) string {
	r := []rune(word)
	return string(r[:min(4, len(r))])
}
