package template

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

func (p *parser) or() (node, error)  { return p.chain(p.and, p.keywordOperator("or")) }
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

func (p *parser) callArgs() (a callArgs, err error) {
	open, err := p.expect("(")
	if err != nil {
		return a, err
	}
	invalid := func(bad bool) bool {
		if bad {
			err = p.fail(open.line, "invalid syntax for function call expression")
		}
		return bad
	}
	for first := true; !p.cur().is(")"); first = false {
		if !first {
			if _, err = p.expect(","); err != nil {
				return a, err
			}
			if p.cur().is(")") {
				break
			}
		}
		switch t := p.cur(); {
		case t.is("*"):
			if invalid(a.dynArgs != nil || a.dynKeyArgs != nil) {
				return a, err
			}
			p.next()
			a.dynArgs, err = p.expression(true)
		case t.is("**"):
			if invalid(a.dynKeyArgs != nil) {
				return a, err
			}
			p.next()
			a.dynKeyArgs, err = p.expression(true)
		case t.is(tokName) && p.look().is("="):
			if invalid(a.dynKeyArgs != nil) {
				return a, err
			}
			p.next()
			p.next()
			var value node
			value, err = p.expression(true)
			for _, k := range a.keys {
				if k == t.text {
					return a, p.fail(t.line, "keyword argument repeated: %s", k)
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
	_, err = p.expect(")")
	return a, err
}

func (p *parser) call(fn node) (node, error) {
	args, err := p.callArgs()
	return &callNode{fn, args}, err
}

// dotted parses the name of a filter or test.
func (p *parser) dotted() (string, int, error) {
	t, err := p.expect(tokName)
	if err != nil {
		return "", 0, err
	}
	name := t.text
	for p.skipIf(".") {
		part, err := p.expect(tokName)
		if err != nil {
			return "", 0, err
		}
		name += "." + part.text
	}
	return name, t.line, nil
}

// filters parses |a|b; with inline set the first filter has no bar. It returns in when there is none.
func (p *parser) filters(in node, inline bool) (node, error) {
	for chain := 0; inline || p.cur().is("|"); chain++ {
		if chain > maxChain {
			return nil, p.fail(p.cur().line, "more than %d filters", maxChain)
		}
		if !inline {
			p.next()
		}
		inline = false
		f := &filterNode{in: in}
		var err error
		if f.name, f.line, err = p.dotted(); err != nil {
			return nil, err
		}
		if p.cur().is("(") {
			if f.callArgs, err = p.callArgs(); err != nil {
				return nil, err
			}
		}
		in = f
	}
	return in, nil
}

func (p *parser) test(in node) (node, error) {
	p.next()
	negated := p.skipKeyword("not")
	n := &testNode{in: in}
	var err error
	if n.name, n.line, err = p.dotted(); err != nil {
		return nil, err
	}
	switch t := p.cur(); {
	case t.is("("):
		n.callArgs, err = p.callArgs()
	case t.keyword("else") || t.keyword("or") || t.keyword("and"):
	case t.keyword("is"):
		return nil, p.fail(t.line, "You cannot chain multiple tests with is")
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
