package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// automaton runs a program on all of its ways at once. The states that it has been in are kept, with what follows each byte and which
// tokens may come next, up to a limit, beyond which it forgets them and goes on.
type automaton struct {
	program *program
	tokens  *Vocabulary
	states  map[string]*state
	stacks  map[frame]*stack
	serial  uint32   // of the youngest stack
	work    int      // ways that were followed for the current answer
	kept    int      // ways of all states
	masked  []*state // with their tokens, which take the most memory
}

// state is all the ways in which the automaton can stand behind a text.
type state struct {
	ways  []way   // sorted; each at an opByte
	reads byteSet // one of them reads the byte
	ends  bool    // the text is whole
	next  [256]*state
	mask  []uint64 // tokens that may come next; nil: not known yet
	any   bool     // one of them is there
}

// way is a place in the program with the places that its rules return to.
type way struct {
	at    int32
	stack *stack
}

// stack are the places that open rules return to, the innermost first; nil is none. Equal stacks are one.
type stack struct {
	frame
	serial uint32
}

type frame struct {
	to     int32
	caller *stack
}

// dead is the state behind a text that nothing begins with.
var dead = &state{}

// ErrCostly: an expression has so many ways at once that following them would hold an engine up.
var ErrCostly = errors.New("grammar: the form has too many ways at once to be followed; write it with fewer alternatives, or shorter bounds")

const (
	maxStates = 1 << 13
	maxMasked = 1 << 8
	maxKept   = 1 << 20
	maxWork   = 1 << 20 // a fraction of a second: everybody waits for it
)

func newAutomaton(p *program, v *Vocabulary) *automaton {
	a := &automaton{program: p, tokens: v}
	a.forget()
	return a
}

// forget lets go of all states. Who stands in one goes on from it.
func (a *automaton) forget() {
	for _, s := range a.states {
		s.next, s.mask = [256]*state{}, nil
	}
	a.states, a.stacks, a.kept, a.masked = map[string]*state{}, map[frame]*stack{}, 0, nil
}

func (a *automaton) push(to int32, caller *stack) *stack {
	f := frame{to, caller}
	s, ok := a.stacks[f]
	if !ok {
		a.serial++
		s = &stack{frame: f, serial: a.serial}
		a.stacks[f] = s
	}
	return s
}

func (s *stack) number() uint32 {
	if s == nil {
		return 0
	}
	return s.serial
}

// start is the state of no text.
func (a *automaton) start() (*state, error) {
	a.work = 0
	return a.close([]way{{at: a.program.start}})
}

// step is the state behind one more byte.
func (a *automaton) step(s *state, b byte) (*state, error) {
	if s.next[b] != nil {
		return s.next[b], nil
	}
	if !s.reads.has(b) {
		s.next[b] = dead
		return dead, nil
	}
	var ways []way
	for _, w := range s.ways {
		if i := &a.program.code[w.at]; i.bytes.has(b) {
			ways = append(ways, way{i.next, w.stack})
		}
	}
	a.work += len(s.ways)
	next, err := a.close(ways)
	if err != nil {
		return nil, err
	}
	s.next[b] = next
	return next, nil
}

// close follows the ways to the next byte that each reads.
func (a *automaton) close(ways []way) (*state, error) {
	s := &state{}
	seen := make(map[way]bool, len(ways))
	for len(ways) > 0 {
		w := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		if seen[w] || !a.program.live[w.at] {
			continue
		}
		seen[w] = true
		if a.work++; a.work > maxWork {
			return nil, ErrCostly
		}
		switch i := &a.program.code[w.at]; i.kind {
		case opByte:
			s.ways = append(s.ways, w)
		case opSplit:
			for _, to := range i.to {
				ways = append(ways, way{to, w.stack})
			}
		case opCall:
			inner := w.stack
			if !i.tail {
				inner = a.push(i.next, w.stack)
			}
			ways = append(ways, way{i.to[0], inner})
		case opReturn:
			ways = append(ways, way{w.stack.to, w.stack.caller})
		case opAccept:
			s.ends = true
		}
	}
	if len(s.ways) == 0 && !s.ends {
		return dead, nil
	}
	for _, w := range s.ways {
		for i, word := range a.program.code[w.at].bytes {
			s.reads[i] |= word
		}
	}
	slices.SortFunc(s.ways, func(x, y way) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.stack.number(), y.stack.number()))
	})
	key := make([]byte, 0, 8*len(s.ways)+1)
	for _, w := range s.ways {
		key = binary.LittleEndian.AppendUint32(key, uint32(w.at))
		key = binary.LittleEndian.AppendUint32(key, w.stack.number())
	}
	if s.ends {
		key = append(key, 1)
	}
	if known, ok := a.states[string(key)]; ok {
		return known, nil
	}
	if a.kept += len(s.ways); len(a.states) >= maxStates || a.kept > maxKept {
		a.forget()
	}
	a.states[string(key)] = s
	return s, nil
}

// allowed are the tokens that may come next.
func (a *automaton) allowed(s *state) ([]uint64, error) {
	if s.mask != nil || s == dead { // which is shared by all, and has none
		return s.mask, nil
	}
	a.work = 0
	mask, err := a.tokens.walk(s, a.step)
	if err != nil {
		return nil, err
	}
	if len(a.masked) >= maxMasked {
		for _, other := range a.masked {
			other.mask = nil
		}
		a.masked = a.masked[:0]
	}
	s.mask, a.masked = mask, append(a.masked, s)
	s.any = slices.ContainsFunc(mask, func(w uint64) bool { return w != 0 })
	return mask, nil
}
