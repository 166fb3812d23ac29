package jinja

import (
	"errors"
	"fmt"
)

// compiler turns statements into functions that write their text. Scopes and variables are resolved here, once.
type compiler struct{ expressions expressionCompiler }

// program is the root function of a template.
type program struct {
	fn   *function
	body execFn
}

func (c compiler) program(nodes []node) (*program, error) {
	lines := map[string]int{}
	for _, n := range nodes {
		walk(n, func(n node) bool {
			if v, ok := n.(*nameNode); ok && lines[v.name] == 0 {
				lines[v.name] = v.line
			}
			return true
		})
	}
	if names := undeclared(nodes, "self"); names["self"] {
		return nil, refuse(lines["self"], "self", refusedGlobals["self"])
	}
	fn := &function{slots: map[ident]int{}}
	sc := &scope{symbols: newSymbols(nil), fn: fn, lines: lines}
	sc.symbols.visitAll(nodes)
	body, err := c.block(nodes, sc)
	if err != nil {
		return nil, err
	}
	enter, err := sc.enter()
	if err != nil {
		return nil, err
	}
	return &program{fn, func(s *state) (signal, error) {
		enter(s)
		return body(s)
	}}, nil
}

func (c compiler) block(nodes []node, sc *scope) (execFn, error) {
	fns := make([]execFn, len(nodes))
	for i, n := range nodes {
		var err error
		if fns[i], err = c.statement(n, sc); err != nil {
			return nil, err
		}
	}
	return func(s *state) (signal, error) {
		for _, fn := range fns {
			if sig, err := fn(s); err != nil || sig != goOn {
				return sig, err
			}
		}
		return goOn, nil
	}, nil
}

// body compiles the statements of a scope, and what runs when the scope is entered and left.
func (c compiler) body(nodes []node, in *scope) (fn execFn, enter, exit func(*state), err error) {
	if fn, err = c.block(nodes, in); err != nil {
		return nil, nil, nil, err
	}
	if enter, err = in.enter(); err != nil {
		return nil, nil, nil, err
	}
	return fn, enter, in.exit(), nil
}

// scoped compiles a body that has a scope of its own; before runs between entering and the body.
func (c compiler) scoped(body []node, in *scope, before execFn) (execFn, error) {
	fn, enter, exit, err := c.body(body, in)
	if err != nil {
		return nil, err
	}
	return func(s *state) (signal, error) {
		enter(s)
		if before != nil {
			if sig, err := before(s); err != nil {
				return sig, err
			}
		}
		sig, err := fn(s)
		exit(s)
		return sig, err
	}, nil
}

// onLine adds the line to the errors of a statement and counts its steps.
func onLine(line int, fn execFn, err error) (execFn, error) {
	if err != nil {
		var e *CompileError
		if errors.As(err, &e) && e.Line == 0 {
			e.Line = line
		}
		return nil, err
	}
	return func(s *state) (signal, error) {
		if err := s.step(); err != nil {
			return goOn, at(err, line)
		}
		sig, err := fn(s)
		if err != nil {
			return goOn, at(err, line)
		}
		return sig, nil
	}, nil
}

func (c compiler) statement(n node, sc *scope) (execFn, error) {
	var fn execFn
	var err error
	line := 0
	switch n := n.(type) {
	case *outputNode:
		line = n.line
		fn, err = c.output(n, sc)
	case *ifNode:
		line = n.line
		fn, err = c.ifElse(n, sc)
	case *forNode:
		line = n.line
		fn, err = c.forLoop(n, sc)
	case *assignNode:
		line = n.line
		fn, err = c.assign(n, sc)
	case *assignBlockNode:
		line = n.line
		fn, err = c.assignBlock(n, sc)
	case *macroNode:
		line = n.line
		fn, err = c.defineMacro(n, sc)
	case *callBlockNode:
		line = n.line
		fn, err = c.callBlock(n, sc)
	case *filterBlockNode:
		line = n.line
		fn, err = c.filterBlock(n, sc)
	case *withNode:
		line = n.line
		fn, err = c.with(n, sc)
	case *jumpNode:
		line = n.line
		if !sc.loop {
			return nil, &CompileError{Line: line, Description: "break or continue outside of a loop"}
		}
		sig := nextRound
		if n.stop {
			sig = stopLoop
		}
		fn = func(*state) (signal, error) { return sig, nil }
	default:
		err = fmt.Errorf("template: unknown statement %T", n)
	}
	return onLine(line, fn, err)
}

func (c compiler) output(n *outputNode, sc *scope) (execFn, error) {
	fns := make([]execFn, len(n.items))
	for i, item := range n.items {
		if d, ok := item.(*dataNode); ok {
			fns[i] = func(s *state) (signal, error) { return goOn, s.write(d.text) }
			continue
		}
		eval, err := c.expressions.compile(item, sc)
		if err == nil {
			fns[i] = func(s *state) (signal, error) {
				v, err := eval(s)
				if err != nil {
					return goOn, err
				}
				t, err := str(v)
				if err != nil {
					return goOn, err
				}
				return goOn, s.write(t)
			}
		}
		if fns[i], err = onLine(n.lines[i], fns[i], err); err != nil {
			return nil, err
		}
	}
	return func(s *state) (signal, error) {
		for _, fn := range fns {
			if _, err := fn(s); err != nil {
				return goOn, err
			}
		}
		return goOn, nil
	}, nil
}

func (s *state) write(text string) error {
	s.out.WriteString(text)
	return s.charge(len(text))
}

func (c compiler) ifElse(n *ifNode, sc *scope) (execFn, error) {
	type branch struct {
		test evalFn
		body execFn
	}
	soft := sc.branch()
	var branches []branch
	for _, part := range append([]*ifNode{n}, n.elifs...) {
		test, err := c.expressions.compile(part.test, soft)
		if err != nil {
			return nil, err
		}
		body, err := c.block(part.body, soft)
		if err != nil {
			return nil, err
		}
		branches = append(branches, branch{test, body})
	}
	orElse, err := c.block(n.orElse, soft)
	if err != nil {
		return nil, err
	}
	return func(s *state) (signal, error) {
		for _, b := range branches {
			v, err := b.test(s)
			if err != nil {
				return goOn, err
			}
			if truth(v) {
				return b.body(s)
			}
		}
		return orElse(s)
	}, nil
}
