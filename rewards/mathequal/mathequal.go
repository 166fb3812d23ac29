// Package mathequal tells whether two mathematical answers, in LaTeX or plain text, state the same. Its functions keep no state.
//
// What is compared, and how exactly:
//   - Expressions of rational operations (numbers, variables, + − × ÷, whole powers, factorials, absolute values) are compared
//     exactly: as fractions, and with variables at random fractions. Two different ones of degree d agree by chance at one point
//     with a probability of d/65,537 at most (Schwartz and Zippel), and twelve points must agree, five where half of its steps are
//     spent. The points derive from the two texts: the verdict is always the same, and nobody who writes an answer can aim at
//     them. Variables in factorials, binomials and indices of roots are whole numbers there, of
//     which as many different ones must agree.
//   - Expressions with roots, π, e, logarithms or trigonometric functions are computed with 1,024 bits and are the same when they
//     differ by less than 2⁻⁷⁰⁰ of their size. With variables, they are compared where both are real, and where
//     too few of 150 points are such, at the others too.
//   - Equations are the same up to a constant factor, inequalities up to a positive one; an inequality in one variable is its
//     interval. Lists and sets have no order, tuples and intervals have.
//   - 50% is 50 and 0.5; 90° is 90 and π/2. A unit or a word that only one side has is ignored; of two units sizes are converted, and where
//     both sides have other words for what is counted they differ.
//   - What is no mathematics is compared as text, without regard to case and to a plural at its end.
//
// Everything is bounded: length, depth, digits, exponents and steps. What is beyond, such as 9^9^9^9, equals only itself.
//
// It does not know where the answers come from: package rewards takes them out of tasks and completions.
package mathequal

import (
	"regexp"
	"strings"
)

// Bounds of an answer.
const (
	maxLength = 2000   // bytes
	maxTokens = 1000   //
	maxDepth  = 60     // of nesting
	maxItems  = 60     // of a list
	maxDigits = 1000   // of a number
	maxFuel   = 80_000 // steps: about a quarter of a second at most
)

// Options adjust a comparison.
type Options struct {
	Tolerance float64 // largest difference of two numbers relative to the larger one; 0: they must be equal
}

// Equal reports whether two answers state the same. It is symmetric, and an answer equals itself.
func Equal(a, b string, o Options) bool {
	x, y := clean(a), clean(b)
	if plain(x) == plain(y) {
		return true
	}
	if len(x) > maxLength || len(y) > maxLength || x == "" || y == "" {
		return false
	}
	c := newComparer(x, y, o)
	left, right := readings(x), readings(y)
	for _, p := range left {
		for _, q := range right {
			if c.same(p, q) {
				return true
			}
		}
	}
	return false
}

// readings are what an answer may mean: 1,234 is a number or a list, 5 m a length or a product.
func readings(s string) []*node {
	var out []*node
	for _, m := range modes {
		l, err := newLexer(s, m)
		if err != nil || m != (mode{}) && !l.differs || wordBetweenNumbers(l.in, l.prose) {
			continue
		}
		if n, err := parse(l.out); err == nil {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		out = append(out, &node{kind: kindText, name: words(s), dense: dense(s)})
	}
	return out
}

// words is a text as it is compared: without marks of LaTeX, case and punctuation around it.
func words(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			j := i + 1
			for j < len(s) && isLetter(s[j]) {
				j++
			}
			if name := s[i+1 : j]; !textCommands[name] {
				b.WriteString(s[i:j])
			}
			i = max(i, j-1)
		case '{', '}', '$', '"', '*', '`':
			b.WriteByte(' ')
		default:
			b.WriteByte(c)
		}
	}
	text := strings.ToLower(strings.Join(strings.Fields(b.String()), " "))
	text = strings.Trim(text, ".,;:!? ")
	if len(text) == 3 && text[0] == '(' && text[2] == ')' { // a choice: (C)
		text = text[1:2]
	}
	return text
}

// plain is what two texts must have in common to be the same without any reading.
func plain(s string) string {
	return strings.Join(strings.Fields(s), " ")
}

// dense is a text that is no mathematics without case and without white space that says nothing: 3 : 4 is 3:4, to day is not today.
func dense(s string) string {
	fields := strings.Fields(strings.ToLower(s))
	var b strings.Builder
	for i, f := range fields {
		if i > 0 && separate(fields[i-1], f) {
			b.WriteByte(' ')
		}
		b.WriteString(f)
	}
	return b.String()
}

// separate tells whether white space between two texts is all that keeps them from being read as something else.
func separate(left, right string) bool {
	p, q := left[len(left)-1], right[0]
	word := func(c byte) bool { return isLetter(c) || isDigit(c) || c >= 0x80 }
	switch {
	case word(p) && word(q):
		return true
	case p == '\\', p == '!', p == '*' && q == '*': // n! = 2 is not n != 2
		return true
	case strings.IndexByte(".,", p) >= 0 || strings.IndexByte(".,", q) >= 0: // 1, 000
		return isDigit(p) || isDigit(q)
	case q == '-' || q == '+': // 2e - 5 is not 2e-5
		return p == 'e'
	case p == '-' || p == '+':
		return len(left) > 1 && left[len(left)-2] == 'e'
	}
	return false
}

// clean removes what carries no meaning around an answer and writes signs that have several forms in one.
func clean(s string) string {
	if len(s) > 4*maxLength {
		return s
	}
	s = raisedDigits.ReplaceAllStringFunc(s, func(run string) string { return "^{" + onTheLine.Replace(run) + "} " })
	s = bracedCommas.ReplaceAllString(unicodeForms.Replace(s), "{,}")
	s = ordinals.ReplaceAllString(s, "$1")
	for {
		before := s
		s = strings.TrimSpace(s)
		for _, w := range wrappers {
			if inner, ok := strings.CutPrefix(s, w[0]); ok && len(inner) >= len(w[1]) && strings.HasSuffix(inner, w[1]) {
				if inner = strings.TrimSuffix(inner, w[1]); !strings.Contains(inner, w[1]) {
					s = inner
				}
			}
		}
		if t := strings.TrimRight(s, " .,;:"); len(t) < len(s) && !strings.HasSuffix(t, `\`) {
			s = t
		}
		if s == before {
			return s
		}
	}
}

// raisedDigits are an exponent in raised signs, but for the single digits of unicodeForms.
var raisedDigits = regexp.MustCompile(`⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[⁰¹²³⁴⁵⁶⁷⁸⁹]{2,}|[⁰¹⁵⁶⁷⁸⁹]`)

var onTheLine = strings.NewReplacer("⁻", "-", "⁰", "0", "¹", "1", "²", "2", "³", "3", "⁴", "4", "⁵", "5", "⁶", "6", "⁷", "7", "⁸", "8", "⁹", "9")

var bracedCommas = regexp.MustCompile(`\s*\{\s*,\s*\}\s*`)

// ordinals are whole numbers with the letters of an order above them; 2^{nd} without \text may be a power.
var ordinals = regexp.MustCompile(`(\d)\s*\^\s*(?:\{\s*th\s*\}|\{\s*\\(?:text|textrm|mathrm)\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\})`)

var wrappers = [][2]string{{"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}, {"**", "**"}, {"`", "`"}}

var unicodeForms = strings.NewReplacer(
	"−", "-", "–", "-", "×", `\times `, "·", `\cdot `, "⋅", `\cdot `, "∗", "*", "÷", "/", "π", `\pi `, "θ", `\theta `, "α", `\alpha `, "β", `\beta `,
	"√", `\sqrt `, "∞", `\infty `, "≤", `\le `, "≥", `\ge `, "≠", `\ne `, "≈", `\approx `, "°", `^\circ `, "º", `^\circ `,
	"²", "^2 ", "³", "^3 ", "⁴", "^4 ", "½", `\frac12 `, "⅓", `\frac13 `, "⅔", `\frac23 `, "¼", `\frac14 `, "¾", `\frac34 `, "±", `\pm `, "∓", `\mp `,
	"∪", `\cup `, "∈", `\in `, "∅", `\emptyset `, "ℝ", `\mathbb{R} `, "\u00a0", " ", "\u2009", `\,`, "\u202f", `\,`, "∆", `\Delta `, "Δ", `\Delta `,
	"€", `\euro `, "£", `\pound `, "，", ",", "（", "(", "）", ")",
)

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
