package mathequal

import (
	"math/big"
)

// primary reads a number, a symbol, a function with its argument, or what stands in brackets.
func (p parser) primary() (*node, error) {
	if err := p.tokens.deeper(); err != nil {
		return nil, err
	}
	defer p.tokens.rise()
	if p.tokens.done() {
		return nil, errParse
	}
	t := p.tokens.toks[p.tokens.pos]
	p.tokens.pos++
	switch t.kind {
	case tokNumber:
		if n := p.tokens.mixed(t); n != nil {
			return n, nil
		}
		if t.whole && p.tokens.accept("_") { // the base of the number: 101_2
			base, err := p.argument(false)
			if err != nil {
				return nil, errParse
			}
			return inBase(t, base)
		}
		return number(t.value), nil
	case tokSymbol:
		return p.tokens.symbol(t)
	case tokFunc:
		return p.function(t.text)
	case tokWord:
		return nil, errParse
	}
	switch t.text {
	case "(", "[":
		return p.group(t.text, ")", "]")
	case "{":
		return p.group("{", "}")
	case `\{`:
		return p.setOf()
	case "emptyset":
		return &node{kind: kindSet}, nil
	case "lvert":
		return p.enclosed("abs", "rvert")
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

// inBase reads the digits of a number in base b.
func inBase(t token, b *node) (*node, error) {
	if b.kind != kindNumber || !b.value.IsInt() || !b.value.Num().IsInt64() || b.value.Num().Int64() < 2 || b.value.Num().Int64() > 10 {
		return nil, errParse
	}
	v, ok := new(big.Int).SetString(t.text, int(b.value.Num().Int64()))
	if !ok {
		return nil, errParse
	}
	return &node{kind: kindBased, args: []*node{number(new(big.Rat).SetInt(v)), number(t.value)}}, nil
}

func properFraction(a, b *node) bool {
	whole := func(n *node) bool { return n.kind == kindNumber && n.value.IsInt() && n.value.Sign() > 0 }
	return whole(a) && whole(b) && a.value.Cmp(b.value) < 0
}

func interval(opening string, from, to *node, closing string) *node {
	return &node{kind: kindTuple, open: opening, close: closing, args: []*node{from, to}}
}

// group reads an expression in brackets, a tuple or an interval, or in plain text a set in braces.
func (p parser) group(opening string, closings ...string) (*node, error) {
	items, err := p.items(closings...)
	closing := p.tokens.peek().text
	if err != nil || !p.tokens.accept(closings...) || len(items) == 0 {
		return nil, errParse
	}
	switch {
	case len(items) == 1 && (opening == "[") == (closing == "]"):
		return items[0], nil
	case opening == "{":
		return &node{kind: kindSet, args: items}, nil
	}
	return &node{kind: kindTuple, open: opening, close: closing, args: items}, nil
}

// setOf reads \{1, 2\} or \{x : x > 2\}.
func (p parser) setOf() (*node, error) {
	items, err := p.items(`\}`, "|", ":")
	if err != nil {
		return nil, err
	}
	if len(items) == 1 && p.tokens.accept("|", ":") {
		conditions, err := p.items(`\}`)
		if err != nil || len(conditions) != 1 || !p.tokens.accept(`\}`) {
			return nil, errParse
		}
		return conditions[0], nil
	}
	if !p.tokens.accept(`\}`) {
		return nil, errParse
	}
	return &node{kind: kindSet, args: items}, nil
}

func (p parser) enclosed(name, closing string) (*node, error) {
	n, err := p.sum()
	if err != nil || !p.tokens.accept(closing) {
		return nil, errParse
	}
	return &node{kind: kindFunc, name: name, args: []*node{n}}, nil
}

// argument reads {…} or one sign; of a number without braces \frac takes one digit.
func (p parser) argument(digit bool) (*node, error) {
	if p.tokens.accept("{") {
		n, err := p.sum()
		if err != nil || !p.tokens.accept("}") {
			return nil, errParse
		}
		return n, nil
	}
	if digit {
		if n := p.tokens.firstDigit(); n != nil {
			return n, nil
		}
	}
	return p.primary()
}

func (p parser) root() (*node, error) {
	index := number(big.NewRat(2, 1))
	if p.tokens.accept("[") {
		n, err := p.sum()
		if err != nil || !p.tokens.accept("]") {
			return nil, errParse
		}
		index = n
	}
	n, err := p.argument(false)
	return &node{kind: kindFunc, name: "root", args: []*node{n, index}}, err
}

// function reads sin x, sin^2 x, sin(x), log_2 8. An exponent of -1 of a trigonometric function is its inverse.
func (p parser) function(name string) (*node, error) {
	n := &node{kind: kindFunc, name: name}
	if p.tokens.accept("_") {
		base, err := p.argument(false)
		if err != nil || name != "log" {
			return nil, errParse
		}
		n.args = []*node{base}
	}
	var exponent *node
	if p.tokens.accept("^") {
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

func (p parser) functionArgument() (*node, error) {
	if p.tokens.isOp("(", "[", "{") {
		n, err := p.primary()
		if err == nil && p.tokens.degree() {
			n = &node{kind: kindDegree, args: []*node{n}}
		}
		return n, err
	}
	n, err := p.power()
	for err == nil && p.tokens.startsFactor() && p.tokens.peek().kind != tokFunc && !p.tokens.isOp("(", "[", "lvert") {
		var m *node
		if m, err = p.power(); err == nil {
			n = &node{kind: kindMul, args: []*node{n, m}}
		}
	}
	if p.tokens.isOp("lvert") { // sin 2|x| is sin(2|x|) to some, and |x| sin 2 to others
		return nil, errParse
	}
	return n, err
}

// matrix reads rows of cells, as a tuple of tuples with brackets of its own; a single row or column as a tuple.
func (p parser) matrix() (*node, error) {
	var rows []*node
	row := &node{kind: kindTuple, open: "(", close: ")"}
	for {
		n, err := p.sum()
		if err != nil || len(row.args)+len(rows) > maxItems {
			return nil, errParse
		}
		row.args = append(row.args, n)
		switch {
		case p.tokens.accept("&"):
			continue
		case p.tokens.accept(`\\`):
			rows = append(rows, row)
			row = &node{kind: kindTuple, open: "(", close: ")"}
			if !p.tokens.isOp("end") {
				continue
			}
		default:
			rows = append(rows, row)
		}
		if !p.tokens.accept("end") {
			return nil, errParse
		}
		return vector(rows), nil
	}
}

func vector(rows []*node) *node {
	out := &node{kind: kindTuple, open: "(", close: ")"}
	for _, r := range rows {
		if len(r.args) != 1 {
			out.args, out.open, out.close = rows, "matrix", "matrix"
			if len(rows) == 1 {
				out = r
			}
			return out
		}
		out.args = append(out.args, r.args[0])
	}
	return out
}
