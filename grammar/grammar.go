package grammar

import (
	"fmt"
	"sync"
)

// Grammar is an expression, compiled for a vocabulary. It is safe for concurrent use.
type Grammar struct {
	mu        sync.Mutex
	automaton *automaton // guarded by mu
	first     *state
}

// Compile refuses an expression that is too large, that no text of the vocabulary has, or that has a rule which comes to itself before it
// has read anything.
func Compile(e Expr, v *Vocabulary) (*Grammar, error) {
	p, err := compile(e, v.bytes)
	if err != nil {
		return nil, err
	}
	g := &Grammar{automaton: newAutomaton(p, v)}
	if g.first, err = g.automaton.start(); err != nil {
		return nil, err
	}
	if _, _, err := g.Match().Allowed(); err != nil {
		return nil, err
	}
	return g, nil
}

// Match begins a completion.
func (g *Grammar) Match() *Matcher { return &Matcher{grammar: g, state: g.first} }

// Matcher stands behind the tokens of one completion. It is not safe for concurrent use.
type Matcher struct {
	grammar *Grammar
	state   *state
	taken   int
}

// Allowed tells which tokens may come next, a bit each (word id/64, bit id%64), and whether the completion may end. The caller must not
// change the bits. It fails where neither is so: the vocabulary has no token for what must follow.
func (m *Matcher) Allowed() (tokens []uint64, end bool, err error) {
	m.grammar.mu.Lock()
	defer m.grammar.mu.Unlock()
	mask, err := m.grammar.automaton.allowed(m.state)
	if err != nil {
		return nil, false, err
	}
	if !m.state.any && !m.state.ends {
		return nil, false, fmt.Errorf("grammar: behind %d tokens the vocabulary has none that the form goes on with", m.taken)
	}
	return mask, m.state.ends, nil
}

// Take goes on behind a token that Allowed had.
func (m *Matcher) Take(id int32) error {
	m.grammar.mu.Lock()
	defer m.grammar.mu.Unlock()
	a := m.grammar.automaton
	a.work = 0
	s, text := m.state, a.tokens.text(id)
	if len(text) == 0 {
		return fmt.Errorf("grammar: token %d stands for no text of the form", id)
	}
	for _, b := range text {
		next, err := a.step(s, b)
		if err != nil {
			return err
		}
		if next == dead {
			return fmt.Errorf("grammar: token %d cannot stand behind %d others of the form", id, m.taken)
		}
		s = next
	}
	m.state, m.taken = s, m.taken+1
	return nil
}
