package mathequal

import "strings"

// item reads a text, a value, or a chain of relations.
func (p *parser) item() (*node, error) {
	if n := p.words(); n != nil {
		return n, nil
	}
	if name := p.definition(); name != "" {
		n, err := p.side()
		return &node{kind: kindNamed, name: name, args: []*node{n}}, err
	}
	first, err := p.side()
	if err != nil {
		return nil, err
	}
	sides, ops := []*node{first}, []string{}
	for p.isOp("=", "<", ">", "<=", ">=", "!=", "in", "approx") {
		ops = append(ops, p.peek().text)
		p.pos++
		n, err := p.side()
		if err != nil || len(ops) > maxItems {
			return nil, errParse
		}
		sides = append(sides, n)
	}
	return chain(sides, ops)
}

// words reads an item that is words alone.
func (p *parser) words() *node {
	end := p.pos
	var all []string
	for end < len(p.toks) && p.toks[end].kind == tokWord {
		all = append(all, p.toks[end].text)
		end++
	}
	if len(all) == 0 || all[0] == "$" || all[0] == "€" || all[0] == "£" {
		return nil
	}
	if end < len(p.toks) && (p.toks[end].kind != tokOp || !strings.Contains(",)]}", p.toks[end].text)) {
		return nil
	}
	p.pos = end
	if len(all) == 1 && len(all[0]) == 1 {
		return &node{kind: kindSymbol, name: all[0]}
	}
	return &node{kind: kindText, name: words(strings.Join(all, " "))}
}

// definition reads f(x) = and returns f.
func (p *parser) definition() string {
	t := p.toks[p.pos:]
	if len(t) < 6 || t[0].kind != tokSymbol || t[1].text != "(" || t[2].kind != tokSymbol || t[3].text != ")" || t[4].kind != tokOp || t[4].text != "=" {
		return ""
	}
	p.pos += 5
	return t[0].text
}

// side reads a value with its unit.
func (p *parser) side() (*node, error) {
	var currency *measure
	if t := p.peek(); t.kind == tokWord && basicUnit(t.text) != nil && len(t.text) < 4 && !isLetter(t.text[0]) {
		currency = basicUnit(t.text)
		p.pos++
	}
	n, err := p.union()
	if err != nil {
		return nil, err
	}
	m, err := p.measure()
	if err != nil {
		return nil, err
	}
	if currency != nil {
		m = currency
	}
	if m != nil {
		n = &node{kind: kindQuantity, args: []*node{n}, unit: m}
	}
	return n, nil
}
