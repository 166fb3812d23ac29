package jinja

import (
	"fmt"
	"slices"
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
			if err := s.scan(right); err != nil {
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
	if l, ok := n.l.(*binNode); ok && n.op == "+" && l.op == "+" {
		return c.sum(n, sc)
	}
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

// sum is a + b + c …: the same steps as one addition after the other, but strings are put together once, at the end.
func (c *compiler) sum(n *binNode, sc *scope) (evalFn, error) {
	var operands []node
	for at := node(n); at != nil; {
		b, ok := at.(*binNode)
		if !ok || b.op != "+" {
			operands = append(operands, at)
			break
		}
		operands, at = append(operands, b.r), b.l
	}
	slices.Reverse(operands)
	terms, err := c.exprs(operands, sc)
	if err != nil {
		return nil, err
	}
	return func(s *state) (any, error) {
		v, err := terms[0](s)
		if err != nil {
			return nil, err
		}
		var room [8]string
		parts, length := room[:0], 0 // of v, while all terms are plain strings
		if first, ok := v.(string); ok {
			parts, length = append(parts, first), len(first)
		}
		for _, term := range terms[1:] {
			b, err := term(s)
			if err == nil {
				err = s.step()
			}
			if err != nil {
				return nil, err
			}
			if next, ok := b.(string); ok && len(parts) > 0 {
				parts, length = append(parts, next), length+len(next)
				if err := s.charge(length); err != nil {
					return nil, err
				}
				continue
			}
			if len(parts) > 0 {
				v, parts = strings.Join(parts, ""), nil
			}
			if v, err = binary(s.machine, "+", v, b); err != nil {
				return nil, err
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ""), nil
		}
		return v, nil
	}, nil
}
