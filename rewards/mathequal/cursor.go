package mathequal

import (
	"math/big"
	"strings"
)

// cursor is a place in the tokens of an answer, and how deep the parser is nested there. It reads what needs no look into expressions.
type cursor struct {
	toks  []token
	pos   int
	depth int
}

func (c *cursor) peek() token {
	if c.pos < len(c.toks) {
		return c.toks[c.pos]
	}
	return token{kind: tokOp}
}

func (c *cursor) isOp(texts ...string) bool {
	t := c.peek()
	if t.kind != tokOp || t.text == "" {
		return false
	}
	for _, x := range texts {
		if t.text == x {
			return true
		}
	}
	return false
}

func (c *cursor) accept(texts ...string) bool {
	if !c.isOp(texts...) {
		return false
	}
	c.pos++
	return true
}

// deeper counts a level of nesting; every call is followed by a deferred rise.
func (c *cursor) deeper() error {
	if c.depth++; c.depth > maxDepth {
		return errParse
	}
	return nil
}

func (c *cursor) rise() { c.depth-- }

func (c *cursor) done() bool { return c.pos >= len(c.toks) }

// startsFactor tells whether a factor follows without a sign. A number after a number is none.
func (c *cursor) startsFactor() bool {
	t := c.peek()
	switch t.kind {
	case tokSymbol, tokFunc:
		return true
	case tokNumber:
		before := c.toks[c.pos-1]
		return before.kind != tokNumber
	case tokOp:
		return t.text == "lvert" || beginsFactor(t)
	}
	return false
}

// degree reads ^\circ, ^{\circ}, \degree.
func (c *cursor) degree() bool {
	rest := c.toks[c.pos:]
	is := func(want ...string) bool {
		if len(rest) < len(want) {
			return false
		}
		for i, w := range want {
			if rest[i].kind != tokOp || rest[i].text != w {
				return false
			}
		}
		c.pos += len(want)
		return true
	}
	return is("degree") || is("^", "degree") || is("^", "{", "degree", "}")
}

// mixed reads the fraction behind a whole number: of 1 \frac{1}{2}, 1\frac12 and 1 1/2 it makes one number. nil: there is none.
func (c *cursor) mixed(t token) *node {
	if !t.whole {
		return nil
	}
	if c.isOp("frac") {
		if a, b, end := c.wholeFraction(c.pos + 1); a != nil && properFraction(a, b) {
			c.pos = end
			return number(new(big.Rat).Add(t.value, new(big.Rat).Quo(a.value, b.value)))
		}
		return nil
	}
	if c.pos+2 < len(c.toks) && c.toks[c.pos].space && c.toks[c.pos].whole && c.toks[c.pos+1].text == "/" && c.toks[c.pos+2].whole {
		a, b := number(c.toks[c.pos].value), number(c.toks[c.pos+2].value)
		if properFraction(a, b) {
			c.pos += 3
			return number(new(big.Rat).Add(t.value, new(big.Rat).Quo(a.value, b.value)))
		}
	}
	return nil
}

// firstDigit takes the first digit of a number of several; nil where none follows.
func (c *cursor) firstDigit() *node {
	t := c.peek()
	if t.kind != tokNumber || !t.whole || len(t.text) < 2 || strings.Trim(t.text, "0123456789") != "" {
		return nil
	}
	rest, _ := decimal(t.text[1:])
	c.toks[c.pos] = token{kind: tokNumber, text: t.text[1:], value: rest, whole: true}
	return number(big.NewRat(int64(t.text[0]-'0'), 1))
}

// wholeFraction looks for the two whole numbers of {1}{2}, 1{2}, {1}2 or 12, without reading further: an answer of nested fractions
// would be read once more at every level.
func (c *cursor) wholeFraction(at int) (a, b *node, end int) {
	plainNumber := func(i int) bool {
		return i < len(c.toks) && c.toks[i].kind == tokNumber && c.toks[i].whole && strings.Trim(c.toks[i].text, "0123456789") == ""
	}
	braced := func(i int) bool {
		return i+2 < len(c.toks) && c.toks[i].text == "{" && plainNumber(i+1) && c.toks[i+2].text == "}"
	}
	digit := func(i int) bool { return plainNumber(i) && len(c.toks[i].text) == 1 }
	var parts []*node
	for range 2 {
		switch {
		case braced(at):
			parts = append(parts, number(c.toks[at+1].value))
			at += 3
		case digit(at):
			parts = append(parts, number(c.toks[at].value))
			at++
		case len(parts) == 0 && plainNumber(at) && len(c.toks[at].text) == 2:
			text := c.toks[at].text
			return number(big.NewRat(int64(text[0]-'0'), 1)), number(big.NewRat(int64(text[1]-'0'), 1)), at + 1
		default:
			return nil, nil, 0
		}
	}
	return parts[0], parts[1], at
}

// symbol is a variable with its index and primes, or a constant.
func (c *cursor) symbol(t token) (*node, error) {
	if t.text == "mathbb R" {
		infinity := &node{kind: kindSymbol, name: "infty"}
		return interval("(", negate(infinity), infinity, ")"), nil
	}
	n := &node{kind: kindSymbol, name: t.text}
	if c.accept("_") {
		n.name += "_"
		if !c.accept("{") {
			n.name += c.peek().text
			c.pos = min(c.pos+1, len(c.toks))
		} else {
			for c.pos < len(c.toks) && !c.isOp("}") {
				n.name += c.peek().text
				c.pos++
			}
			if !c.accept("}") {
				return nil, errParse
			}
		}
	}
	for c.accept("'") {
		n.name += "'"
	}
	return n, nil
}

// words reads an item that is words alone.
func (c *cursor) words() *node {
	end := c.pos
	var all []string
	for end < len(c.toks) && c.toks[end].kind == tokWord {
		all = append(all, c.toks[end].text)
		end++
	}
	if len(all) == 0 || all[0] == "$" || all[0] == "€" || all[0] == "£" {
		return nil
	}
	if end < len(c.toks) && (c.toks[end].kind != tokOp || !strings.Contains(",)]}=", c.toks[end].text)) {
		return nil
	}
	c.pos = end
	if len(all) == 1 && len(all[0]) == 1 {
		return &node{kind: kindSymbol, name: all[0]}
	}
	return &node{kind: kindText, name: words(strings.Join(all, " "))}
}

// lastWord accepts a word behind which no other one stands: 20 squared is 400, and 20 squared feet are square feet.
func (c *cursor) lastWord(word string) bool {
	t := c.peek()
	if t.kind != tokWord || !strings.EqualFold(t.text, word) || c.pos+1 < len(c.toks) && c.toks[c.pos+1].kind == tokWord {
		return false
	}
	c.pos++
	return true
}

// definition reads f(x) = and returns f.
func (c *cursor) definition() string {
	t := c.toks[c.pos:]
	if len(t) < 6 || t[0].kind != tokSymbol || t[1].text != "(" || t[2].kind != tokSymbol || t[3].text != ")" || t[4].kind != tokOp || t[4].text != "=" {
		return ""
	}
	c.pos += 5
	return t[0].text
}

// valueOf is f(2) where f(2) = follows, of a name that functions have. Empty: it does not.
func (c *cursor) valueOf() string {
	t := c.toks[c.pos:]
	if len(t) < 3 || t[0].kind != tokSymbol || !strings.Contains("fghpqPQ", t[0].text) || t[1].text != "(" {
		return ""
	}
	sign, rest := "", t[2:]
	if rest[0].kind == tokOp && rest[0].text == "-" {
		sign, rest = "-", rest[1:]
	}
	if len(rest) < 3 || rest[0].kind != tokNumber || rest[1].text != ")" || rest[2].kind != tokOp || rest[2].text != "=" {
		return ""
	}
	return t[0].text + "(" + sign + rest[0].value.RatString() + ")"
}
