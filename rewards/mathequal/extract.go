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

// Answers are what a text may give as its answer; the first is the likeliest. An answer in a sentence counts also without the letter of a
// choice, (B) 5, and without a ! at the end of its line. One line without \boxed counts also as it is: 3 hours 20 minutes is no
// mathematics, and a task's right answer.
func Answers(text string) []string {
	answer, inSentence := extract(text)
	answers := []string{answer}
	if inSentence {
		_, rest, _ := strings.Cut(text, answer)
		rest = strings.TrimLeft(rest, " *$")
		if e := exclamation.FindStringSubmatch(answer); e != nil && (rest == "" || rest[0] == '\n') {
			answers = append(answers, e[1])
		}
		if c := choice.FindStringSubmatch(answer); c != nil && strings.ContainsAny(c[1], "0123456789") && mathematics(c[1]) {
			answers = append(answers, c[1])
		}
	}
	if _, boxed := Boxed(text); !boxed && !strings.Contains(strings.TrimSpace(text), "\n") {
		answers = append(answers, text)
	}
	return answers
}

// extract is the answer that a text gives: the last \boxed{…}; else what follows the last "answer is", without a reason for it; else all
// of it when it is one line that reads as mathematics, without the words of a short sentence; else the last formula, or a number after
// it with the expression around it; else all of it. inSentence tells whether words of a sentence lead to the answer.
func extract(text string) (answer string, inSentence bool) {
	text = strings.TrimSpace(text)
	if inner, ok := Boxed(text); ok {
		return inner, false
	}
	if at := phrase.FindAllStringIndex(text, -1); len(at) > 0 {
		last := at[len(at)-1]
		line := max(1+strings.LastIndexByte(text[:last[0]], '\n'), last[0]-maxLength)
		if bold := emphasized(text[line:], last[1]-line); bold != "" {
			return bold, true
		}
		return withoutReason(sentence(text[last[1]:])), true
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
			return widened(text, last, max(formulaEnd, 0)), false
		}
	}
	if formulaEnd >= 0 {
		return formula, false
	}
	return text, false
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
			if m := lastWord.FindStringSubmatch(rest); m != nil && operations[strings.ToLower(m[1])] { // **5**, twice
				rest = rest[1:]
			}
			unmarked := emphasis.ReplaceAllString(rest, "$1$2$3$4$5$6")
			whole := sentence(inner + unmarked)
			another := len(whole) > len(inner) && (orElse.MatchString(rest) || !strings.HasPrefix(rest, whole[len(inner):]))
			if !another && !mathematics(whole) {
				whole = sentence(inner)
			}
			return strings.TrimRight(whole, " .")
		}
	}
	return ""
}

// lastWord is one word behind a comma, with which its sentence ends.
var lastWord = regexp.MustCompile(`^,\s+([A-Za-z]+)(?:[.!?\n]|$)`)

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
	// remark is where a reason or remark begins, by its first words: anything else behind a dash or bracket may belong to the answer.
	remark = regexp.MustCompile(`(?i)` + because.String() + `|,\s+(?:as|so|where|which (?:is|are|means))\b` +
		`|\s+(?:[-–—]\s+|(\())(?:since\b|because\b|see\b|that is\b|which (?:is|are|means)\b|i\.e\.)`)
	another = regexp.MustCompile(`(?i)\b(?:or|but|otherwise|wrong)\b`) // what may lead to another answer
)

// withoutReason is a sentence up to a reason or remark behind mathematics: 5 of 5, since 2+3 = 5, and of 5 (see above). A bracket must end
// with the sentence, and a reason that may give another answer stays. Of words it is what stands before because and since.
func withoutReason(sentence string) string {
	s := strings.TrimRight(sentence, " \t?")
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
	for _, at := range slices.Backward(remark.FindAllSubmatchIndex(outside, maxItems)) { // the longest part
		inBracket := at[2] >= 0
		if another.Match(outside[at[0]:]) || inBracket && !strings.HasSuffix(strings.TrimRight(s, ".!"), ")") {
			continue
		}
		if part := s[:at[0]]; mathematics(part) && !changes.MatchString(part) {
			return part
		}
	}
	if at := because.FindIndex(outside); at != nil && !strings.ContainsAny(s[:at[0]], "0123456789") {
		return s[:at[0]]
	}
	return sentence
}

// exclamation is a number, a value in words, or the end of a formula or of bold text, with a ! that may end its sentence and may be a
// factorial. Behind a variable and after operations it is a factorial: n! and 3 + 4!.
var exclamation = regexp.MustCompile(`(?s)^([-−]?\$?\d[\d,.:]*%?|[-−]?[^-−+*/^=<>!\\×·÷⋅∙√]*[A-Za-z]{2}|.*(?:\$|\\\)|\*))!+$`)

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

// statement is what a line that reads as mathematics states, and whether that is a part of a short sentence: the part with numbers, if
// there is only one, and a word such as is, has or so, or an =, leads to it (Sam has 5 toys). Of "..., so 5" only what follows the so
// is looked at. Every other line states all that stands in it, and so does one with words that may change a number (not 5, up to 5).
func statement(text string) (answer string, inSentence bool) {
	s := clean(text)
	l, err := newLexer(s, mode{units: true})
	start, led, parts := 0, false, 0
	if first, rest, found := strings.Cut(s, ","); found && connectives[strings.ToLower(first)] {
		start, led = len(s)-len(rest), true
	}
	if err != nil || changes.MatchString(s) {
		return text, false
	}
	for _, span := range append(l.prose, [2]int{len(s), len(s)}) {
		part := strings.Trim(s[min(start, span[0]):span[0]], " ,=:")
		if strings.ContainsAny(part, "0123456789") {
			parts++
			answer, inSentence = part, led && mathematics(part) && !openList.MatchString(part)
		}
		word := strings.ToLower(s[span[0]:span[1]])
		if word == "so" {
			parts = 0
		}
		led = led || leading[word] || strings.HasPrefix(strings.TrimLeft(s[span[1]:], " "), "=")
		start = span[1]
	}
	if parts != 1 || !inSentence {
		return text, false
	}
	return answer, true
}

// leading are the words of two and three letters that lead to an answer.
var leading = set("so", "is", "are", "was", "has", "had", "get", "got", "let", "now", "yes")

var (
	// changes are words beside a number that may make it another.
	changes = regexp.MustCompile(`(?i)\b(?:no|not|non|nor|up|but|if|off|too|few|less|more|mil|half|twice|dozen|hundred|squared|cubed)s?\b`)
	// openList is a part of which words took an item: of "5 or so" the part is "5 or".
	openList = regexp.MustCompile(`(?i)^(?:or|and)\b|\b(?:or|and)$`)
)

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
