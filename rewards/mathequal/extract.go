package mathequal

import (
	"regexp"
	"slices"
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
	phrase     = regexp.MustCompile(`(?i:answer)(?:[ \t*_]*(?i:is)(?:\b|_)|\s*is\b|[\s*_]*[:=])[:=]*[\s*_]*:?[\s*_]*`)
	lastNumber = regexp.MustCompile(`[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+|(?::\d+)+)?%?`) // or a ratio or time, 3:4
	orElse     = regexp.MustCompile(`(?i)^[\s,]*(?:or|and)\b`)
)

// emphasis is bold or slanted text: what stands before it, and for each of its marks what is between them.
var emphasis = func() *regexp.Regexp {
	inner := `([^\s*](?:.*?[^\s*])??)`
	return regexp.MustCompile(`(?s)(^|[\s(":'])(?:\*\*\*` + inner + `\*\*\*\B|\*\*` + inner + `\*\*\B|\*` + inner + `\*\B|__` + inner + `__\b|_` + inner + `_\b)`)
}()

// Extract is the answer that a text gives: the last \boxed{…}; else what follows the last "answer is", without a reason for it; else all
// of it when it is one line that reads as mathematics, without the words of a short sentence; else the last formula, or a number after
// it; else all of it.
func Extract(text string) string {
	text = strings.TrimSpace(text)
	if inner, ok := Boxed(text); ok {
		return inner
	}
	if at := phrase.FindAllStringIndex(text, -1); len(at) > 0 {
		last := at[len(at)-1]
		line := max(1+strings.LastIndexByte(text[:last[0]], '\n'), last[0]-maxLength)
		if bold := emphasized(text[line:], last[1]-line); bold != "" {
			return bold
		}
		return withoutReason(sentence(text[last[1]:]))
	}
	if len(text) <= maxLength && !strings.Contains(text, "\n") && readable(text) {
		return statement(text)
	}
	formula, formulaEnd := "", -1
	all := findFormulas(text)
	for i := 0; i < len(text); i++ {
		switch inner, length := all.at(i); {
		case length > 0:
			formula, formulaEnd = strings.TrimSpace(inner), i+length
			i += length - 1
		case text[i] == '\\':
			i++
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

// emphasized is the answer that begins at a place within bold or slanted text. It ends with that, or with the sentence where the
// sentence is mathematics (**5** million) or gives another answer (**5** or **6**). Empty: nothing is bold or slanted at the place.
func emphasized(text string, start int) string {
	text = text[:min(len(text), start+maxLength)]
	for _, span := range emphasis.FindAllStringSubmatchIndex(text, -1) {
		for i := 4; i < len(span); i += 2 {
			if span[i] < 0 || span[i] > start || span[i+1] <= start {
				continue
			}
			inner, rest := text[start:span[i+1]], text[span[1]:]
			unmarked := emphasis.ReplaceAllString(rest, "$1$2$3$4$5$6")
			whole := sentence(inner + unmarked)
			another := len(whole) > len(inner) && (orElse.MatchString(rest) || !strings.HasPrefix(rest, whole[len(inner):]))
			if !another && !mathematics(whole) {
				whole = sentence(inner)
			}
			return unexclaimed(strings.TrimRight(whole, " ."))
		}
	}
	return ""
}

// sentence is the beginning of a text up to the end of its line, or of a sentence in it: a point before a space. Formulas are
// passed over; one within $ is within a line.
func sentence(text string) string {
	all := findFormulas(text)
	for i := 0; i < len(text); i++ {
		inner, length := all.at(i)
		switch {
		case length > 0 && (length != len(inner)+2 || !strings.Contains(inner, "\n")):
			i += length - 1
		case text[i] == '\\':
			i++
		case text[i] == '\n' || text[i] == '.' && i+1 < len(text) && text[i+1] == ' ':
			return text[:i]
		}
	}
	return text
}

var (
	choice  = regexp.MustCompile(`^\([A-Z]\)\s+(-?[\w\\$(].*)$`) // with its value: (B) 5
	because = regexp.MustCompile(`(?i),?\s+(?:since|because)\b`)
	remark  = regexp.MustCompile(`(?i)` + because.String() + `|,\s+(?:as|so|which|where)\b|\s+(?:[-–—]\s+[a-z]{2}|\()`)
	kept    = regexp.MustCompile(`(?i)^\s*\((?:base|mod)\b`) // 31 (base 8) is not 31
)

// withoutReason is a sentence up to a reason or remark behind mathematics: 5 of 5, since 2+3 = 5, and of 5 (five). Of words it is what
// stands before because and since.
func withoutReason(sentence string) string {
	sentence = unexclaimed(sentence)
	s := strings.TrimRight(sentence, " \t?")
	if c := choice.FindStringSubmatch(s); c != nil && strings.ContainsAny(c[1], "0123456789") && mathematics(c[1]) {
		return c[1]
	}
	if len(s) > maxLength || mathematics(s) {
		return s
	}
	outside := []byte(s) // of formulas
	all := findFormulas(s)
	for i := 0; i < len(s); i++ {
		if _, length := all.at(i); length > 0 {
			copy(outside[i:], strings.Repeat("$", length))
			i += length - 1
		}
	}
	for _, at := range slices.Backward(remark.FindAllIndex(outside, maxItems)) { // 5 - x (see above) is no 5
		if part := s[:at[0]]; mathematics(part) && !kept.MatchString(s[at[0]:]) {
			return part
		}
	}
	if at := because.FindIndex(outside); at != nil && !strings.ContainsAny(s[:at[0]], "0123456789") {
		return s[:at[0]]
	}
	return sentence
}

// exclamation is a value without operations, or the end of a formula or of bold text, with the sign at the end of its sentence.
var exclamation = regexp.MustCompile(`(?s)^([-−]?[^-−+*/^=<>!\\]*(?:\d%?|[A-Za-z]{2})|.*(?:\$|\\\)|\*))!+$`)

// unexclaimed is a sentence without the ! at its end: The answer is 5! means 5. Behind a variable and after operations it is a factorial:
// n! and 3 + 4!.
func unexclaimed(sentence string) string {
	if e := exclamation.FindStringSubmatch(sentence); e != nil {
		return e[1]
	}
	return sentence
}

var formulaMarks = [...][2]string{{"$$", "$$"}, {`\[`, `\]`}, {`\(`, `\)`}, {"$", "$"}}

// formulas finds the formulas of a text.
type formulas struct {
	text string
	last [len(formulaMarks)]int // the last closing mark: none is looked for behind it, again and again
}

func findFormulas(text string) formulas {
	f := formulas{text: text}
	for k, w := range formulaMarks {
		f.last[k] = strings.LastIndex(text, w[1])
	}
	return f
}

// at is what the formula that begins at a place has between its marks, and its length with them; 0: none begins there.
func (f formulas) at(i int) (inner string, length int) {
	for k, w := range formulaMarks {
		from := i + len(w[0]) + 1 // it is not empty
		if from > f.last[k] || !strings.HasPrefix(f.text[i:], w[0]) || w[0] == "$" && f.text[i+1] == '$' {
			continue
		}
		end := from + strings.Index(f.text[from:], w[1])
		return f.text[from-1 : end], end + len(w[1]) - i
	}
	return "", 0
}

// readable tells whether a text is mathematics, or a few words.
func readable(text string) bool {
	s := clean(text)
	for _, m := range modes {
		if toks, _, err := lex(s, m); err == nil {
			if n, err := parse(toks); err == nil && n.kind != kindText {
				return true
			}
		}
	}
	return len(strings.Fields(s)) <= 3 && !strings.ContainsAny(s, "0123456789")
}

// statement is what a line that reads as mathematics states: all of it, or where words of a sentence stand in it the last part of it
// that reads as mathematics without them. What is said not to be is all of it too.
func statement(text string) string {
	s := clean(text)
	l, err := newLexer(s, mode{units: true})
	start := 0
	if first, rest, found := strings.Cut(s, ","); found && connectives[strings.ToLower(first)] {
		start = len(s) - len(rest)
	}
	if err != nil || len(l.prose) == 0 && start == 0 {
		return text
	}
	answer := text
	for _, span := range append(l.prose, [2]int{len(s), len(s)}) {
		word := strings.ToLower(s[span[0]:span[1]])
		if word == "no" || word == "not" {
			return text
		}
		if part := strings.Trim(s[min(start, span[0]):span[0]], " ,=:"); strings.ContainsAny(part, "0123456789") && mathematics(part) {
			answer = unexclaimed(part)
		}
		start = span[1]
	}
	return answer
}

// connectives are words of four letters and more that begin a sentence before a comma and say nothing.
var connectives = set("thus", "then", "hence", "therefore", "finally")

// mathematics tells whether a text has a reading without words but those for what is counted.
func mathematics(text string) bool {
	s := clean(text)
	for _, m := range modes {
		if l, err := newLexer(s, m); err == nil && len(l.prose) == 0 {
			if n, err := parse(l.out); err == nil && wordless(n) {
				return true
			}
		}
	}
	return false
}

func wordless(n *node) bool {
	return n.kind != kindText && !slices.ContainsFunc(n.args, func(a *node) bool { return !wordless(a) })
}
