package jinja

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
