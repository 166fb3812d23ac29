package jinja

var constants = map[string]bool{"true": true, "false": true, "True": true, "False": true, "none": true, "None": true}

type tupleOptions struct {
	simplified bool   // only names and literals
	namespace  bool   // name.attr is a reference to a namespace
	cond       bool   // x if y else z is allowed
	end        string // a keyword that ends the tuple
	explicit   bool   // in parentheses, where () is the empty tuple
}

func (p *parser) tuple(o tupleOptions) (node, error) {
	var items []node
	isTuple := false
	for {
		if len(items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if t := p.cur(); t.is(tokVariableEnd) || t.is(tokBlockEnd) || t.is(")") || o.end != "" && t.keyword(o.end) {
			break
		}
		var n node
		var err error
		if o.simplified {
			n, err = p.primary(o.namespace)
		} else {
			n, err = p.expression(o.cond)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, n)
		if !p.cur().is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !o.explicit {
			return nil, p.fail(p.cur().line, "Expected an expression, got %q", describe(p.cur()))
		}
	}
	return &tupleNode{items: items}, nil
}

func (p *parser) expression(cond bool) (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if !cond {
		return p.or()
	}
	line := p.cur().line
	n, err := p.or()
	for chain := 0; err == nil && p.skipKeyword("if"); chain++ {
		if chain > maxChain {
			return nil, p.fail(line, "more than %d conditions", maxChain)
		}
		c := &condNode{yes: n, line: line}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipKeyword("else") {
			if c.no, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		n, line = c, p.cur().line
	}
	return n, err
}

// chain parses left-associative binary operators; next says which operator comes and consumes it.
func (p *parser) chain(operand func() (node, error), next func() string) (node, error) {
	left, err := operand()
	for n := 0; err == nil; n++ {
		op := next()
		if op == "" {
			return left, nil
		}
		if n > maxChain {
			return nil, p.fail(p.cur().line, "more than %d operands", maxChain)
		}
		var right node
		if right, err = operand(); err == nil {
			left = &binNode{op, left, right}
		}
	}
	return nil, err
}

func (p *parser) keywordOperator(name string) func() string {
	return func() string {
		if p.skipKeyword(name) {
			return name
		}
		return ""
	}
}

func (p *parser) operator(kinds ...string) func() string {
	return func() string {
		for _, k := range kinds {
			if p.skipIf(k) {
				return k
			}
		}
		return ""
	}
}

func (p *parser) or() (node, error) { return p.chain(p.and, p.keywordOperator("or")) }

func (p *parser) and() (node, error) { return p.chain(p.not, p.keywordOperator("and")) }

func (p *parser) not() (node, error) {
	if !p.skipKeyword("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	n, err := p.not()
	return &unaryNode{"not", n}, err
}

func (p *parser) compare() (node, error) {
	first, err := p.math1()
	if err != nil {
		return nil, err
	}
	n := &compareNode{first: first}
	for {
		op := p.operator("==", "!=", "<", "<=", ">", ">=")()
		switch {
		case op != "":
		case p.skipKeyword("in"):
			op = "in"
		case p.cur().keyword("not") && p.look().keyword("in"):
			p.next()
			p.next()
			op = "not in"
		case len(n.ops) == 0:
			return first, nil
		default:
			return n, nil
		}
		right, err := p.math1()
		if err != nil {
			return nil, err
		}
		n.ops, n.rest = append(n.ops, op), append(n.rest, right)
	}
}

func (p *parser) math1() (node, error) { return p.chain(p.concat, p.operator("+", "-")) }

func (p *parser) concat() (node, error) {
	first, err := p.math2()
	if err != nil || !p.cur().is("~") {
		return first, err
	}
	n := &concatNode{items: []node{first}}
	for p.skipIf("~") {
		item, err := p.math2()
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func (p *parser) math2() (node, error) { return p.chain(p.pow, p.operator("*", "//", "/", "%")) }

func (p *parser) pow() (node, error) {
	return p.chain(func() (node, error) { return p.unary(true) }, p.operator("**"))
}

func (p *parser) unary(withFilter bool) (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var n node
	var err error
	if op := p.operator("-", "+")(); op != "" {
		n, err = p.unary(false)
		n = &unaryNode{op, n}
	} else {
		n, err = p.primary(false)
	}
	if err == nil {
		n, err = p.postfix(n)
	}
	if err == nil && withFilter {
		n, err = p.filterExpression(n)
	}
	return n, err
}

func (p *parser) primary(namespace bool) (node, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constNode{true}, nil
		case "false", "False":
			return &constNode{false}, nil
		case "none", "None":
			return &constNode{nil}, nil
		}
		if namespace && p.skipIf(".") {
			attr, err := p.expect(tokName)
			if err != nil {
				return nil, err
			}
			return &nsRefNode{t.text, attr.text, t.line}, nil
		}
		return &nameNode{name: t.text, line: t.line}, nil
	case tokString:
		text := t.text
		for p.cur().is(tokString) {
			text += p.next().text
		}
		return &constNode{text}, nil
	case tokInteger, tokFloat:
		return &constNode{t.num}, nil
	case "(":
		n, err := p.tuple(tupleOptions{cond: true, explicit: true})
		if err == nil {
			_, err = p.expect(")")
		}
		return n, err
	case "[":
		items, err := p.list("]", func() (node, error) { return p.expression(true) })
		return &listNode{items}, err
	case "{":
		return p.dict()
	}
	return nil, p.fail(t.line, "unexpected %q", describe(t))
}

// list parses items up to the closing bracket; a comma may follow the last.
func (p *parser) list(end string, item func() (node, error)) ([]node, error) {
	var items []node
	for !p.cur().is(end) {
		if len(items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
			if p.cur().is(end) {
				break
			}
		}
		n, err := item()
		if err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	_, err := p.expect(end)
	return items, err
}

func (p *parser) dict() (node, error) {
	n := &dictNode{}
	_, err := p.list("}", func() (node, error) {
		key, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if _, err := p.expect(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		n.keys, n.values = append(n.keys, key), append(n.values, value)
		return key, err
	})
	return n, err
}

func (p *parser) postfix(n node) (node, error) {
	for chain := 0; ; chain++ {
		var err error
		switch t := p.cur(); {
		case chain > maxChain:
			return nil, p.fail(t.line, "more than %d subscripts", maxChain)
		case t.is(".") || t.is("["):
			n, err = p.subscript(n)
		case t.is("("):
			n, err = p.call(n)
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) filterExpression(n node) (node, error) {
	for chain := 0; ; chain++ {
		var err error
		switch t := p.cur(); {
		case chain > maxChain:
			return nil, p.fail(t.line, "more than %d filters", maxChain)
		case t.is("|"):
			n, err = p.filters(n, false)
		case t.keyword("is"):
			n, err = p.test(n)
		case t.is("("):
			n, err = p.call(n)
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(in node) (node, error) {
	if p.next().kind == "." {
		t := p.next()
		switch t.kind {
		case tokName:
			return &attrNode{in, t.text}, nil
		case tokInteger:
			return &itemNode{in, &constNode{t.num}}, nil
		}
		return nil, p.fail(t.line, "expected name or number")
	}
	// Unlike a list, a[b,] is a tuple of one without the comma's leave: jinja2 asks for another item.
	var items []node
	for !p.cur().is("]") {
		if len(items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		n, err := p.subscribed()
		if err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	if _, err := p.expect("]"); err != nil {
		return nil, err
	}
	if len(items) == 1 {
		return &itemNode{in, items[0]}, nil
	}
	for _, n := range items {
		if _, ok := n.(*sliceNode); ok {
			return nil, refuse(p.cur().line, "[a:b, c]", "a slice inside a tuple is not supported")
		}
	}
	return &itemNode{in, &tupleNode{items: items}}, nil
}

func (p *parser) subscribed() (node, error) {
	s := &sliceNode{}
	var err error
	if !p.cur().is(":") {
		n, err := p.expression(true)
		if err != nil || !p.cur().is(":") {
			return n, err
		}
		s.start = n
	}
	p.next()
	part := func() (node, error) {
		if t := p.cur(); t.is(":") || t.is("]") || t.is(",") {
			return nil, nil
		}
		return p.expression(true)
	}
	if s.stop, err = part(); err == nil && p.skipIf(":") {
		s.step, err = part()
	}
	return s, err
}
