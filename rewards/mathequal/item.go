package mathequal

import "slices"

// item reads a text, a value, or a chain of relations.
func (p parser) item() (*node, error) {
	if n := p.tokens.words(); n != nil {
		return n, nil
	}
	if name := p.tokens.definition(); name != "" {
		n, err := p.side()
		return &node{kind: kindNamed, name: name, args: []*node{n}}, err
	}
	first, err := p.side()
	if err != nil {
		return nil, err
	}
	sides, ops := []*node{first}, []string{}
	for p.tokens.isOp("=", "<", ">", "<=", ">=", "!=", "in", "approx") {
		ops = append(ops, p.tokens.peek().text)
		p.tokens.pos++
		n, err := p.side()
		if err != nil || len(ops) > maxItems {
			return nil, errParse
		}
		sides = append(sides, n)
	}
	return chain(sides, ops)
}

// side reads a value with its unit.
func (p parser) side() (*node, error) {
	var currency *measure
	if t := p.tokens.peek(); t.kind == tokWord && basicUnit(t.text) != nil && len(t.text) < 4 && !isLetter(t.text[0]) {
		currency = basicUnit(t.text)
		p.tokens.pos++
	}
	n, err := p.union()
	if err != nil {
		return nil, err
	}
	m, err := p.measure()
	if err != nil {
		return nil, err
	}
	if m != nil && len(m.counted) > 0 && !counts(n) { // the letters before a word may be words too: New York, n is even
		return nil, errParse
	}
	if currency != nil {
		m = currency
	}
	if m != nil {
		n = &node{kind: kindQuantity, args: []*node{n}, unit: m}
	}
	return n, nil
}

// counts tells whether a number stands in a value, or a constant that is no single letter.
func counts(n *node) bool {
	switch n.kind {
	case kindNumber:
		return true
	case kindSymbol:
		return constants[n.name] && len(n.name) > 1
	}
	return slices.ContainsFunc(n.args, counts)
}
