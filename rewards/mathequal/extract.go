package mathequal

import (
	"regexp"
	"strings"
)

// Boxed is what stands in the last \boxed{…} or \fbox{…} of a text.
func Boxed(text string) (string, bool) {
	best := -1
	for _, command := range []string{`\boxed`, `\fbox`} {
		if i := strings.LastIndex(text, command); i > best {
			best = i
		}
	}
	if best < 0 {
		return "", false
	}
	rest := strings.TrimLeft(text[best:], `\abcdefghijklmnopqrstuvwxyz`)
	if inner, ok := balanced(strings.TrimLeft(rest, " ")); ok {
		return strings.TrimSpace(inner), true
	}
	if strings.HasPrefix(rest, " ") { // \boxed 5
		if f := strings.Fields(rest); len(f) > 0 {
			return strings.Trim(f[0], "$.,;"), true
		}
	}
	return "", false
}

var (
	phrase     = regexp.MustCompile(`(?i)(?:final answer|the answer|answer)\s*(?:is|:|=)+\s*:?\s*`)
	lastNumber = regexp.MustCompile(`[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?%?`)
	display    = regexp.MustCompile(`(?s)\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$([^$]+?)\$`)
)

// Extract is the answer that a text gives: the last \boxed{…}; else what follows the last "answer is"; else all of it when it is one
// line that reads as mathematics; else the last formula, or a number after it; else all of it.
func Extract(text string) string {
	text = strings.TrimSpace(text)
	if inner, ok := Boxed(text); ok {
		return inner
	}
	if at := phrase.FindAllStringIndex(text, -1); len(at) > 0 {
		line, _, _ := strings.Cut(strings.TrimSpace(text[at[len(at)-1][1]:]), "\n")
		return sentence(line)
	}
	if len(text) <= maxLength && !strings.Contains(text, "\n") && readable(text) {
		return text
	}
	formula, formulaEnd := "", -1
	if all := display.FindAllStringSubmatchIndex(text, -1); len(all) > 0 {
		last := all[len(all)-1]
		for i := 2; i < len(last); i += 2 {
			if last[i] >= 0 {
				formula, formulaEnd = strings.TrimSpace(text[last[i]:last[i+1]]), last[1]
			}
		}
	}
	if all := lastNumber.FindAllStringIndex(text, -1); len(all) > 0 {
		if last := all[len(all)-1]; last[0] >= formulaEnd {
			return text[last[0]:last[1]]
		}
	}
	if formulaEnd >= 0 {
		return formula
	}
	return text
}

// sentence cuts a line at the end of its first sentence: a point before a space, outside of mathematics.
func sentence(line string) string {
	math := 0
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '$' && (i == 0 || line[i-1] != '\\'):
			math ^= 1
		case math == 0 && line[i] == '.' && i+1 < len(line) && line[i+1] == ' ':
			return line[:i]
		}
	}
	return line
}

// readable tells whether a text is mathematics, or a few words.
func readable(text string) bool {
	s := clean(text)
	for _, m := range []mode{{}, {units: true}, {thousands: true}} {
		if toks, _, err := lex(s, m); err == nil {
			if n, err := parse(toks); err == nil && n.kind != kindText {
				return true
			}
		}
	}
	return len(strings.Fields(s)) <= 3 && !strings.ContainsAny(s, "0123456789")
}
