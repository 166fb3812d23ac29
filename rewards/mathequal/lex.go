package mathequal

import (
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

type tokenKind int

const (
	tokOp tokenKind = iota // text is the operator
	tokNumber
	tokSymbol // a variable or a constant
	tokFunc
	tokWord // of text or a unit
)

type token struct {
	kind   tokenKind
	text   string
	value  *big.Rat // of a number
	whole  bool     // a number without a decimal point or exponent
	space  bool     // white space stands before it
	inText bool     // it stands within \text{…}
}

// mode selects one of the readings of what is ambiguous.
type mode struct {
	thousands bool // 1,234 is a number
	units     bool // a word after a space is a unit, also a short one
}

var modes = []mode{{}, {thousands: true}, {units: true}, {thousands: true, units: true}}

var errLex = errors.New("not mathematics")

type lexer struct {
	mode
	in      string
	pos     int
	out     []token
	depth   int  // of brackets
	inText  bool // within \text{…}
	space   bool
	latex   bool // commands stand in the answer
	verbal  bool // the answer is letters, white space and commas alone
	differs bool // the mode made a difference
	nested  int
	prose   [][2]int // where words stand that fell apart into variables
}

// lex splits an answer into tokens, and tells whether the mode made a difference.
func lex(s string, m mode) ([]token, bool, error) {
	l, err := newLexer(s, m)
	return l.out, l.differs, err
}

// newLexer is a lexer at the end of an answer.
func newLexer(s string, m mode) (*lexer, error) {
	verbal := !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !isLetter(byte(r)) && !strings.ContainsRune(" \t\r\n,;", r)
	})
	l := &lexer{mode: m, in: s, latex: strings.Contains(s, `\`), verbal: verbal}
	return l, l.run()
}

func (l *lexer) add(k tokenKind, text string) {
	l.out = append(l.out, token{kind: k, text: text, space: l.space, inText: l.inText})
	l.space = false
}

func (l *lexer) op(text string) { l.add(tokOp, text) }

func (l *lexer) run() error {
	for l.pos < len(l.in) {
		if len(l.out) > maxTokens {
			return errLex
		}
		if err := l.next(); err != nil {
			return err
		}
	}
	return nil
}

func (l *lexer) next() error {
	switch c := l.in[l.pos]; {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '~':
		l.space = true
		l.pos++
	case c == '$': // an amount of money, or a mark of mathematics within the answer
		if money(l.in, l.pos) {
			l.currency()
		}
		l.pos++
	case isDigit(c) || c == '.' && l.pos+1 < len(l.in) && isDigit(l.in[l.pos+1]):
		return l.number()
	case isLetter(c):
		l.letters()
	case c == '\\':
		return l.command()
	default:
		return l.sign(c)
	}
	return nil
}

// money tells whether the $ at a place stands before an amount: a digit follows, and no other $ closes a formula that it opens. A $ before a
// digit closes none, and neither does one between a space and what it opens: $5 and $x$.
func money(s string, at int) bool {
	amount := func(i int) bool {
		return i+1 < len(s) && (isDigit(s[i+1]) || s[i+1] == '.' && i+2 < len(s) && isDigit(s[i+2]))
	}
	if !amount(at) || at > 0 && s[at-1] == '$' {
		return false
	}
	closes := func(i int) bool { return !amount(i) && (s[i-1] != ' ' || i+1 == len(s) || s[i+1] == ' ') }
	opened := -1 // by a $ that is not closed
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] != '$':
		case opened >= 0 && (!amount(opened) || closes(i)):
			if opened == at || i == at {
				return false
			}
			opened = -1
		default:
			opened = i
		}
	}
	return true
}

// currency adds the $ of an amount where a value begins, and also before its sign; within an expression, 2 * $3, it says nothing.
func (l *lexer) currency() {
	n := len(l.out)
	if l.behind("-") {
		n--
	}
	if n == 0 || l.out[n-1].kind == tokOp && slices.Contains([]string{",", "=", "<", ">", "<=", ">=", "!=", "approx"}, l.out[n-1].text) {
		l.out = slices.Insert(l.out, n, token{kind: tokWord, text: "$", space: l.space})
	}
}

func (l *lexer) sign(c byte) error {
	for _, two := range [][2]string{{"<=", "<="}, {">=", ">="}, {"!=", "!="}, {"==", "="}, {"**", "^"}} {
		if strings.HasPrefix(l.in[l.pos:], two[0]) {
			l.pos += 2
			l.op(two[1])
			return nil
		}
	}
	l.pos++
	switch c {
	case '(', '[':
		l.depth++
	case ')', ']':
		l.depth--
	case '+', '-', '*', '/', '^', '{', '}', ',', ';', '|', '!', '%', '=', '<', '>', '&', '_', ':', '\'':
	default:
		return errLex
	}
	if c == ';' {
		c = ','
	}
	l.op(string(c))
	return nil
}

// letters reads a run of letters: a name, a word, a unit, or variables side by side.
func (l *lexer) letters() {
	start := l.pos
	for l.pos < len(l.in) && isLetter(l.in[l.pos]) {
		l.pos++
	}
	run := l.in[start:l.pos]
	if l.word(run) {
		return
	}
	if !l.inText && l.isProse(start) {
		l.prose = append(l.prose, [2]int{start, l.pos})
	}
	for _, c := range run {
		l.add(tokSymbol, string(c))
	}
}

// isProse tells whether the run of letters that ends here is a word of a sentence, of two or three letters, and stands alone: the is,
// of and Bob are such, and mx, PQ and Prt are products, as is all that stands beside an operation or behind an =: v = at + 5.
func (l *lexer) isProse(start int) bool {
	run := l.in[start:l.pos]
	lower := strings.ToLower(run)
	before := start == 0 || strings.IndexByte(" \t,", l.in[start-1]) >= 0
	after := l.pos == len(l.in) || strings.IndexByte(" \t,=", l.in[l.pos]) >= 0
	switch {
	case shortWords[lower] && numberBefore.MatchString(l.in[:start]) && numberAfter.MatchString(l.in[l.pos:]): // 2 by 6, 3 TO 4
		return true
	case !before || !after || strings.ToUpper(run) == run || product(lower) && lower == run || lower == "mod":
		return false
	case l.behind("+-*/^=") || operation.MatchString(l.in[l.pos:]):
		return false
	case len(run) == 2: // Ax + By has products, and as = 3 is one
		equation := strings.HasPrefix(strings.TrimLeft(l.in[l.pos:], " \t"), "=")
		return shortWords[lower] && !equation && lower != "am" && lower != "pm" && (lower == run || start == 0)
	}
	return strings.ContainsAny(lower, "aeiouy")
}

var (
	numberBefore = regexp.MustCompile(`\d\s+$`)
	numberAfter  = regexp.MustCompile(`^\s+\d`)
)

// wordBetweenNumbers tells whether numbers stand on both sides of a word that fell apart into variables: 3 to 4 is no product.
func wordBetweenNumbers(in string, words [][2]int) bool {
	return slices.ContainsFunc(words, func(span [2]int) bool {
		return strings.ContainsAny(in[:span[0]], "0123456789") && strings.ContainsAny(in[span[1]:], "0123456789")
	})
}

// indexes tells whether what was read last takes the whole number behind it, which begins at a place, as its index, so that the two do not
// change places with others. In plain text that is a letter right before the number: CO2, x1. With spaces it is the R of 7 R 2 and mod. A
// product is n2^n, 2x3, an exponent (a^n2), and of the imaginary units 1 + i2.
func (l *lexer) indexes(start int) bool {
	n := len(l.out)
	symbol := func(i int, text string) bool { return i >= 0 && l.out[i].kind == tokSymbol && l.out[i].text == text }
	number := n > 1 && l.out[n-2].kind == tokNumber // before the letter
	switch {
	case (symbol(n-1, "R") || symbol(n-1, "r")) && number || symbol(n-3, "m") && symbol(n-2, "o") && symbol(n-1, "d"):
		return true
	case l.latex || start == 0 || !isLetter(l.in[start-1]) || n == 0 || l.out[n-1].kind != tokSymbol || len(l.out[n-1].text) != 1:
		return false
	case n > 1 && l.out[n-2].kind == tokOp && (l.out[n-2].text == "^" || l.out[n-2].text == "_"), strings.Contains("ij", l.out[n-1].text):
		return false
	}
	return !(number && strings.EqualFold(l.out[n-1].text, "x")) && !factorBehind.MatchString(l.in[l.pos:])
}

// factorBehind is what stands behind a number that is a factor and no index.
var factorBehind = regexp.MustCompile(`^\s*(?:\^|\*\*|!)`)

// behind tells whether one of some signs stands before what is read next.
func (l *lexer) behind(signs string) bool {
	n := len(l.out)
	return n > 0 && l.out[n-1].kind == tokOp && strings.Contains(signs, l.out[n-1].text)
}

// operation is what follows a factor; a sign right before a number is none: it is -25.
var operation = regexp.MustCompile(`^\s*(?:[*/^]|\\(?:times|cdot|div)\b|[-+](?:\D|$))|^[-+]`)

// word adds a run as one token if it is one.
func (l *lexer) word(run string) bool {
	lower := strings.ToLower(run)
	known, ok := names[lower]
	switch {
	case ok && (len(run) > 1 || l.inText):
		if multiples[known.text] != 0 && len(l.out) == 1 && strings.EqualFold(l.out[0].text, "a") { // a dozen: no variable
			l.out = l.out[:0]
		}
		l.out = append(l.out, token{kind: known.kind, text: known.text, space: l.space})
		l.space = false
		if known.text == "" { // says nothing
			l.out = l.out[:len(l.out)-1]
		}
	case l.partOf(lower) > 0:
		n := big.NewRat(l.partOf(lower), 1)
		l.op("/")
		l.out = append(l.out, token{kind: tokNumber, text: n.Num().String(), value: n, whole: true})
	case l.inText && (run == "e" || run == "i"):
		l.add(tokSymbol, run)
	case run == "in" && len(l.out) > 0 && l.out[len(l.out)-1].kind == tokSymbol:
		l.op("in")
	case l.verbal && !product(run) && (run == l.in || strings.ToUpper(run) != run): // no is not on; AB and CD are products
		l.add(tokWord, run)
	case l.perUnit(lower), (run == "C" || run == "F") && l.afterDegree():
		l.add(tokWord, run)
	case l.inText || len(run) > 3 || len(run) > 1 && (lower == "sq" || units[lower].factor != nil || operations[lower]) && l.afterValue():
		l.add(tokWord, run)
	case !l.latex && l.space && l.afterValue() && mayBeUnit(run):
		l.differs = true
		if !l.units {
			return false
		}
		l.add(tokWord, run)
	default:
		return false
	}
	return true
}

// partOf is by what a word divides the number before it, or 0: thirds, and the third of 1 third where nothing follows.
func (l *lexer) partOf(word string) int64 {
	n := len(l.out)
	if n == 0 || l.out[n-1].kind != tokNumber {
		return 0
	}
	if one, plural := strings.CutSuffix(word, "s"); plural {
		return parts[one]
	}
	if l.out[n-1].text == "1" && l.pos == len(l.in) {
		return parts[word]
	}
	return 0
}

// afterValue tells whether a value ends here, so that a unit may follow.
func (l *lexer) afterValue() bool {
	if len(l.out) == 0 {
		return false
	}
	t := l.out[len(l.out)-1]
	return t.kind == tokNumber || t.kind == tokWord || t.kind == tokOp && strings.Contains(")}%/", t.text)
}

// afterDegree tells whether a sign of degrees stands before: 5^\circ C.
func (l *lexer) afterDegree() bool {
	n := len(l.out)
	if n > 1 && l.out[n-1].text == "}" {
		n--
	}
	return n > 0 && l.out[n-1].kind == tokOp && l.out[n-1].text == "degree"
}

// perUnit tells whether a unit is in the denominator of another: the h of km/h.
func (l *lexer) perUnit(run string) bool {
	n := len(l.out)
	return n > 1 && l.out[n-1].text == "/" && l.out[n-2].kind == tokWord && units[run].factor != nil
}

// product tells whether a run of an answer that is letters alone is a product of variables: xy, abc, mn.
func product(run string) bool {
	return len(run) == 1 || strings.Trim(run, "abcxyz") == "" || len(run) == 2 && strings.ToLower(run) == run && !shortWords[run]
}

// mayBeUnit tells whether a word after a space counts something: m in 5 m, men in 12 men; not xy in 3 xy.
func mayBeUnit(run string) bool {
	if len(run) == 1 {
		return strings.Contains("msghLlNJWVK", run)
	}
	return units[strings.ToLower(run)].factor != nil || len(run) > 2 && strings.ContainsAny(run, "aeiouAEIOU")
}

// command reads what begins with a backslash.
func (l *lexer) command() error {
	start := l.pos + 1
	if start == len(l.in) {
		return errLex
	}
	end := start
	for end < len(l.in) && isLetter(l.in[end]) {
		end++
	}
	if end == start {
		return l.escaped(start)
	}
	name := l.in[start:end]
	l.pos = end
	if textCommands[name] {
		return l.text(name)
	}
	switch name {
	case "begin", "end":
		env, ok := l.braces()
		if ok && env == "array" && name == "begin" {
			_, ok = l.braces() // its columns
		}
		if !ok || !strings.HasSuffix(env, "matrix") && env != "array" {
			return errLex
		}
		l.op(name)
		return nil
	case "mathbb", "mathbf", "vec", "hat", "bar", "boldsymbol", "mathcal":
		arg, ok := l.braces()
		if ok && (name == "mathbf" || name == "boldsymbol") && arg != "" && strings.Trim(arg, "0123456789.") == "" {
			return l.within(arg, l.inText)
		}
		if !ok || len(arg) != 1 || !isLetter(arg[0]) {
			return errLex
		}
		l.add(tokSymbol, name+" "+arg)
		return nil
	}
	if name == "overline" || name == "angle" {
		points := pointNames.FindStringSubmatch(l.in[l.pos:])
		if points == nil {
			return errLex
		}
		l.pos += len(points[0])
		if n := len(l.out); n > 0 && l.out[n-1].kind == tokSymbol && l.out[n-1].text == "m" { // the measure of it
			l.out = l.out[:n-1]
		}
		if l.behind("+-*/") || operation.MatchString(l.in[l.pos:]) { // an equation of several is as good as text
			return errLex
		}
		l.add(tokSymbol, name+" "+strings.Join(strings.Fields(points[1]+points[2]), ""))
		return nil
	}
	if ignored[name] {
		l.space = true
		if name == "left" || name == "right" {
			rest := strings.TrimLeft(l.in[l.pos:], " ")
			after, bar := strings.CutPrefix(rest, "|")
			if bar {
				l.op(name[:1] + "vert")
			} else {
				after = strings.TrimPrefix(rest, ".")
			}
			l.pos = len(l.in) - len(after)
		}
		return nil
	}
	if to, ok := commands[name]; ok {
		l.add(to.kind, to.text)
		return nil
	}
	if greek[name] {
		l.add(tokSymbol, name)
		return nil
	}
	return errLex
}

// rowSpacing is what may follow the end of a matrix row: \\[6pt] and \\*. A row [1,2] is none.
var rowSpacing = regexp.MustCompile(`^\*?(?:\[\s*-?(?:\d+\.?\d*|\.\d+)\s*(?:pt|mm|cm|em|ex|in)\s*\])?`)

// pointNames are the points of a line or an angle: AB, A B C.
var pointNames = regexp.MustCompile(`^\s*(?:\{\s*([A-Z][A-Z\s]*)\}|([A-Z](?:\s*[A-Z])*))`)

// escaped reads a backslash with a sign after it.
func (l *lexer) escaped(at int) error {
	l.pos = at + 1
	switch c := l.in[at]; c {
	case '{', '}':
		l.op(`\` + string(c))
	case '%':
		l.op("%")
	case '$':
		l.add(tokWord, "$")
	case '\\':
		l.pos += len(rowSpacing.FindString(l.in[l.pos:]))
		l.op(`\\`)
	case '|':
		l.op("|")
	case ',', ';', ':', '!', ' ', '\n':
		l.space = true
	case '(', ')', '[', ']': // marks of mathematics within the answer
	default:
		return errLex
	}
	return nil
}

// braces reads {…} without nesting and returns what is in it.
func (l *lexer) braces() (string, bool) {
	rest := strings.TrimLeft(l.in[l.pos:], " ")
	inner, ok := balanced(rest)
	if !ok {
		return "", false
	}
	l.pos = len(l.in) - len(rest) + len(inner) + 2
	return inner, true
}

// balanced is what stands in the braces at the start of s.
func balanced(s string) (string, bool) {
	if s == "" || s[0] != '{' {
		return "", false
	}
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[1:i], true
			}
		}
	}
	return "", false
}

// text reads \text{…}: its words are words, everything else is as outside.
func (l *lexer) text(name string) error {
	inner, ok := l.braces()
	if !ok {
		if name == "rm" || name == "bf" || name == "it" { // switches without an argument
			l.space = true
			return nil
		}
		return errLex
	}
	return l.within(inner, true)
}

// within reads what stands in the braces of a command.
func (l *lexer) within(inner string, inText bool) error {
	if l.nested++; l.nested > maxDepth {
		return errLex
	}
	defer func() { l.nested-- }()
	outer := *l
	l.in, l.pos, l.inText = inner, 0, inText
	err := l.run()
	l.in, l.pos, l.inText, l.space = outer.in, outer.pos, outer.inText, true
	return err
}
