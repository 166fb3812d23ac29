package mathequal

import "slices"

// item reads a text, a value, or a chain of relations.
func (p parser) item() (*node, error) {
	p.tokens.accept("approx")
	first := p.tokens.words()
	if first != nil && !p.tokens.isOp("=") {
		return first, nil
	}
	if name := p.tokens.definition(); name != "" {
		n, err := p.side()
		return &node{kind: kindNamed, name: name, args: []*node{n}}, err
	}
	if first == nil {
		value := p.tokens.valueOf()
		var err error
		if first, err = p.side(); err != nil {
			return nil, err
		}
		if value != "" {
			first = &node{kind: kindSymbol, name: value, of: first}
		}
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
	inText := p.tokens.peek().inText
	m, err := p.measure()
	if err != nil {
		return nil, err
	}
	if m != nil && len(m.counted) > 0 {
		if bare := letters(n); bare && !inText || (bare || !constant(n)) && slices.ContainsFunc(m.counted, says) {
			return nil, errParse
		}
	}
	if currency != nil {
		m = currency
	}
	if m != nil {
		n = &node{kind: kindQuantity, args: []*node{n}, unit: m}
	}
	return n, nil
}

// letters tells whether a value is bare letters, which before a word may be a word too: the a of a cat.
func letters(n *node) bool {
	switch n.kind {
	case kindSymbol:
		return len(n.name) == 1
	case kindMul:
		return letters(n.args[0]) && letters(n.args[1])
	}
	return false
}

// says tells whether a word says something of the letters before it rather than what they count: n is even.
func says(w countedWord) bool { return statements[w.name] }
