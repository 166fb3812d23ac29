package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// expressionCompiler turns expressions into functions that compute their values.
type expressionCompiler struct{ lib *library }

func (e expressionCompiler) compile(n node, sc *scope) (evalFn, error) {
	switch n := n.(type) {
	case *constNode:
		return func(*state) (any, error) { return n.val, nil }, nil
	case *dataNode:
		return func(*state) (any, error) { return n.text, nil }, nil
	case *nameNode:
		return e.name(n, sc)
	case *listNode:
		items, err := e.all(n.items, sc)
		return func(s *state) (any, error) {
			vals, err := evalAll(s, items)
			return &list{vals}, err
		}, err
	case *tupleNode:
		items, err := e.all(n.items, sc)
		return func(s *state) (any, error) {
			vals, err := evalAll(s, items)
			return tuple(vals), err
		}, err
	case *dictNode:
		return e.dict(n, sc)
	case *condNode:
		return e.cond(n, sc)
	case *filterNode:
		in, err := e.compile(n.in, sc)
		if err != nil {
			return nil, err
		}
		return e.applyFilter(n, sc, in)
	case *testNode:
		return e.test(n, sc)
	case *callNode:
		return e.call(n, sc, nil)
	case *attrNode:
		in, err := e.compile(n.in, sc)
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
		return e.item(n, sc)
	case *concatNode:
		return e.concat(n, sc)
	case *compareNode:
		return e.compare(n, sc)
	case *binNode:
		return e.binary(n, sc)
	case *unaryNode:
		in, err := e.compile(n.in, sc)
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

func (e expressionCompiler) all(nodes []node, sc *scope) ([]evalFn, error) {
	out := make([]evalFn, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = e.compile(n, sc); err != nil {
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

func (e expressionCompiler) name(n *nameNode, sc *scope) (evalFn, error) {
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

func (e expressionCompiler) dict(n *dictNode, sc *scope) (evalFn, error) {
	keys, err := e.all(n.keys, sc)
	if err != nil {
		return nil, err
	}
	values, err := e.all(n.values, sc)
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

func (e expressionCompiler) cond(n *condNode, sc *scope) (evalFn, error) {
	soft := sc.branch()
	test, err := e.compile(n.test, soft)
	if err != nil {
		return nil, err
	}
	yes, err := e.compile(n.yes, soft)
	if err != nil {
		return nil, err
	}
	no := func(*state) (any, error) {
		return undefinedHint(fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.line)), nil
	}
	if n.no != nil {
		if no, err = e.compile(n.no, soft); err != nil {
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

func (e expressionCompiler) item(n *itemNode, sc *scope) (evalFn, error) {
	in, err := e.compile(n.in, sc)
	if err != nil {
		return nil, err
	}
	sl, isSlice := n.arg.(*sliceNode)
	if !isSlice {
		arg, err := e.compile(n.arg, sc)
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
		if parts[i], err = e.compile(p, sc); err != nil {
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

func (e expressionCompiler) concat(n *concatNode, sc *scope) (evalFn, error) {
	items, err := e.all(n.items, sc)
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

func (e expressionCompiler) compare(n *compareNode, sc *scope) (evalFn, error) {
	first, err := e.compile(n.first, sc)
	if err != nil {
		return nil, err
	}
	rest, err := e.all(n.rest, sc)
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

func (e expressionCompiler) binary(n *binNode, sc *scope) (evalFn, error) {
	if l, ok := n.l.(*binNode); ok && n.op == "+" && l.op == "+" {
		return e.sum(n, sc)
	}
	l, err := e.compile(n.l, sc)
	if err != nil {
		return nil, err
	}
	r, err := e.compile(n.r, sc)
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
func (e expressionCompiler) sum(n *binNode, sc *scope) (evalFn, error) {
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
	terms, err := e.all(operands, sc)
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
