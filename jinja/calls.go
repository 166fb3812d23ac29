package jinja

import (
	"fmt"
)

// arguments compiles the arguments of a call.
func (e expressionCompiler) arguments(a *callArgs, sc *scope) (func(*state) (arguments, error), error) {
	pos, err := e.all(a.args, sc)
	if err != nil {
		return nil, err
	}
	vals, err := e.all(a.values, sc)
	if err != nil {
		return nil, err
	}
	var dyn [2]evalFn
	for i, n := range []node{a.dynArgs, a.dynKeyArgs} {
		if n == nil {
			continue
		}
		if dyn[i], err = e.compile(n, sc); err != nil {
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
func (e expressionCompiler) filterOn(n *filterNode, sc *scope, input evalFn) (evalFn, error) {
	if inner, ok := n.in.(*filterNode); ok {
		var err error
		if input, err = e.filterOn(inner, sc, input); err != nil {
			return nil, err
		}
	}
	return e.applyFilter(n, sc, input)
}

// ofBlock compiles a chain of filters whose innermost input is the text of a block.
func (e expressionCompiler) ofBlock(n node, sc *scope) (func(*state, string) (any, error), error) {
	first, ok := n.(*filterNode)
	for ok && first.in != nil {
		first, ok = first.in.(*filterNode)
	}
	if !ok {
		return nil, fmt.Errorf("template: unknown filter %T", n)
	}
	// The text is passed through a slot, so that a template stays safe for concurrent use.
	slot := sc.fn.locate(ident{sc.symbols.level, " block"})
	fn, err := e.filterOn(n.(*filterNode), sc, func(s *state) (any, error) { return *s.act.at(slot), nil })
	return func(s *state, text string) (any, error) {
		*s.act.at(slot) = text
		return fn(s)
	}, err
}

func (e expressionCompiler) applyFilter(n *filterNode, sc *scope, in evalFn) (evalFn, error) {
	f := e.lib.filters[n.name]
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
	if err := refuseNamed(n); err != nil {
		return nil, err
	}
	args, err := e.arguments(&n.callArgs, sc)
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
		if err := s.scan(v); err != nil {
			return nil, err
		}
		if err := s.step(); err != nil {
			return nil, err
		}
		return f(s.machine, v, a)
	}, nil
}

// refuseNamed refuses map('pprint') and the like.
func refuseNamed(n *filterNode) error {
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

func (e expressionCompiler) test(n *testNode, sc *scope) (evalFn, error) {
	in, err := e.compile(n.in, sc)
	if err != nil {
		return nil, err
	}
	t := e.lib.tests[n.name]
	if t == nil {
		if !sc.soft {
			return nil, &CompileError{Line: n.line, Description: fmt.Sprintf("No test named %q.", n.name)}
		}
		t = func(*machine, any, arguments) (bool, error) {
			return false, raise("TemplateRuntimeError", "No test named '%s' found.", n.name)
		}
	}
	args, err := e.arguments(&n.callArgs, sc)
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
func (e expressionCompiler) call(n *callNode, sc *scope, caller func(*state) any) (evalFn, error) {
	fn, err := e.compile(n.fn, sc)
	if err != nil {
		return nil, err
	}
	args, err := e.arguments(&n.callArgs, sc)
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
		if f.recurse == nil {
			return nil, typeError("The loop must have the 'recursive' marker to be called recursively.")
		}
		items, err := a.one("loop")
		if err != nil {
			return nil, err
		}
		return f.recurse(vm, items, f.depth0+1)
	}
	return nil, typeError("'%s' object is not callable", typeName(f))
}
