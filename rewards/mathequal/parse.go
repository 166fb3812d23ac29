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
	args        []*node
	open, close string
	unit        *measure
}

// measure is a unit as a product of basic ones.
type measure struct {
	factor     *big.Rat // nil: the words are not known
	dimensions map[string]int
}

var errParse = errors.New("not mathematics")

type parser struct {
	toks  []token
	pos   int
	depth int
}

func parse(toks []token) (*node, error) {
	p := &parser{toks: toks}
	items, err := p.items("")
	if err != nil || p.pos < len(p.toks) || len(items) == 0 {
		return nil, errParse
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return &node{kind: kindList, args: items}, nil
}

func (p *parser) peek() token {
	if p.pos < len(p.toks) {
		return p.toks[p.pos]
	}
	return token{kind: tokOp}
}

func (p *parser) isOp(texts ...string) bool {
	t := p.peek()
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

func (p *parser) accept(texts ...string) bool {
	if !p.isOp(texts...) {
		return false
	}
	p.pos++
	return true
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return errParse
	}
	return nil
}

// items reads what stands between commas, up to one of the closing operators.
func (p *parser) items(closing ...string) ([]*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var out []*node
	for p.pos < len(p.toks) && !p.isOp(closing...) {
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
		if !p.accept(",") {
			break
		}
		p.accept(",") // ", and"
	}
	return out, nil
}

func (p *parser) union() (*node, error) {
	n, err := p.sum()
	if err != nil || !p.isOp("cup") {
		return n, err
	}
	out := &node{kind: kindUnion, args: []*node{n}}
	for p.accept("cup") {
		n, err := p.sum()
		if err != nil || len(out.args) > maxItems {
			return nil, errParse
		}
		out.args = append(out.args, n)
	}
	return out, nil
}

func (p *parser) sum() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	n, err := p.product()
	if err != nil {
		return nil, err
	}
	for {
		op := p.peek().text
		if !p.accept("+", "-", "pm", "mp") {
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

// product reads factors with signs between them or side by side. A percent or degree sign at its end is that of the product.
func (p *parser) product() (*node, error) {
	n, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		var m *node
		switch {
		case p.accept("*"):
			m, err = p.unary()
		case p.accept("/"):
			if m, err = p.unary(); err == nil {
				n = &node{kind: kindDiv, args: []*node{n, m}}
				continue
			}
		case p.startsFactor():
			m, err = p.power()
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
		if k := m.kind; k == kindPercent || k == kindDegree {
			n = &node{kind: k, args: []*node{{kind: kindMul, args: []*node{n, m.args[0]}}}}
			continue
		}
		n = &node{kind: kindMul, args: []*node{n, m}}
	}
}

// startsFactor tells whether a factor follows without a sign. A number after a number is none.
func (p *parser) startsFactor() bool {
	t := p.peek()
	switch t.kind {
	case tokSymbol, tokFunc:
		return true
	case tokNumber:
		before := p.toks[p.pos-1]
		return before.kind != tokNumber
	case tokOp:
		return p.isOp("(", "[", "{", "frac", "sqrt", "binom", "lfloor", "lceil")
	}
	return false
}

func (p *parser) unary() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("-"):
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	case p.accept("+"):
		return p.unary()
	case p.isOp("pm", "mp"):
		name := p.peek().text
		p.pos++
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

// power reads a factor with what stands behind it: ! % ° and an exponent.
func (p *parser) power() (*node, error) {
	n, err := p.primary()
	for err == nil {
		switch {
		case p.accept("!"):
			n = &node{kind: kindFunc, name: "factorial", args: []*node{n}}
		case p.accept("%"):
			n = &node{kind: kindPercent, args: []*node{n}}
		case p.degree():
			n = &node{kind: kindDegree, args: []*node{n}}
		case p.accept("^"):
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

// raise makes a power; -3 to the power of two, as it stands, is the negative of a square only with a sign before it, which unary reads.
func raise(n, e *node) *node { return &node{kind: kindPow, args: []*node{n, e}} }

// degree reads ^\circ, ^{\circ}, \degree.
func (p *parser) degree() bool {
	rest := p.toks[p.pos:]
	is := func(want ...string) bool {
		if len(rest) < len(want) {
			return false
		}
		for i, w := range want {
			if rest[i].kind != tokOp || rest[i].text != w {
				return false
			}
		}
		p.pos += len(want)
		return true
	}
	return is("degree") || is("^", "degree") || is("^", "{", "degree", "}")
}

func (p *parser) exponent() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if p.accept("-") {
		n, err := p.exponent()
		if err != nil {
			return nil, err
		}
		return negate(n), nil
	}
	n, err := p.primary()
	if err == nil && p.accept("^") { // a tower is read from the right
		var e *node
		if e, err = p.exponent(); err == nil {
			n = raise(n, e)
		}
	}
	return n, err
}
