package jinja

var constants = map[string]bool{"true": true, "false": true, "True": true, "False": true, "none": true, "None": true}

// expressionParser reads expressions, from a tuple down to a literal. What stands in brackets is an expression again.
type expressionParser struct{ tokens *cursor }

type tupleOptions struct {
	simplified bool   // only names and literals
	namespace  bool   // name.attr is a reference to a namespace
	cond       bool   // x if y else z is allowed
	end        string // a keyword that ends the tuple
	explicit   bool   // in parentheses, where () is the empty tuple
}

func (p expressionParser) tuple(o tupleOptions) (node, error) {
	var items []node
	isTuple := false
	for {
		if len(items) > 0 {
			if _, err := p.tokens.expect(","); err != nil {
				return nil, err
			}
		}
		if t := p.tokens.cur(); t.is(tokVariableEnd) || t.is(tokBlockEnd) || t.is(")") || o.end != "" && t.keyword(o.end) {
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
		if !p.tokens.cur().is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !o.explicit {
			return nil, syntaxError(p.tokens.cur().line, "Expected an expression, got %q", describe(p.tokens.cur()))
		}
	}
	return &tupleNode{items: items}, nil
}

func (p expressionParser) expression(cond bool) (node, error) {
	if err := p.tokens.enter(); err != nil {
		return nil, err
	}
	defer p.tokens.leave()
	if !cond {
		return p.or()
	}
	line := p.tokens.cur().line
	n, err := p.or()
	for chain := 0; err == nil && p.tokens.skipKeyword("if"); chain++ {
		if chain > maxChain {
			return nil, syntaxError(line, "more than %d conditions", maxChain)
		}
		c := &condNode{yes: n, line: line}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.tokens.skipKeyword("else") {
			if c.no, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		n, line = c, p.tokens.cur().line
	}
	return n, err
}

// chained parses left-associative binary operators, keywords among them.
func chained(tokens *cursor, operand func() (node, error), operators ...string) (node, error) {
	left, err := operand()
	for n := 0; err == nil; n++ {
		op := tokens.skipAny(operators...)
		if op == "" {
			return left, nil
		}
		if n > maxChain {
			return nil, syntaxError(tokens.cur().line, "more than %d operands", maxChain)
		}
		var right node
		if right, err = operand(); err == nil {
			left = &binNode{op, left, right}
		}
	}
	return nil, err
}

func (p expressionParser) or() (node, error) { return chained(p.tokens, p.and, "or") }

func (p expressionParser) and() (node, error) { return chained(p.tokens, p.not, "and") }

func (p expressionParser) not() (node, error) {
	if !p.tokens.skipKeyword("not") {
		return p.compare()
	}
	if err := p.tokens.enter(); err != nil {
		return nil, err
	}
	defer p.tokens.leave()
	n, err := p.not()
	return &unaryNode{"not", n}, err
}

func (p expressionParser) compare() (node, error) {
	first, err := p.math1()
	if err != nil {
		return nil, err
	}
	n := &compareNode{first: first}
	for {
		op := p.tokens.skipAny("==", "!=", "<", "<=", ">", ">=")
		switch {
		case op != "":
		case p.tokens.skipKeyword("in"):
			op = "in"
		case p.tokens.cur().keyword("not") && p.tokens.look().keyword("in"):
			p.tokens.next()
			p.tokens.next()
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

func (p expressionParser) math1() (node, error) { return chained(p.tokens, p.concat, "+", "-") }

func (p expressionParser) concat() (node, error) {
	first, err := p.math2()
	if err != nil || !p.tokens.cur().is("~") {
		return first, err
	}
	n := &concatNode{items: []node{first}}
	for p.tokens.skipIf("~") {
		item, err := p.math2()
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func (p expressionParser) math2() (node, error) { return chained(p.tokens, p.pow, "*", "//", "/", "%") }

func (p expressionParser) pow() (node, error) {
	return chained(p.tokens, func() (node, error) { return p.unary(true) }, "**")
}

func (p expressionParser) unary(withFilter bool) (node, error) {
	if err := p.tokens.enter(); err != nil {
		return nil, err
	}
	defer p.tokens.leave()
	var n node
	var err error
	if op := p.tokens.skipAny("-", "+"); op != "" {
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

func (p expressionParser) primary(namespace bool) (node, error) {
	t := p.tokens.next()
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
		if namespace && p.tokens.skipIf(".") {
			attr, err := p.tokens.expect(tokName)
			if err != nil {
				return nil, err
			}
			return &nsRefNode{t.text, attr.text, t.line}, nil
		}
		return &nameNode{name: t.text, line: t.line}, nil
	case tokString:
		text := t.text
		for p.tokens.cur().is(tokString) {
			text += p.tokens.next().text
		}
		return &constNode{text}, nil
	case tokInteger, tokFloat:
		return &constNode{t.num}, nil
	case "(":
		n, err := p.tuple(tupleOptions{cond: true, explicit: true})
		if err == nil {
			_, err = p.tokens.expect(")")
		}
		return n, err
	case "[":
		items, err := bracketed(p.tokens, "]", func() (node, error) { return p.expression(true) })
		return &listNode{items}, err
	case "{":
		return p.dict()
	}
	return nil, syntaxError(t.line, "unexpected %q", describe(t))
}

// bracketed parses items up to the closing bracket; a comma may follow the last.
func bracketed(tokens *cursor, end string, item func() (node, error)) ([]node, error) {
	var items []node
	for !tokens.cur().is(end) {
		if len(items) > 0 {
			if _, err := tokens.expect(","); err != nil {
				return nil, err
			}
			if tokens.cur().is(end) {
				break
			}
		}
		n, err := item()
		if err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	_, err := tokens.expect(end)
	return items, err
}

func (p expressionParser) dict() (node, error) {
	n := &dictNode{}
	_, err := bracketed(p.tokens, "}", func() (node, error) {
		key, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if _, err := p.tokens.expect(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		n.keys, n.values = append(n.keys, key), append(n.values, value)
		return key, err
	})
	return n, err
}

func (p expressionParser) postfix(n node) (node, error) {
	for chain := 0; ; chain++ {
		var err error
		switch t := p.tokens.cur(); {
		case chain > maxChain:
			return nil, syntaxError(t.line, "more than %d subscripts", maxChain)
		case t.is(".") || t.is("["):
			n, err = p.subscript(n)
		case t.is("("):
			var args callArgs
			args, err = p.callArgs()
			n = &callNode{n, args}
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p expressionParser) filterExpression(n node) (node, error) {
	for chain := 0; ; chain++ {
		var err error
		switch t := p.tokens.cur(); {
		case chain > maxChain:
			return nil, syntaxError(t.line, "more than %d filters", maxChain)
		case t.is("|"):
			n, err = p.filters(n, false)
		case t.keyword("is"):
			n, err = p.test(n)
		case t.is("("):
			var args callArgs
			args, err = p.callArgs()
			n = &callNode{n, args}
		default:
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p expressionParser) subscript(in node) (node, error) {
	if p.tokens.next().kind == "." {
		t := p.tokens.next()
		switch t.kind {
		case tokName:
			return &attrNode{in, t.text}, nil
		case tokInteger:
			return &itemNode{in, &constNode{t.num}}, nil
		}
		return nil, syntaxError(t.line, "expected name or number")
	}
	// Unlike a list, a[b,] is a tuple of one without the comma's leave: jinja2 asks for another item.
	var items []node
	for !p.tokens.cur().is("]") {
		if len(items) > 0 {
			if _, err := p.tokens.expect(","); err != nil {
				return nil, err
			}
		}
		n, err := p.subscribed()
		if err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	if _, err := p.tokens.expect("]"); err != nil {
		return nil, err
	}
	if len(items) == 1 {
		return &itemNode{in, items[0]}, nil
	}
	for _, n := range items {
		if _, ok := n.(*sliceNode); ok {
			return nil, refuse(p.tokens.cur().line, "[a:b, c]", "a slice inside a tuple is not supported")
		}
	}
	return &itemNode{in, &tupleNode{items: items}}, nil
}

func (p expressionParser) subscribed() (node, error) {
	s := &sliceNode{}
	var err error
	if !p.tokens.cur().is(":") {
		n, err := p.expression(true)
		if err != nil || !p.tokens.cur().is(":") {
			return n, err
		}
		s.start = n
	}
	p.tokens.next()
	part := func() (node, error) {
		if t := p.tokens.cur(); t.is(":") || t.is("]") || t.is(",") {
			return nil, nil
		}
		return p.expression(true)
	}
	if s.stop, err = part(); err == nil && p.tokens.skipIf(":") {
		s.step, err = part()
	}
	return s, err
}

func (p expressionParser) callArgs() (a callArgs, err error) {
	open, err := p.tokens.expect("(")
	if err != nil {
		return a, err
	}
	invalid := func(bad bool) bool {
		if bad {
			err = syntaxError(open.line, "invalid syntax for function call expression")
		}
		return bad
	}
	for first := true; !p.tokens.cur().is(")"); first = false {
		if !first {
			if _, err = p.tokens.expect(","); err != nil {
				return a, err
			}
			if p.tokens.cur().is(")") {
				break
			}
		}
		switch t := p.tokens.cur(); {
		case t.is("*"):
			if invalid(a.dynArgs != nil || a.dynKeyArgs != nil) {
				return a, err
			}
			p.tokens.next()
			a.dynArgs, err = p.expression(true)
		case t.is("**"):
			if invalid(a.dynKeyArgs != nil) {
				return a, err
			}
			p.tokens.next()
			a.dynKeyArgs, err = p.expression(true)
		case t.is(tokName) && p.tokens.look().is("="):
			if invalid(a.dynKeyArgs != nil) {
				return a, err
			}
			p.tokens.next()
			p.tokens.next()
			var value node
			value, err = p.expression(true)
			for _, k := range a.keys {
				if k == t.text {
					return a, syntaxError(t.line, "keyword argument repeated: %s", k)
				}
			}
			a.keys, a.values = append(a.keys, t.text), append(a.values, value)
		default:
			if invalid(a.dynArgs != nil || a.dynKeyArgs != nil || len(a.keys) > 0) {
				return a, err
			}
			var arg node
			arg, err = p.expression(true)
			a.args = append(a.args, arg)
		}
		if err != nil {
			return a, err
		}
	}
	_, err = p.tokens.expect(")")
	return a, err
}

// filters parses |a|b; with inline set the first filter has no bar. It returns in when there is none.
func (p expressionParser) filters(in node, inline bool) (node, error) {
	for chain := 0; inline || p.tokens.cur().is("|"); chain++ {
		if chain > maxChain {
			return nil, syntaxError(p.tokens.cur().line, "more than %d filters", maxChain)
		}
		if !inline {
			p.tokens.next()
		}
		inline = false
		f := &filterNode{in: in}
		var err error
		if f.name, f.line, err = p.tokens.dotted(); err != nil {
			return nil, err
		}
		if p.tokens.cur().is("(") {
			if f.callArgs, err = p.callArgs(); err != nil {
				return nil, err
			}
		}
		in = f
	}
	return in, nil
}

func (p expressionParser) test(in node) (node, error) {
	p.tokens.next()
	negated := p.tokens.skipKeyword("not")
	n := &testNode{in: in}
	var err error
	if n.name, n.line, err = p.tokens.dotted(); err != nil {
		return nil, err
	}
	switch t := p.tokens.cur(); {
	case t.is("("):
		n.callArgs, err = p.callArgs()
	case t.keyword("else") || t.keyword("or") || t.keyword("and"):
	case t.keyword("is"):
		return nil, syntaxError(t.line, "You cannot chain multiple tests with is")
	case t.is(tokName) || t.is(tokString) || t.is(tokInteger) || t.is(tokFloat) || t.is("[") || t.is("{"):
		var arg node
		if arg, err = p.primary(false); err == nil {
			arg, err = p.postfix(arg)
		}
		n.args = []node{arg}
	}
	if negated && err == nil {
		return &unaryNode{"not", n}, nil
	}
	return n, err
}
