package mathequal

import (
	"errors"
	"math/big"
)

type nodeKind int

const (
	kindNumber    nodeKind = iota // value
	kindSymbol                    // name
	kindAdd                       // args
	kindMul                       // args
	kindDiv                       // two args
	kindPow                       // two args
	kindNeg                       // an arg
	kindFunc                      // name, args
	kindPlusMinus                 // one or two args; name pm or mp
	kindPercent                   // an arg
	kindDegree                    // an arg
	kindBased                     // args: the value, the digits read in base ten
	kindQuantity                  // an arg with a unit
	kindTuple                     // args between open and close
	kindSet                       // args
	kindList                      // args, without brackets
	kindUnion                     // args
	kindNamed                     // name = arg
	kindRelation                  // args compared by name: = < <= > >= !=
	kindText                      // name
)

type node struct {
	kind        nodeKind
	value       *big.Rat
	name        string
	dense       string // of a whole answer that is text: what it is without white space
	args        []*node
	open, close string
	unit        *measure
	of          *node // what a name stands for that is no symbol, as an expression: A·B for the length AB
	inWords     bool  // the name of kindNamed is words: area = 5
}

// measure is a unit as a product of basic ones, and of words that are no known unit.
type measure struct {
	factor     *big.Rat
	dimensions map[string]int
	counted    []countedWord
}

// countedWord is what a value counts, such as apples, in lower case.
type countedWord struct {
	name  string
	power int
}

var errParse = errors.New("not mathematics")

// parser reads an answer: items between commas, relations, sums, products and what stands in brackets.
type parser struct{ tokens *cursor }

func parse(toks []token) (*node, error) {
	if err := directBars(toks); err != nil {
		return nil, err
	}
	p := parser{&cursor{toks: toks}}
	items, err := p.items("")
	if err != nil || !p.tokens.done() || len(items) == 0 {
		return nil, errParse
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return &node{kind: kindList, args: items}, nil
}

// items reads what stands between commas, up to one of the closing operators.
func (p parser) items(closing ...string) ([]*node, error) {
	if err := p.tokens.deeper(); err != nil {
		return nil, err
	}
	defer p.tokens.rise()
	var out []*node
	for !p.tokens.done() && !p.tokens.isOp(closing...) {
		if len(out) > maxItems {
			return nil, errParse
		}
		n, err := p.item()
		if err != nil {
			return nil, err
		}
		if hasPlusMinus(n) {
			out = append(out, expand(n, true), expand(n, false))
		} else {
			out = append(out, n)
		}
		if !p.tokens.accept(",") {
			break
		}
		p.tokens.accept(",") // ", and"
	}
	return out, nil
}

func (p parser) union() (*node, error) {
	n, err := p.sum()
	if err != nil || !p.tokens.isOp("cup") {
		return n, err
	}
	out := &node{kind: kindUnion, args: []*node{n}}
	for p.tokens.accept("cup") {
		n, err := p.sum()
		if err != nil || len(out.args) > maxItems {
			return nil, errParse
		}
		out.args = append(out.args, n)
	}
	return out, nil
}

func (p parser) sum() (*node, error) {
	if err := p.tokens.deeper(); err != nil {
		return nil, err
	}
	defer p.tokens.rise()
	n, err := p.product()
	if err != nil {
		return nil, err
	}
	for {
		op := p.tokens.peek().text
		if !p.tokens.accept("+", "-", "pm", "mp") {
			return n, nil
		}
		m, err := p.product()
		if err != nil {
			return nil, err
		}
		switch op {
		case "+":
			n = &node{kind: kindAdd, args: []*node{n, m}}
		case "-":
			n = &node{kind: kindAdd, args: []*node{n, negate(m)}}
		default:
			n = &node{kind: kindPlusMinus, name: op, args: []*node{n, m}}
		}
	}
}

// product reads factors with signs between them or side by side. A percent or degree sign at
// the end of factors without signs is that of all of them.
func (p parser) product() (*node, error) {
	n, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		var m *node
		sign := p.tokens.isOp("*") // 100 · 10% is 10; 5√2 % is the percentage 5√2
		switch {
		case p.tokens.accept("*"):
			m, err = p.unary()
		case p.tokens.accept("/"):
			if m, err = p.unary(); err == nil {
				n = &node{kind: kindDiv, args: []*node{n, m}}
				continue
			}
		case p.tokens.startsFactor():
			m, err = p.power()
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
		if k := m.kind; !sign && (k == kindPercent || k == kindDegree) {
			n = &node{kind: k, args: []*node{{kind: kindMul, args: []*node{n, m.args[0]}}}}
			continue
		}
		n = &node{kind: kindMul, args: []*node{n, m}}
	}
}

func (p parser) unary() (*node, error) {
	if err := p.tokens.deeper(); err != nil {
		return nil, err
	}
	defer p.tokens.rise()
	switch {
	case p.tokens.accept("-"):
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	case p.tokens.accept("+"):
		return p.unary()
	case p.tokens.isOp("pm", "mp"):
		name := p.tokens.peek().text
		p.tokens.pos++
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return &node{kind: kindPlusMinus, name: name, args: []*node{n}}, nil
	}
	return p.power()
}

func negate(n *node) *node {
	switch n.kind {
	case kindNumber:
		return number(new(big.Rat).Neg(n.value))
	case kindPercent, kindDegree:
		return &node{kind: n.kind, args: []*node{negate(n.args[0])}}
	}
	return &node{kind: kindNeg, args: []*node{n}}
}

func number(v *big.Rat) *node { return &node{kind: kindNumber, value: v} }

// power reads a factor with what stands behind it: ! % ° and an exponent, also in words.
func (p parser) power() (*node, error) {
	n, err := p.primary()
	for err == nil {
		switch {
		case p.tokens.accept("!"):
			if !p.tokens.accept("!") {
				n = &node{kind: kindFunc, name: "factorial", args: []*node{n}}
			} else if n = doubleFactorial(n); n == nil || p.tokens.isOp("!") {
				return nil, errParse
			}
		case p.tokens.lastWord("factorial"):
			n = &node{kind: kindFunc, name: "factorial", args: []*node{n}}
		case p.tokens.accept("%"):
			n = &node{kind: kindPercent, args: []*node{n}}
		case p.tokens.lastWord("squared"):
			n = raise(n, number(big.NewRat(2, 1)))
		case p.tokens.lastWord("cubed"):
			n = raise(n, number(big.NewRat(3, 1)))
		case p.tokens.degree():
			n = &node{kind: kindDegree, args: []*node{n}}
		case p.tokens.accept("^"):
			var e *node
			if e, err = p.exponent(); err == nil {
				n = raise(n, e)
			}
		default:
			return n, nil
		}
	}
	return nil, err
}

// doubleFactorial is n!! = n(n-2)(n-4)… of a number; nil where it is another expression or too large, which is text then.
func doubleFactorial(n *node) *node {
	if n.kind != kindNumber || !n.value.IsInt() || n.value.Sign() < 0 || n.value.Cmp(big.NewRat(maxDigits, 1)) > 0 {
		return nil
	}
	product := big.NewInt(1)
	for k := n.value.Num().Int64(); k > 1; k -= 2 {
		product.Mul(product, big.NewInt(k))
	}
	return number(new(big.Rat).SetInt(product))
}

// raise makes a power; -3 to the power of two, as it stands, is the negative of a square only with a sign before it, which unary reads.
func raise(n, e *node) *node { return &node{kind: kindPow, args: []*node{n, e}} }

func (p parser) exponent() (*node, error) {
	if err := p.tokens.deeper(); err != nil {
		return nil, err
	}
	defer p.tokens.rise()
	if p.tokens.accept("-") {
		n, err := p.exponent()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	}
	n, err := p.primary()
	if err == nil && p.tokens.accept("^") { // a tower is read from the right
		var e *node
		if e, err = p.exponent(); err == nil {
			n = raise(n, e)
		}
	}
	return n, err
}
