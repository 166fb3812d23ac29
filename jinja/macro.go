package jinja

import "slices"

// macroDef is what jinja2's Macro object knows of a macro or call block.
type macroDef struct {
	name                    string
	args                    []string
	explicitCaller          bool
	caller, kwargs, varargs bool // the body uses the special variable
	fn                      *function
	slots                   []variable // of args, then caller, kwargs, varargs as far as they are used
	defaults                []evalFn   // parallel to args; nil where there is none
	enter                   func(*state)
	body                    execFn
}

// macro is a definition with the variables around it.
type macro struct {
	def *macroDef
	act *activation
}

func (c compiler) macroBody(n *macroNode, sc *scope) (*macroDef, error) {
	in := sc.innerFunction()
	in.symbols.analyzeMacro(n)
	d := &macroDef{name: n.name, fn: in.fn}
	declared := map[string]bool{}
	for _, a := range n.args {
		d.args = append(d.args, a.name)
		declared[a.name] = true
	}
	d.explicitCaller = declared["caller"]
	used := undeclared(n.body, "caller", "kwargs", "varargs")
	if used["caller"] {
		d.caller = true
		if at := slices.Index(d.args, "caller"); at >= 0 && at < len(n.args)-len(n.defaults) {
			return nil, &CompileError{Line: n.line, Description: `the special "caller" argument must be omitted or be given a default`}
		}
	}
	d.kwargs, d.varargs = used["kwargs"] && !declared["kwargs"], used["varargs"] && !declared["varargs"]
	names := slices.Clone(d.args)
	for _, special := range []struct {
		name string
		used bool
	}{{"caller", d.caller && !d.explicitCaller}, {"kwargs", d.kwargs}, {"varargs", d.varargs}} {
		if special.used {
			in.symbols.declare(special.name)
			names = append(names, special.name)
		}
	}
	in.symbols.analyzeMacro(n)
	for _, name := range names {
		v, err := in.variable(name)
		if err != nil {
			return nil, err
		}
		d.slots = append(d.slots, v)
	}
	d.defaults = make([]evalFn, len(d.args))
	for i, value := range n.defaults {
		fn, err := c.expressions.compile(value, in)
		if err != nil {
			return nil, err
		}
		d.defaults[len(d.args)-len(n.defaults)+i] = fn
	}
	var err error
	if d.body, err = c.block(n.body, in); err != nil {
		return nil, err
	}
	d.enter, err = in.enter()
	return d, err
}

func (c compiler) defineMacro(n *macroNode, sc *scope) (execFn, error) {
	d, err := c.macroBody(n, sc)
	if err != nil {
		return nil, err
	}
	v, err := sc.variable(n.name)
	return func(s *state) (signal, error) {
		*s.act.at(v) = &macro{d, s.act}
		return goOn, nil
	}, err
}

func (c compiler) callBlock(n *callBlockNode, sc *scope) (execFn, error) {
	d, err := c.macroBody(&n.macroNode, sc)
	if err != nil {
		return nil, err
	}
	if n.call == nil { // {% generation %} writes its body
		return func(s *state) (signal, error) {
			out, err := (&macro{d, s.act}).call(s.machine, arguments{})
			if err != nil {
				return goOn, err
			}
			return goOn, s.write(out.(string))
		}, nil
	}
	caller := sc.fn.locate(ident{sc.symbols.level, " caller"})
	call, err := c.expressions.call(n.call.(*callNode), sc, func(s *state) any { return *s.act.at(caller) })
	if err != nil {
		return nil, err
	}
	return func(s *state) (signal, error) {
		*s.act.at(caller) = &macro{d, s.act}
		v, err := call(s)
		if err != nil {
			return goOn, err
		}
		out, err := str(v)
		if err != nil {
			return goOn, err
		}
		return goOn, s.write(out)
	}, nil
}

// call binds the arguments as jinja2's Macro does and runs the body.
func (m *macro) call(vm *machine, a arguments) (any, error) {
	d := m.def
	rest := arguments{keys: slices.Clone(a.keys), vals: slices.Clone(a.vals)}
	take := func(name string) any {
		at := slices.Index(rest.keys, name)
		if at < 0 {
			return missing
		}
		v := rest.vals[at]
		rest.keys, rest.vals = slices.Delete(rest.keys, at, at+1), slices.Delete(rest.vals, at, at+1)
		return v
	}
	values := slices.Clone(a.pos[:min(len(a.pos), len(d.args))])
	foundCaller := d.explicitCaller && len(values) == len(d.args)
	for _, name := range d.args[len(values):] {
		foundCaller = foundCaller || name == "caller"
		values = append(values, take(name))
	}
	if d.caller && !foundCaller {
		caller := take("caller")
		if caller == missing || caller == nil {
			caller = &undefined{hint: "No caller defined", name: "caller", kind: "UndefinedError"}
		}
		values = append(values, caller)
	}
	switch {
	case d.kwargs:
		kwargs := newDict()
		for i, k := range rest.keys {
			kwargs.put(k, rest.vals[i])
		}
		values = append(values, kwargs)
	case len(rest.keys) > 0:
		return nil, typeError("macro '%s' takes no keyword argument '%s'", d.name, rest.keys[0])
	}
	switch {
	case d.varargs:
		values = append(values, append(tuple{}, a.pos[min(len(a.pos), len(d.args)):]...))
	case len(a.pos) > len(d.args):
		return nil, typeError("macro '%s' takes not more than %d argument(s)", d.name, len(d.args))
	}
	return m.run(vm, values)
}

func (m *macro) run(vm *machine, values []any) (any, error) {
	d := m.def
	if vm.depth++; vm.depth > maxRecursion {
		return nil, raise("RecursionError", "maximum recursion depth exceeded")
	}
	defer func() { vm.depth-- }()
	s := state{machine: vm, act: d.fn.activate(m.act)}
	for i, v := range values {
		*s.act.at(d.slots[i]) = v
	}
	out, _, err := s.capture(func(s *state) (signal, error) {
		d.enter(s)
		for i, name := range d.args {
			if *s.act.at(d.slots[i]) != missing {
				continue
			}
			var v any = &undefined{hint: "parameter '" + name + "' was not provided", name: name, kind: "UndefinedError"}
			if d.defaults[i] != nil {
				var err error
				if v, err = d.defaults[i](s); err != nil {
					return goOn, err
				}
			}
			*s.act.at(d.slots[i]) = v
		}
		return d.body(s)
	})
	return vm.made(out, err)
}
