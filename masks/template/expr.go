package template

import (
	"fmt"
	"strings"
)

func (c *compiler) expr(n node, sc *scope) (evalFn, error) {
	switch n := n.(type) {
	case *constNode:
		return func(*state) (any, error) { return n.val, nil }, nil
	case *dataNode:
		return func(*state) (any, error) { return n.text, nil }, nil
	case *nameNode:
		return c.name(n, sc)
	case *listNode:
		items, err := c.exprs(n.items, sc)
		return func(s *state) (any, error) {
			vals, err := evalAll(s, items)
			return &list{vals}, err
		}, err
	case *tupleNode:
		items, err := c.exprs(n.items, sc)
		return func(s *state) (any, error) {
			vals, err := evalAll(s, items)
			return tuple(vals), err
		}, err
	case *dictNode:
		return c.dict(n, sc)
	case *condNode:
		return c.cond(n, sc)
	case *filterNode:
		in, err := c.expr(n.in, sc)
		if err != nil {
			return nil, err
		}
		return c.applyFilter(n, sc, in)
	case *testNode:
		return c.test(n, sc)
	case *callNode:
		return c.call(n, sc, nil)
	case *attrNode:
		in, err := c.expr(n.in, sc)
		return func(s *state) (any, error) {
			v, err := in(s)
			if err != nil {
				return nil, err
			}
			if err := s.step(); err != nil {
				return nil, err
			}
			return getAttr(s.machine, v, n.attr)
		}, err
	case *itemNode:
		return c.item(n, sc)
	case *concatNode:
		return c.concat(n, sc)
	case *compareNode:
		return c.compare(n, sc)
	case *binNode:
		return c.binary(n, sc)
	case *unaryNode:
		in, err := c.expr(n.in, sc)
		return func(s *state) (any, error) {
			v, err := in(s)
			if err != nil {
				return nil, err
			}
			if n.op == "not" {
				return !truth(v), nil
			}
			return unaryMath(n.op, v)
		}, err
	}
	return nil, fmt.Errorf("template: unknown expression %T", n)
}

func (c *compiler) exprs(nodes []node, sc *scope) ([]evalFn, error) {
	out := make([]evalFn, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = c.expr(n, sc); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func evalAll(s *state, fns []evalFn) ([]any, error) {
	if err := s.charge(16 * len(fns)); err != nil {
		return nil, err
	}
	out := make([]any, len(fns))
	for i, fn := range fns {
		var err error
		if out[i], err = fn(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *compiler) name(n *nameNode, sc *scope) (evalFn, error) {
	v, err := sc.variable(n.name)
	if err != nil {
		return nil, err
	}
	return func(s *state) (any, error) {
		if val := *s.act.at(v); val != missing {
			return val, nil
		}
		return undefinedName(n.name), nil
	}, nil
}

func (c *compiler) dict(n *dictNode, sc *scope) (evalFn, error) {
	keys, err := c.exprs(n.keys, sc)
	if err != nil {
		return nil, err
	}
	values, err := c.exprs(n.values, sc)
	return func(s *state) (any, error) {
		d := newDict()
		for i := range keys {
			k, err := keys[i](s)
			if err != nil {
				return nil, err
			}
			v, err := values[i](s)
			if err != nil {
				return nil, err
			}
			if err := d.set(k, v); err != nil {
				return nil, err
			}
		}
		return d, s.charge(64 * len(keys))
	}, err
}

func (c *compiler) cond(n *condNode, sc *scope) (evalFn, error) {
	soft := sc.branch()
	test, err := c.expr(n.test, soft)
	if err != nil {
		return nil, err
	}
	yes, err := c.expr(n.yes, soft)
	if err != nil {
		return nil, err
	}
	no := func(*state) (any, error) {
		return undefinedHint(fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.line)), nil
	}
	if n.no != nil {
		if no, err = c.expr(n.no, soft); err != nil {
			return nil, err
		}
	}
	return func(s *state) (any, error) {
		v, err := test(s)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			return yes(s)
		}
		return no(s)
	}, nil
}

// arguments compiles the arguments of a call.
func (c *compiler) arguments(a *callArgs, sc *scope) (func(*state) (arguments, error), error) {
	pos, err := c.exprs(a.args, sc)
	if err != nil {
		return nil, err
	}
	vals, err := c.exprs(a.values, sc)
	if err != nil {
		return nil, err
	}
	var dyn [2]evalFn
	for i, n := range []node{a.dynArgs, a.dynKeyArgs} {
		if n == nil {
			continue
		}
		if dyn[i], err = c.expr(n, sc); err != nil {
			return nil, err
		}
	}
	return func(s *state) (out arguments, err error) {
		if out.pos, err = evalAll(s, pos); err != nil {
			return out, err
		}
		if out.vals, err = evalAll(s, vals); err != nil {
			return out, err
		}
		out.keys = append([]string(nil), a.keys...)
		if dyn[0] != nil {
			v, err := dyn[0](s)
			if err != nil {
				return out, err
			}
			more, err := collect(s.machine, v)
			if err != nil {
				return out, err
			}
			out.pos = append(out.pos, more...)
		}
		if dyn[1] != nil {
			v, err := dyn[1](s)
			if err != nil {
				return out, err
			}
			return out, out.addKeys(v)
		}
		return out, nil
	}, nil
}

func (a *arguments) addKeys(v any) error {
	d, ok := v.(*dict)
	if !ok {
		return typeError("argument after ** must be a mapping, not %s", typeName(v))
	}
	for i, k := range d.keys {
		key, ok := text(k)
		if !ok {
			return typeError("keywords must be strings")
		}
		for _, have := range a.keys {
			if have == key {
				return typeError("got multiple values for keyword argument '%s'", key)
			}
		}
		a.keys, a.vals = append(a.keys, key), append(a.vals, d.vals[i])
	}
	return nil
}

// filterOn compiles a chain of filters whose innermost input is given.
func (c *compiler) filterOn(n *filterNode, sc *scope, input evalFn) (evalFn, error) {
	if inner, ok := n.in.(*filterNode); ok {
		var err error
		if input, err = c.filterOn(inner, sc, input); err != nil {
			return nil, err
		}
	}
	return c.applyFilter(n, sc, input)
}

func (c *compiler) applyFilter(n *filterNode, sc *scope, in evalFn) (evalFn, error) {
	f := c.lib.filters[n.name]
	if why, refused := refusedFilters[n.name]; refused {
		return nil, refuse(n.line, "filter "+n.name, why)
	}
	if f == nil {
		if !sc.soft {
			return nil, &CompileError{Line: n.line, Description: fmt.Sprintf("No filter named %q.", n.name)}
		}
		f = func(*machine, any, arguments) (any, error) {
			return nil, raise("TemplateRuntimeError", "No filter named '%s' found.", n.name)
		}
	}
	if err := c.namedFilter(n); err != nil {
		return nil, err
	}
	args, err := c.arguments(&n.callArgs, sc)
	if err != nil {
		return nil, err
	}
	return func(s *state) (any, error) {
		v, err := in(s)
		if err != nil {
			return nil, err
		}
		a, err := args(s)
		if err != nil {
			return nil, err
		}
		if err := s.step(); err != nil {
			return nil, err
		}
		return f(s.machine, v, a)
	}, nil
}

// namedFilter refuses map('pprint') and the like.
func (c *compiler) namedFilter(n *filterNode) error {
	if n.name != "map" || len(n.args) == 0 {
		return nil
	}
	if name, ok := n.args[0].(*constNode); ok {
		if s, ok := name.val.(string); ok && refusedFilters[s] != "" {
			return refuse(n.line, "filter "+s, refusedFilters[s])
		}
	}
	return nil
}

func (c *compiler) test(n *testNode, sc *scope) (evalFn, error) {
	in, err := c.expr(n.in, sc)
	if err != nil {
		return nil, err
	}
	t := c.lib.tests[n.name]
	if t == nil {
		if !sc.soft {
			return nil, &CompileError{Line: n.line, Description: fmt.Sprintf("No test named %q.", n.name)}
		}
		t = func(*machine, any, arguments) (bool, error) {
			return false, raise("TemplateRuntimeError", "No test named '%s' found.", n.name)
		}
	}
	args, err := c.arguments(&n.callArgs, sc)
	if err != nil {
		return nil, err
	}
	return func(s *state) (any, error) {
		v, err := in(s)
		if err != nil {
			return nil, err
		}
		a, err := args(s)
		if err != nil {
			return nil, err
		}
		if err := s.step(); err != nil {
			return nil, err
		}
		return t(s.machine, v, a)
	}, nil
}

// call compiles a call; caller, if not nil, gives the body of a call block.
func (c *compiler) call(n *callNode, sc *scope, caller func(*state) any) (evalFn, error) {
	fn, err := c.expr(n.fn, sc)
	if err != nil {
		return nil, err
	}
	args, err := c.arguments(&n.callArgs, sc)
	if err != nil {
		return nil, err
	}
	if attr, ok := n.fn.(*attrNode); ok {
		for _, refused := range stringRefused {
			if attr.attr == refused {
				return nil, refuse(0, "method "+refused, "not implemented")
			}
		}
	}
	return func(s *state) (any, error) {
		f, err := fn(s)
		if err != nil {
			return nil, err
		}
		a, err := args(s)
		if err != nil {
			return nil, err
		}
		if caller != nil {
			a.keys, a.vals = append(a.keys, "caller"), append(a.vals, caller(s))
		}
		if err := s.step(); err != nil {
			return nil, err
		}
		return invoke(s.machine, f, a)
	}, nil
}

func invoke(vm *machine, f any, a arguments) (any, error) {
	switch f := f.(type) {
	case *callable:
		return f.call(vm, a)
	case *macro:
		return f.call(vm, a)
	case *undefined:
		return nil, f.fail()
	case *joiner:
		if f.used {
			return f.sep, a.none("Joiner")
		}
		f.used = true
		return "", a.none("Joiner")
	case *loopContext:
		if f.again == nil {
			return nil, typeError("The loop must have the 'recursive' marker to be called recursively.")
		}
		items, err := a.one("loop")
		if err != nil {
			return nil, err
		}
		return f.again(vm, items, f.depth0+1)
	}
	return nil, typeError("'%s' object is not callable", typeName(f))
}

func (c *compiler) item(n *itemNode, sc *scope) (evalFn, error) {
	in, err := c.expr(n.in, sc)
	if err != nil {
		return nil, err
	}
	sl, isSlice := n.arg.(*sliceNode)
	if !isSlice {
		arg, err := c.expr(n.arg, sc)
		return func(s *state) (any, error) {
			v, err := in(s)
			if err != nil {
				return nil, err
			}
			key, err := arg(s)
			if err != nil {
				return nil, err
			}
			if err := s.step(); err != nil {
				return nil, err
			}
			return getItem(s.machine, v, key)
		}, err
	}
	literal := isLiteral(n.in)
	parts := make([]evalFn, 3)
	for i, p := range []node{sl.start, sl.stop, sl.step} {
		if p == nil {
			continue
		}
		if parts[i], err = c.expr(p, sc); err != nil {
			return nil, err
		}
	}
	return func(s *state) (any, error) {
		v, err := in(s)
		if err != nil {
			return nil, err
		}
		var at [3]any
		for i, p := range parts {
			if p != nil {
				if at[i], err = p(s); err != nil {
					return nil, err
				}
			}
		}
		out, err := slice(s.machine, v, at[0], at[1], at[2])
		if err != nil && literal {
			return nil, unsupported("this slice of a literal (jinja2 computes it early and takes an error for undefined)")
		}
		return out, err
	}, nil
}

func isLiteral(n node) bool {
	switch n := n.(type) {
	case *constNode:
		return true
	case *tupleNode, *listNode, *dictNode:
		for _, k := range n.kids() {
			if !isLiteral(k) {
				return false
			}
		}
		return true
	}
	return false
}

func (c *compiler) concat(n *concatNode, sc *scope) (evalFn, error) {
	items, err := c.exprs(n.items, sc)
	return func(s *state) (any, error) {
		vals, err := evalAll(s, items)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		for _, v := range vals {
			t, err := str(v)
			if err != nil {
				return nil, err
			}
			if err := s.charge(len(t)); err != nil {
				return nil, err
			}
			b.WriteString(t)
		}
		return b.String(), nil
	}, err
}

func (c *compiler) compare(n *compareNode, sc *scope) (evalFn, error) {
	first, err := c.expr(n.first, sc)
	if err != nil {
		return nil, err
	}
	rest, err := c.exprs(n.rest, sc)
	return func(s *state) (any, error) {
		left, err := first(s)
		if err != nil {
			return nil, err
		}
		for i, op := range n.ops {
			right, err := rest[i](s)
			if err != nil {
				return nil, err
			}
			if err := s.step(); err != nil {
				return nil, err
			}
			ok, err := relation(op, left, right)
			if err != nil || !ok {
				return ok, err
			}
			left = right
		}
		return true, nil
	}, err
}

func relation(op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		same, err := equal(a, b)
		return !same, err
	case "in":
		return contains(a, b)
	case "not in":
		in, err := contains(a, b)
		return !in, err
	}
	return order(op, a, b)
}

func (c *compiler) binary(n *binNode, sc *scope) (evalFn, error) {
	l, err := c.expr(n.l, sc)
	if err != nil {
		return nil, err
	}
	r, err := c.expr(n.r, sc)
	return func(s *state) (any, error) {
		a, err := l(s)
		if err != nil {
			return nil, err
		}
		switch {
		case n.op == "and" && !truth(a), n.op == "or" && truth(a):
			return a, nil
		}
		b, err := r(s)
		if err != nil || n.op == "and" || n.op == "or" {
			return b, err
		}
		if err := s.step(); err != nil {
			return nil, err
		}
		return binary(s.machine, n.op, a, b)
	}, err
}
