package jinja

import (
	"fmt"
	"maps"
	"slices"
)

// How a scope gets a variable when it is entered.
const (
	loadParam     = iota // it is assigned by the statement itself
	loadResolve          // looked up in the context by name
	loadAlias            // copied from the variable of an outer scope
	loadUndefined        // missing until it is assigned
)

// ident is a variable of a scope: jinja2's l_LEVEL_NAME. Scopes of the same level share it, as they do in Python.
type ident struct {
	level int
	name  string
}

type load struct {
	kind  int
	outer ident // of loadAlias
}

// symbols says where the names of a scope live (jinja2/idtracking.py).
type symbols struct {
	level  int
	parent *symbols
	refs   map[string]ident
	loads  map[ident]load
	order  []ident // of loads, by insertion
	stores map[string]bool
}

func newSymbols(parent *symbols) *symbols {
	s := &symbols{parent: parent, refs: map[string]ident{}, loads: map[ident]load{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

func (s *symbols) copy() *symbols {
	return &symbols{
		level: s.level, parent: s.parent, refs: maps.Clone(s.refs), loads: maps.Clone(s.loads),
		order: slices.Clone(s.order), stores: maps.Clone(s.stores),
	}
}

func (s *symbols) setLoad(id ident, l load) {
	if _, ok := s.loads[id]; !ok {
		s.order = append(s.order, id)
	}
	s.loads[id] = l
}

func (s *symbols) define(name string, l load) ident {
	id := ident{s.level, name}
	s.refs[name] = id
	s.setLoad(id, l)
	return id
}

func (s *symbols) find(name string) (ident, bool) {
	for ; s != nil; s = s.parent {
		if id, ok := s.refs[name]; ok {
			return id, true
		}
	}
	return ident{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if outer, ok := s.parent.find(name); ok {
		s.define(name, load{kind: loadAlias, outer: outer})
		return
	}
	s.define(name, load{kind: loadUndefined})
}

func (s *symbols) declare(name string) ident {
	s.stores[name] = true
	return s.define(name, load{kind: loadParam})
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, load{kind: loadResolve})
	}
}

// merge takes over what the branches of an if did. A name that only some branches store gets its value from outside.
func (s *symbols) merge(branches ...*symbols) {
	var stored []string
	for _, b := range branches {
		for name := range b.stores {
			if !s.stores[name] && !slices.Contains(stored, name) {
				stored = append(stored, name)
			}
		}
	}
	slices.Sort(stored)
	for _, b := range branches {
		maps.Copy(s.refs, b.refs)
		for _, id := range b.order {
			s.setLoad(id, b.loads[id])
		}
		maps.Copy(s.stores, b.stores)
	}
	for _, name := range stored {
		id, _ := s.find(name)
		if outer, ok := s.parent.find(name); ok {
			s.setLoad(id, load{kind: loadAlias, outer: outer})
		} else {
			s.setLoad(id, load{kind: loadResolve})
		}
	}
}

// visit records the names of n; it does not look into statements that open a scope of their own.
func (s *symbols) visit(n node) *symbols { return s.visitAs(n, false) }

func (s *symbols) visitAs(n node, param bool) *symbols {
	switch n := n.(type) {
	case *nameNode:
		switch {
		case param || n.ctx == ctxParam:
			s.declare(n.name)
		case n.ctx == ctxStore:
			s.store(n.name)
		default:
			s.load(n.name)
		}
	case *nsRefNode:
		s.load(n.name)
	case *ifNode:
		s.visit(n.test)
		branch := func(nodes []node) *symbols {
			b := s.copy()
			for _, k := range nodes {
				b.visit(k)
			}
			return b
		}
		var elifs []node
		for _, e := range n.elifs {
			elifs = append(elifs, e)
		}
		s.merge(branch(n.body), branch(elifs), branch(n.orElse))
	case *macroNode:
		s.store(n.name)
	case *assignNode:
		s.visit(n.value)
		s.visit(n.target)
	case *forNode:
		s.visit(n.iter)
	case *callBlockNode:
		if n.call != nil {
			s.visit(n.call)
		}
	case *filterBlockNode:
		s.visit(n.filter)
	case *withNode:
		s.visitAll(n.values)
	case *assignBlockNode:
		s.visit(n.target)
	default:
		for _, k := range n.kids() {
			s.visitAs(k, param)
		}
	}
	return s
}

func (s *symbols) visitAll(nodes []node) {
	for _, n := range nodes {
		s.visit(n)
	}
}

// The parts of a for statement are scopes of their own.
const (
	forBody = iota
	forElse
	forTest
)

func (s *symbols) analyzeFor(n *forNode, part int) {
	if part != forElse {
		s.visitAs(n.target, true)
	}
	switch part {
	case forBody:
		s.visitAll(n.body)
	case forElse:
		s.visitAll(n.orElse)
	case forTest:
		s.visit(n.test)
	}
}

func (s *symbols) analyzeMacro(n *macroNode) {
	for _, a := range n.args {
		s.visit(a)
	}
	s.visitAll(n.defaults)
	s.visitAll(n.body)
}

// function is a Python function that jinja2 would generate: its variables are slots of one activation.
type function struct {
	outer *function
	base  int // level of its outermost scope
	slots map[ident]int
}

func (f *function) slot(id ident) int {
	n, ok := f.slots[id]
	if !ok {
		n = len(f.slots)
		f.slots[id] = n
	}
	return n
}

// variable finds the slot of a name: up activations above the current one.
type variable struct{ up, slot int }

func (f *function) locate(id ident) variable {
	v := variable{}
	for id.level < f.base {
		f = f.outer
		v.up++
	}
	v.slot = f.slot(id)
	return v
}

// scope is what jinja2 calls a frame.
type scope struct {
	symbols *symbols
	fn      *function
	soft    bool           // inside an if: an unknown filter fails only when it is reached
	loop    bool           // break and continue are allowed
	lines   map[string]int // where a name stands first in the template
}

func (sc *scope) inner() *scope {
	return &scope{symbols: newSymbols(sc.symbols), fn: sc.fn, loop: sc.loop, lines: sc.lines}
}

func (sc *scope) branch() *scope {
	c := *sc
	c.symbols, c.soft = sc.symbols.copy(), true
	return &c
}

// innerFunction is an inner scope that runs as a function of its own.
func (sc *scope) innerFunction() *scope {
	in := sc.inner()
	in.fn, in.loop = &function{outer: sc.fn, base: in.symbols.level, slots: map[ident]int{}}, false
	return in
}

func (sc *scope) variable(name string) (variable, error) {
	id, ok := sc.symbols.find(name)
	if !ok {
		return variable{}, &CompileError{Description: fmt.Sprintf("jinja2 cannot resolve the name %q here", name)}
	}
	return sc.fn.locate(id), nil
}

// enter loads the variables of a scope.
func (sc *scope) enter() (func(*state), error) {
	type step struct {
		to, from variable
		load     load
		name     string
	}
	var steps []step
	for _, id := range sc.symbols.order {
		l := sc.symbols.loads[id]
		if l.kind == loadParam {
			continue
		}
		st := step{to: sc.fn.locate(id), load: l, name: id.name}
		if l.kind == loadAlias {
			st.from = sc.fn.locate(l.outer)
		}
		if why, ok := refusedGlobals[id.name]; ok && l.kind == loadResolve {
			return nil, refuse(sc.lines[id.name], id.name, why)
		}
		steps = append(steps, st)
	}
	return func(s *state) {
		for i := range steps {
			v := missing
			switch st := &steps[i]; st.load.kind {
			case loadResolve:
				if found, ok := s.context[st.name]; ok {
					v = found
				}
			case loadAlias:
				v = *s.act.at(st.from)
			}
			*s.act.at(steps[i].to) = v
		}
	}, nil
}

// exit forgets the variables of a scope.
func (sc *scope) exit() func(*state) {
	var slots []variable
	for _, id := range sc.symbols.order {
		slots = append(slots, sc.fn.locate(id))
	}
	return func(s *state) {
		for _, v := range slots {
			*s.act.at(v) = missing
		}
	}
}
