package mathequal

import (
	"regexp"
	"slices"
	"strings"
)

// pieces are what a line of prose is split into, to find the expression around a number. Arrows, dashes and tags of HTML are none of mathematics.
var pieces = regexp.MustCompile(`--+>?|->|</?[A-Za-z]+>|((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?::\d+)*)|(\\[A-Za-z]+|\\\$)|([A-Za-z]+)` +
	`|<<|>>|(<=|>=|[-+−–*/^×·⋅∗÷±√_|!%°π⁻⁰¹²³⁴⁵⁶⁷⁸⁹<>≤≥≠$])|([(\[{]|\\\{)|([)\]}]|\\\})|(,|;)|(=)|\s+|.`)

type pieceKind int

const (
	pieceOther pieceKind = iota
	pieceNumber
	pieceCommand
	pieceWord
	pieceSign
	pieceOpen
	pieceClose
	pieceComma
	pieceEquals
)

type piece struct {
	kind     pieceKind
	text     string
	from, to int
	spaced   bool // white space stands before it
	mate     int  // of a bracket, or -1
}

// line is a line of prose in pieces.
type line []piece

func newLine(s string) line {
	var out line
	var open []int
	spaced := false
	for _, m := range pieces.FindAllStringSubmatchIndex(s, -1) {
		p := piece{text: s[m[0]:m[1]], from: m[0], to: m[1], spaced: spaced, mate: -1}
		if strings.TrimSpace(p.text) == "" {
			spaced = true
			continue
		}
		for k := pieceNumber; k <= pieceEquals; k++ {
			if m[2*k] >= 0 {
				p.kind = k
			}
		}
		switch {
		case p.text == "$" && !money(s, p.from), p.text == "|" && (spaced || p.from == 0) && (p.to == len(s) || s[p.to] == ' '): // of a table
			p.kind = pieceOther
		case p.kind == pieceOpen:
			open = append(open, len(out))
		case p.kind == pieceClose && len(open) > 0:
			p.mate = open[len(open)-1]
			open = open[:len(open)-1]
			out[p.mate].mate = len(out)
		}
		out, spaced = append(out, p), false
	}
	return out
}

// around is the expression that the last number of a line stands in, as the beginning and the end of a text within the line. alone tells
// whether that is nothing but the number. It ends at words, at the end of a sentence and at an =, of which the right side counts: of
// "the area is 2·3 = 6 m" it is 6. A list, and what words such as "to" and "of" stand in, belongs to it where is, are and the like lead
// there: "the solutions are x = 2 and x = 3", and not "in 2020, 25 people".
func (l line) around() (from, to int, alone bool) {
	at := len(l) - 1
	for at >= 0 && l[at].kind != pieceNumber {
		at--
	}
	if at < 0 {
		return 0, 0, true
	}
	lo, hi := at, at
	for i := at - 1; i >= 0; i-- { // brackets around it
		if l[i].kind == pieceOpen && l[i].mate > hi && l.expression(i, l[i].mate) {
			lo, hi = i, l[i].mate
		}
	}
	for lo > 0 && l.joined(lo-1) {
		if lo--; l[lo].kind == pieceClose {
			lo = l[lo].mate
		}
	}
	for hi+1 < len(l) && l.joined(hi) && !l.unit(hi+1) {
		if hi++; l[hi].kind == pieceOpen {
			hi = l[hi].mate
		}
	}
	lo = l.list(lo)
	for i := lo; i <= hi; i++ { // brackets that are not closed
		if b := l[i]; (b.kind == pieceOpen || b.kind == pieceClose) && (b.mate < lo || b.mate > hi) {
			if i < at {
				lo = i + 1
			} else {
				hi = i - 1
			}
		}
	}
	for lo < at && l[lo].kind == pieceSign && (strings.Contains("+*/^×·⋅∗÷_!%°π<>≤≥≠–⁻<=>=", l[lo].text) || strings.Contains("-−", l[lo].text) && l[lo+1].spaced) {
		lo++
	}
	for hi > at && (l[hi].kind == pieceSign && strings.Contains("-+−–*/^×·⋅∗÷±√_<>≤≥≠$<=>=", l[hi].text) || l[hi].text == "!" && l.ends(hi)) {
		hi--
	}
	return l[lo].from, l[hi].to, lo == at && hi == at
}

// expression tells whether nothing but mathematics stands between two brackets.
func (l line) expression(open, end int) bool {
	return !slices.ContainsFunc(l[open:end], func(p piece) bool {
		return p.kind == pieceOther || p.kind == pieceWord && len(p.text) > 1 && !named(p.text)
	})
}

// named tells whether a word has a meaning in mathematics.
func named(word string) bool {
	lower := strings.ToLower(word)
	n, ok := names[lower]
	one, plural := strings.CutSuffix(lower, "s")
	return ok && n.text != "" && n.text != "," || plural && parts[one] != 0
}

// ends tells whether a ! is the end of a sentence.
func (l line) ends(i int) bool {
	return i+1 == len(l) || l[i+1].spaced && l[i+1].kind == pieceWord && strings.ToLower(l[i+1].text[:1]) != l[i+1].text[:1]
}

// unit tells whether a letter behind a number may be its unit: 5m, 5m².
func (l line) unit(i int) bool {
	end := i
	if i+1 < len(l) && !l[i+1].spaced && strings.Contains("²³", l[i+1].text) {
		end++
	}
	last := end+1 == len(l) || !l.joined(end)
	return last && l[i-1].kind == pieceNumber && l[i].kind == pieceWord && !named(l[i].text) && (mayBeUnit(l[i].text) || len(l[i].text) > 1)
}

// joined tells whether a piece and the one behind it belong to one expression.
func (l line) joined(i int) bool {
	p, q := l[i], l[i+1]
	operand := func(p piece) bool { return p.kind == pieceNumber || p.kind == pieceCommand || p.kind == pieceWord }
	isNumber := func(i int) bool { return i >= 0 && i < len(l) && l[i].kind == pieceNumber }
	for _, b := range []piece{p, q} {
		switch {
		case b.kind == pieceOther || b.kind == pieceComma || b.kind == pieceEquals:
			return false
		case b.kind == pieceClose && b.mate >= 0 && !l.expression(b.mate, i), b.kind == pieceOpen && b.mate >= 0 && !l.expression(i+1, b.mate):
			return false
		case b.kind == pieceWord && len(b.text) > 1 && !named(b.text) && (q.spaced || len(b.text) > 3 || !operand(p) || !operand(q) || ordinal(b.text)):
			return false
		}
	}
	between := (p.kind == pieceWord && isNumber(i-1) && isNumber(i+1) || q.kind == pieceWord && isNumber(i) && isNumber(i+2)) // 3 x 4
	switch {
	case p.kind == pieceClose && p.mate < 0 || q.kind == pieceOpen && q.mate < 0:
		return false
	case q.kind == pieceOpen && q.spaced && (p.kind == pieceNumber || p.kind == pieceClose || strings.Contains("%!°π", p.text)): // 2 (x + 1), and not 0.75 (75%)
		return q.mate > i+3 && slices.ContainsFunc(l[i+2:q.mate], func(b piece) bool { return b.kind == pieceWord })
	case p.kind == pieceSign || q.kind == pieceSign || p.kind == pieceOpen || q.kind == pieceClose:
		return p.kind != pieceSign || q.kind != pieceWord || len(q.text) == 1 || named(q.text)
	case !q.spaced || p.kind == pieceWord && len(p.text) > 1:
		return true
	case between:
		return strings.Contains("xXRr", p.text) || strings.Contains("xXRr", q.text)
	case q.kind == pieceNumber: // 3 1/2
		return p.kind == pieceCommand || p.kind == pieceNumber && i+3 < len(l) && l[i+2].text == "/" && !l[i+2].spaced && isNumber(i+3) && !l[i+3].spaced
	case q.kind == pieceWord:
		return p.kind != pieceWord && (len(q.text) > 1 || !strings.Contains("a", q.text) && strings.ToLower(q.text) == q.text)
	case q.kind == pieceOpen:
		return p.kind != pieceWord && q.mate > i+3
	}
	return true
}

func ordinal(word string) bool { return slices.Contains([]string{"st", "nd", "rd", "th"}, word) }

var (
	// operators are words for operations between two numbers, which are not read.
	operators = set("choose", "times", "plus", "minus", "mod")
	// relating are words and commas that join what leads to one answer.
	relating = set("and", "or", "to", "of", "by", "out")
	// lead are the words that lead to an answer.
	lead = set("is", "are", "was", "were", "be")
)

// list is where the list or relation begins whose last item begins at a piece: at the item itself where no word leads to the list.
func (l line) list(item int) int {
	if item > 1 && operators[strings.ToLower(l[item-1].text)] && (l[item-2].kind == pieceNumber || l[item-2].kind == pieceClose) {
		return item - 2
	}
	related := false
	for i := item - 1; i >= 0; i-- {
		p := l[i]
		word := strings.ToLower(p.text)
		switch {
		case p.kind == pieceComma || relating[word]:
			related = true
		case p.kind == pieceWord && lead[word]:
			if related && l[i+1].kind != pieceComma && !relating[word] && !relating[strings.ToLower(l[i+1].text)] {
				return i + 1
			}
			return item
		case p.kind == pieceClose && p.mate >= 0 && l.expression(p.mate, i): // its commas are no list's
			i = p.mate
		case p.kind == pieceOther, p.kind == pieceWord && len(p.text) > 1 && !named(p.text):
			return item
		}
	}
	return item
}

// widened is the expression around the last number of a text, which begins behind a place, or the line of it where that is not read.
func widened(text string, number []int, after int) string {
	begin := max(after, 1+strings.LastIndexByte(text[:number[0]], '\n'), number[0]-maxLength)
	end := number[1]
	if i := strings.IndexByte(text[end:], '\n'); i >= 0 {
		end += i
	} else {
		end = len(text)
	}
	s := text[begin:min(end, number[1]+maxLength)]
	s = emphasis.ReplaceAllString(s, "$1$2$3$4$5$6")
	from, to, alone := newLine(s).around()
	switch {
	case alone || repeats(s[from:to], text[number[0]:number[1]]):
		return text[number[0]:number[1]]
	case mathematics(s[from:to]):
		return s[from:to]
	}
	return strings.TrimSpace(s)
}

// repeats tells whether an expression is a list that states one number again and again: 1/2 or 0.5.
func repeats(expression, number string) bool {
	list := readings(clean(expression))[0]
	items := list.args
	return list.kind == kindList && !slices.ContainsFunc(items, func(n *node) bool {
		return !slices.ContainsFunc(readings(clean(number)), func(m *node) bool { return newComparer(expression, number, Options{}).same(n, m) })
	})
}
