package mathequal

import (
	"math/big"
	"strings"
)

// primary reads a number, a symbol, a function with its argument, or what stands in brackets.
func (p *parser) primary() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if p.pos == len(p.toks) {
		return nil, errParse
	}
	t := p.toks[p.pos]
	p.pos++
	switch t.kind {
	case tokNumber:
		return p.numberNode(t)
	case tokSymbol:
		return p.symbol(t)
	case tokFunc:
		return p.function(t.text)
	case tokWord:
		return nil, errParse
	}
	switch t.text {
	case "(", "[":
		return p.brackets(t.text)
	case "{":
		return p.braces("}")
	case `\{`:
		return p.setOf()
	case "emptyset":
		return &node{kind: kindSet}, nil
	case "|":
		return p.enclosed("abs", "|")
	case "lfloor":
		return p.enclosed("floor", "rfloor")
	case "lceil":
		return p.enclosed("ceil", "rceil")
	case "frac", "binom":
		a, err := p.argument(true)
		if err != nil {
			return nil, err
		}
		b, err := p.argument(true)
		if err != nil {
			return nil, err
		}
		if t.text == "frac" {
			return &node{kind: kindDiv, args: []*node{a, b}}, nil
		}
		return &node{kind: kindFunc, name: "binom", args: []*node{a, b}}, nil
	case "sqrt":
		return p.root()
	case "begin":
		return p.matrix()
	}
	return nil, errParse
}

// numberNode is a number, a mixed number, or one in another base.
func (p *parser) numberNode(t token) (*node, error) {
	n := number(t.value)
	switch {
	case t.whole && p.isOp("frac"):
		if a, b, end := p.wholeFraction(p.pos + 1); a != nil && properFraction(a, b) {
			p.pos = end
			return number(new(big.Rat).Add(t.value, new(big.Rat).Quo(a.value, b.value))), nil
		}
	case t.whole && p.pos+2 < len(p.toks) && p.toks[p.pos].space && p.toks[p.pos].whole && p.toks[p.pos+1].text == "/" && p.toks[p.pos+2].whole:
		a, b := number(p.toks[p.pos].value), number(p.toks[p.pos+2].value)
		if properFraction(a, b) {
			p.pos += 3
			return number(new(big.Rat).Add(t.value, new(big.Rat).Quo(a.value, b.value))), nil
		}
	case t.whole && p.isOp("_"):
		return p.based(t)
	}
	return n, nil
}

// wholeFraction looks for the two whole numbers of {1}{2}, 1{2}, {1}2 or 12, without reading further: an answer of nested fractions
// would be read once more at every level.
func (p *parser) wholeFraction(at int) (a, b *node, end int) {
	plainNumber := func(i int) bool {
		return i < len(p.toks) && p.toks[i].kind == tokNumber && p.toks[i].whole && strings.Trim(p.toks[i].text, "0123456789") == ""
	}
	braced := func(i int) bool {
		return i+2 < len(p.toks) && p.toks[i].text == "{" && plainNumber(i+1) && p.toks[i+2].text == "}"
	}
	digit := func(i int) bool { return plainNumber(i) && len(p.toks[i].text) == 1 }
	var parts []*node
	for range 2 {
		switch {
		case braced(at):
			parts = append(parts, number(p.toks[at+1].value))
			at += 3
		case digit(at):
			parts = append(parts, number(p.toks[at].value))
			at++
		case len(parts) == 0 && plainNumber(at) && len(p.toks[at].text) == 2:
			text := p.toks[at].text
			return number(big.NewRat(int64(text[0]-'0'), 1)), number(big.NewRat(int64(text[1]-'0'), 1)), at + 1
		default:
			return nil, nil, 0
		}
	}
	return parts[0], parts[1], at
}

func properFraction(a, b *node) bool {
	whole := func(n *node) bool { return n.kind == kindNumber && n.value.IsInt() && n.value.Sign() > 0 }
	return whole(a) && whole(b) && a.value.Cmp(b.value) < 0
}

// based reads the base after a number: 101_2.
func (p *parser) based(t token) (*node, error) {
	p.pos++
	b, err := p.argument(false)
	if err != nil || b.kind != kindNumber || !b.value.IsInt() || !b.value.Num().IsInt64() || b.value.Num().Int64() < 2 || b.value.Num().Int64() > 10 {
		return nil, errParse
	}
	v, ok := new(big.Int).SetString(t.text, int(b.value.Num().Int64()))
	if !ok {
		return nil, errParse
	}
	return &node{kind: kindBased, args: []*node{number(new(big.Rat).SetInt(v)), number(t.value)}}, nil
}

// symbol is a variable with its index and primes, or a constant.
func (p *parser) symbol(t token) (*node, error) {
	if t.text == "mathbb R" {
		infinity := &node{kind: kindSymbol, name: "infty"}
		return interval("(", negate(infinity), infinity, ")"), nil
	}
	n := &node{kind: kindSymbol, name: t.text}
	if p.accept("_") {
		n.name += "_"
		if !p.accept("{") {
			n.name += p.peek().text
			p.pos = min(p.pos+1, len(p.toks))
		} else {
			for p.pos < len(p.toks) && !p.isOp("}") {
				n.name += p.peek().text
				p.pos++
			}
			if !p.accept("}") {
				return nil, errParse
			}
		}
	}
	for p.accept("'") {
		n.name += "'"
	}
	return n, nil
}

func interval(opening string, from, to *node, closing string) *node {
	return &node{kind: kindTuple, open: opening, close: closing, args: []*node{from, to}}
}

// brackets reads a group, a tuple or an interval.
func (p *parser) brackets(opening string) (*node, error) {
	items, err := p.items(")", "]")
	if err != nil || len(items) == 0 {
		return nil, errParse
	}
	closing := p.peek().text
	if !p.accept(")", "]") {
		return nil, errParse
	}
	if len(items) == 1 && (opening == "(") == (closing == ")") {
		return items[0], nil
	}
	return &node{kind: kindTuple, open: opening, close: closing, args: items}, nil
}

// braces reads a group, or in plain text a set.
func (p *parser) braces(closing string) (*node, error) {
	items, err := p.items(closing)
	if err != nil || !p.accept(closing) || len(items) == 0 {
		return nil, errParse
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return &node{kind: kindSet, args: items}, nil
}

// setOf reads \{1, 2\} or \{x : x > 2\}.
func (p *parser) setOf() (*node, error) {
	items, err := p.items(`\}`, "|", ":")
	if err != nil {
		return nil, err
	}
	if len(items) == 1 && p.accept("|", ":") {
		conditions, err := p.items(`\}`)
		if err != nil || len(conditions) != 1 || !p.accept(`\}`) {
			return nil, errParse
		}
		return conditions[0], nil
	}
	if !p.accept(`\}`) {
		return nil, errParse
	}
	return &node{kind: kindSet, args: items}, nil
}

func (p *parser) enclosed(name, closing string) (*node, error) {
	n, err := p.sum()
	if err != nil || !p.accept(closing) {
		return nil, errParse
	}
	return &node{kind: kindFunc, name: name, args: []*node{n}}, nil
}

// argument reads {…} or one sign; of a number without braces \frac takes one digit.
func (p *parser) argument(digit bool) (*node, error) {
	if p.accept("{") {
		n, err := p.sum()
		if err != nil || !p.accept("}") {
			return nil, errParse
		}
		return n, nil
	}
	if t := p.peek(); digit && t.kind == tokNumber && t.whole && len(t.text) > 1 && strings.Trim(t.text, "0123456789") == "" {
		rest, _ := decimal(t.text[1:])
		p.toks[p.pos] = token{kind: tokNumber, text: t.text[1:], value: rest, whole: true}
		return number(big.NewRat(int64(t.text[0]-'0'), 1)), nil
	}
	return p.primary()
}

func (p *parser) root() (*node, error) {
	index := number(big.NewRat(2, 1))
	if p.accept("[") {
		n, err := p.sum()
		if err != nil || !p.accept("]") {
			return nil, errParse
		}
		index = n
	}
	n, err := p.argument(false)
	return &node{kind: kindFunc, name: "root", args: []*node{n, index}}, err
}

// function reads sin x, sin^2 x, sin(x), log_2 8. An exponent of -1 of a trigonometric function is its inverse.
func (p *parser) function(name string) (*node, error) {
	n := &node{kind: kindFunc, name: name}
	if p.accept("_") {
		base, err := p.argument(false)
		if err != nil || name != "log" {
			return nil, errParse
		}
		n.args = []*node{base}
	}
	var exponent *node
	if p.accept("^") {
		var err error
		if exponent, err = p.exponent(); err != nil {
			return nil, err
		}
		if exponent.kind == kindNumber && exponent.value.Cmp(big.NewRat(-1, 1)) == 0 && (name == "sin" || name == "cos" || name == "tan") {
			n.name, exponent = "arc"+name, nil
		}
	}
	arg, err := p.functionArgument()
	if err != nil {
		return nil, err
	}
	n.args = append([]*node{arg}, n.args...)
	if exponent != nil {
		return raise(n, exponent), nil
	}
	return n, nil
}

func (p *parser) functionArgument() (*node, error) {
	if p.isOp("(", "[", "{") {
		n, err := p.primary()
		if err == nil && p.degree() {
			n = &node{kind: kindDegree, args: []*node{n}}
		}
		return n, err
	}
	n, err := p.power()
	for err == nil && p.startsFactor() && p.peek().kind != tokFunc && !p.isOp("(", "[") {
		var m *node
		if m, err = p.power(); err == nil {
			n = &node{kind: kindMul, args: []*node{n, m}}
		}
	}
	return n, err
}

// matrix reads rows of cells, as a tuple of tuples; a single row or column as a tuple.
func (p *parser) matrix() (*node, error) {
	var rows []*node
	row := &node{kind: kindTuple, open: "(", close: ")"}
	for {
		n, err := p.sum()
		if err != nil || len(row.args)+len(rows) > maxItems {
			return nil, errParse
		}
		row.args = append(row.args, n)
		switch {
		case p.accept("&"):
			continue
		case p.accept(`\\`):
			rows = append(rows, row)
			row = &node{kind: kindTuple, open: "(", close: ")"}
			if !p.isOp("end") {
				continue
			}
		default:
			rows = append(rows, row)
		}
		if !p.accept("end") {
			return nil, errParse
		}
		return vector(rows), nil
	}
}

func vector(rows []*node) *node {
	out := &node{kind: kindTuple, open: "(", close: ")"}
	for _, r := range rows {
		if len(r.args) != 1 {
			out.args = rows
			if len(rows) == 1 {
				out = r
			}
			return out
		}
		out.args = append(out.args, r.args[0])
	}
	return out
}
