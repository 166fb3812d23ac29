package jinja

import "fmt"

// loopContext is the variable loop.
type loopContext struct {
	source any
	next   func() (any, bool, error)
	// Values of the iteration; hasAfter says that after was read ahead, ended that there was none.
	index0                 int
	before, current, after any
	hasAfter, ended        bool
	size                   int // -1 until it is known
	depth0                 int
	changed                any
	recurse                func(vm *machine, items any, depth int) (any, error) // of a recursive loop
}

func newLoop(source any, depth int) (*loopContext, error) {
	next, err := iterate(source)
	return &loopContext{source: source, next: next, index0: -1, size: -1, depth0: depth, changed: missing}, err
}

func (l *loopContext) peek() (bool, error) {
	if l.hasAfter || l.ended {
		return l.hasAfter, nil
	}
	v, ok, err := l.next()
	l.after, l.hasAfter, l.ended = v, ok, !ok
	return ok, err
}

func (l *loopContext) advance() (any, bool, error) {
	ok, err := l.peek()
	if err != nil || !ok {
		return nil, false, err
	}
	l.index0++
	l.before, l.current, l.hasAfter = l.current, l.after, false
	return l.current, true, nil
}

func (l *loopContext) length() (int, error) {
	if l.size >= 0 {
		return l.size, nil
	}
	if _, isGenerator := l.source.(*generator); !isGenerator {
		n, err := length(l.source)
		l.size = n
		return n, err
	}
	var rest []any
	for {
		v, ok, err := l.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		rest = append(rest, v)
	}
	l.next = sliceIterator(rest)
	l.size = len(rest) + l.index0 + 1
	if l.hasAfter {
		l.size++
	}
	return l.size, nil
}

func (l *loopContext) attribute(name string) (any, bool, error) {
	switch name {
	case "index":
		return l.index0 + 1, true, nil
	case "index0":
		return l.index0, true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "last":
		more, err := l.peek()
		return !more, true, err
	case "depth":
		return l.depth0 + 1, true, nil
	case "depth0":
		return l.depth0, true, nil
	case "length", "revindex", "revindex0":
		n, err := l.length()
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return n, true, err
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), true, nil
		}
		return l.before, true, nil
	case "nextitem":
		more, err := l.peek()
		if !more {
			return undefinedHint("there is no next item"), true, err
		}
		return l.after, true, nil
	case "cycle":
		return &callable{name, func(_ *machine, a arguments) (any, error) {
			if len(a.pos) == 0 {
				return nil, typeError("no items for cycling given")
			}
			return a.pos[l.index0%len(a.pos)], nil
		}}, true, nil
	case "changed":
		return &callable{name, func(_ *machine, a arguments) (any, error) {
			now := append(tuple{}, a.pos...)
			same := l.changed != missing
			if same {
				var err error
				if same, err = equal(l.changed, now); err != nil {
					return nil, err
				}
			}
			l.changed = now
			return !same, nil
		}}, true, nil
	}
	return nil, false, nil
}

func (c compiler) forLoop(n *forNode, sc *scope) (execFn, error) {
	for _, part := range []node{n} {
		bad := 0
		walk(part, func(n node) bool {
			if v, ok := n.(*nameNode); ok && v.ctx == ctxStore && v.name == "loop" {
				bad = v.line
			}
			return bad == 0
		})
		if bad > 0 {
			return nil, &CompileError{Line: bad, Description: "Can't assign to special loop variable in for-loop target"}
		}
	}
	in, orElse := sc.inner(), sc.inner()
	if n.recursive {
		in = sc.innerFunction()
		orElse.fn, orElse.loop = in.fn, false
	}
	bodyScope := *in
	bodyScope.loop = true
	in = &bodyScope
	extended := n.recursive || undeclared(n.body, "loop")["loop"]
	if extended {
		in.symbols.declare("loop")
	}
	in.symbols.analyzeFor(n, forBody)
	orElse.symbols.analyzeFor(n, forElse)

	iter, err := c.expressions.compile(n.iter, sc)
	if err != nil {
		return nil, err
	}
	filtered := func(_ *state, v any) (any, error) { return v, nil }
	if n.test != nil {
		if filtered, err = c.loopFilter(n, sc, in); err != nil {
			return nil, err
		}
	}
	rounds, err := c.rounds(n, in, orElse, extended)
	if err != nil {
		return nil, err
	}
	if !n.recursive {
		return func(s *state) (signal, error) {
			v, err := iter(s)
			if err != nil {
				return goOn, err
			}
			if v, err = filtered(s, v); err != nil {
				return goOn, err
			}
			return rounds(s, v, 0, nil)
		}, nil
	}
	return func(s *state) (signal, error) {
		v, err := iter(s)
		if err != nil {
			return goOn, err
		}
		outer := *s
		var recurse func(vm *machine, items any, depth int) (any, error)
		recurse = func(vm *machine, items any, depth int) (any, error) {
			if vm.depth++; vm.depth > maxRecursion {
				return nil, raise("RecursionError", "maximum recursion depth exceeded")
			}
			defer func() { vm.depth-- }()
			items, err := filtered(&outer, items)
			if err != nil {
				return nil, err
			}
			inner := state{machine: vm, act: in.fn.activate(outer.act)}
			text, _, err := inner.capture(func(s *state) (signal, error) { return rounds(s, items, depth, recurse) })
			return vm.made(text, err)
		}
		out, err := recurse(s.machine, v, 0)
		if err != nil {
			return goOn, err
		}
		return goOn, s.write(out.(string))
	}, nil
}

// rounds compiles the loop itself: what runs for each item, and the else part.
func (c compiler) rounds(n *forNode, in, orElse *scope, extended bool) (func(s *state, items any, depth int, recurse func(*machine, any, int) (any, error)) (signal, error), error) {
	store, err := storeTo(n.target, in)
	if err != nil {
		return nil, err
	}
	body, enter, exit, err := c.body(n.body, in)
	if err != nil {
		return nil, err
	}
	noItems, err := c.scoped(n.orElse, orElse, nil)
	if err != nil {
		return nil, err
	}
	var self variable
	if extended {
		if self, err = in.variable("loop"); err != nil {
			return nil, err
		}
	}
	return func(s *state, items any, depth int, recurse func(*machine, any, int) (any, error)) (signal, error) {
		if extended {
			*s.act.at(self) = missing
		}
		loop, err := newLoop(items, depth)
		if err != nil {
			return goOn, err
		}
		loop.recurse = recurse
		next := loop.next
		if extended {
			next = loop.advance
		}
		empty := true
		for {
			v, ok, err := next()
			if err != nil {
				return goOn, err
			}
			if !ok {
				break
			}
			if err := s.step(); err != nil {
				return goOn, err
			}
			if err := store(s, v); err != nil {
				return goOn, err
			}
			if extended {
				*s.act.at(self) = loop
			}
			enter(s)
			sig, err := body(s)
			if err != nil {
				return goOn, err
			}
			if sig == stopLoop {
				// Python skips the mark that an iteration was completed
				break
			}
			if sig == goOn {
				empty = false
			}
		}
		exit(s)
		if empty && len(n.orElse) > 0 {
			return noItems(s)
		}
		return goOn, nil
	}, nil
}

// loopFilter compiles {% for … if test %}: a generator function of its own.
func (c compiler) loopFilter(n *forNode, sc, in *scope) (func(*state, any) (any, error), error) {
	ts := sc.innerFunction()
	ts.symbols.analyzeFor(n, forTest)
	test, err := c.expressions.compile(n.test, ts)
	if err != nil {
		return nil, err
	}
	target := &scope{symbols: in.symbols, fn: ts.fn, lines: in.lines}
	store, err := storeTo(n.target, target)
	if err != nil {
		return nil, err
	}
	load, err := loadFrom(n.target, target)
	if err != nil {
		return nil, err
	}
	enter, err := ts.enter()
	if err != nil {
		return nil, err
	}
	return func(s *state, items any) (any, error) {
		inner := state{machine: s.machine, act: ts.fn.activate(s.act), out: s.out}
		return lazy(func() (func() (any, bool, error), error) {
			enter(&inner)
			next, err := iterate(items)
			if err != nil {
				return nil, err
			}
			return func() (any, bool, error) {
				for {
					v, ok, err := next()
					if err != nil || !ok {
						return nil, false, err
					}
					if err := store(&inner, v); err != nil {
						return nil, false, err
					}
					keep, err := test(&inner)
					if err != nil {
						return nil, false, err
					}
					if truth(keep) {
						v, err := load(&inner)
						return v, true, err
					}
				}
			}, nil
		}), nil
	}, nil
}

// loadFrom reads back what was stored in a target, as the generator of a loop filter yields it.
func loadFrom(target node, sc *scope) (evalFn, error) {
	switch n := target.(type) {
	case *nameNode:
		v, err := sc.variable(n.name)
		return func(s *state) (any, error) { return *s.act.at(v), nil }, err
	case *tupleNode:
		var parts []evalFn
		for _, item := range n.items {
			p, err := loadFrom(item, sc)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		return func(s *state) (any, error) {
			out := make(tuple, len(parts))
			for i, p := range parts {
				var err error
				if out[i], err = p(s); err != nil {
					return nil, err
				}
			}
			return out, nil
		}, nil
	}
	return nil, fmt.Errorf("template: cannot loop over %T", target)
}
