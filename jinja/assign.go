package jinja

import (
	"fmt"
)

// storeTo compiles an assignment to a target.
func storeTo(target node, sc *scope) (func(*state, any) error, error) {
	switch n := target.(type) {
	case *nameNode:
		v, err := sc.variable(n.name)
		if err != nil {
			return nil, err
		}
		return func(s *state, val any) error {
			*s.act.at(v) = val
			return nil
		}, nil
	case *nsRefNode:
		v, err := sc.variable(n.name)
		if err != nil {
			return nil, err
		}
		return func(s *state, val any) error {
			ns, ok := (*s.act.at(v)).(*namespace)
			if !ok {
				return raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
			}
			if err := namespaceName(n.attr); err != nil {
				return err
			}
			ns.attrs.put(n.attr, val)
			return nil
		}, nil
	case *tupleNode:
		var stores []func(*state, any) error
		for _, item := range n.items {
			st, err := storeTo(item, sc)
			if err != nil {
				return nil, err
			}
			stores = append(stores, st)
		}
		return func(s *state, val any) error {
			items, err := collect(s.machine, val)
			if err != nil {
				return err
			}
			switch {
			case len(items) > len(stores):
				return valueError("too many values to unpack (expected %d)", len(stores))
			case len(items) < len(stores):
				return valueError("not enough values to unpack (expected %d, got %d)", len(stores), len(items))
			}
			for i, st := range stores {
				if err := st(s, items[i]); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	return nil, fmt.Errorf("template: cannot assign to %T", target)
}

// namespaces returns the variables of the namespaces that a target assigns to: they are checked before the value is computed.
func namespaces(target node, sc *scope) ([]variable, error) {
	var out []variable
	var failed error
	walk(target, func(n node) bool {
		if ref, ok := n.(*nsRefNode); ok {
			v, err := sc.variable(ref.name)
			if err != nil {
				failed = err
			}
			out = append(out, v)
		}
		return true
	})
	return out, failed
}

func (c compiler) assign(n *assignNode, sc *scope) (execFn, error) {
	value, err := c.expressions.compile(n.value, sc)
	if err != nil {
		return nil, err
	}
	store, err := storeTo(n.target, sc)
	if err != nil {
		return nil, err
	}
	refs, err := namespaces(n.target, sc)
	if err != nil {
		return nil, err
	}
	return func(s *state) (signal, error) {
		for _, v := range refs {
			if _, ok := (*s.act.at(v)).(*namespace); !ok {
				return goOn, raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
			}
		}
		v, err := value(s)
		if err != nil {
			return goOn, err
		}
		return goOn, store(s, v)
	}, nil
}

func (c compiler) assignBlock(n *assignBlockNode, sc *scope) (execFn, error) {
	in := sc.inner()
	in.symbols.visitAll(n.body)
	body, err := c.scoped(n.body, in, nil)
	if err != nil {
		return nil, err
	}
	filter := func(_ *state, text string) (any, error) { return text, nil }
	if n.filter != nil {
		if filter, err = c.expressions.ofBlock(n.filter, in); err != nil {
			return nil, err
		}
	}
	store, err := storeTo(n.target, sc)
	if err != nil {
		return nil, err
	}
	return func(s *state) (signal, error) {
		text, sig, err := s.capture(body)
		if err != nil || sig != goOn {
			return sig, err
		}
		v, err := filter(s, text)
		if err != nil {
			return goOn, err
		}
		return goOn, store(s, v)
	}, nil
}

func (c compiler) filterBlock(n *filterBlockNode, sc *scope) (execFn, error) {
	in := sc.inner()
	in.symbols.visitAll(n.body)
	in.symbols.visit(n.filter)
	body, err := c.block(n.body, in)
	if err != nil {
		return nil, err
	}
	filter, err := c.expressions.ofBlock(n.filter, in)
	if err != nil {
		return nil, err
	}
	enter, err := in.enter()
	if err != nil {
		return nil, err
	}
	exit := in.exit()
	return func(s *state) (signal, error) {
		enter(s)
		text, sig, err := s.capture(body)
		if err != nil || sig != goOn {
			return sig, err
		}
		v, err := filter(s, text)
		if err != nil {
			return goOn, err
		}
		exit(s)
		out, err := str(v)
		if err != nil {
			return goOn, err
		}
		return goOn, s.write(out)
	}, nil
}

func (c compiler) with(n *withNode, sc *scope) (execFn, error) {
	in := sc.inner()
	for _, t := range n.targets {
		in.symbols.visit(t)
	}
	in.symbols.visitAll(n.body)
	var sets []execFn
	for i, t := range n.targets {
		value, err := c.expressions.compile(n.values[i], sc)
		if err != nil {
			return nil, err
		}
		store, err := storeTo(t, in)
		if err != nil {
			return nil, err
		}
		sets = append(sets, func(s *state) (signal, error) {
			v, err := value(s)
			if err != nil {
				return goOn, err
			}
			return goOn, store(s, v)
		})
	}
	return c.scoped(n.body, in, func(s *state) (signal, error) {
		for _, set := range sets {
			if _, err := set(s); err != nil {
				return goOn, err
			}
		}
		return goOn, nil
	})
}
