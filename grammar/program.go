package grammar

import (
	"fmt"
	"slices"
)

// program is an expression as instructions of a pushdown automaton.
type program struct {
	code  []instruction
	start int32
}

// instruction is one step of the automaton.
type instruction struct {
	kind  opcode
	bytes byteSet // of opByte
	next  int32   // of opByte, and where opCall returns to
	to    []int32 // of opSplit; the one target of opCall
	tail  bool    // of opCall: it returns to where its caller does
}

type opcode uint8

const (
	opByte   opcode = iota // reads a byte
	opSplit                // goes on at each of several places
	opCall                 // goes on at a rule, and behind it
	opReturn               // ends a rule
	opAccept               // ends the text
)

// The most that an expression may grow to: a request must not take memory without bound.
const (
	maxInstructions = 1 << 17
	maxDepth        = 1000 // of nested expressions
)

type compiler struct {
	code   []instruction
	rules  map[*Rule]int32 // entries, each an opSplit of one place
	queue  []*Rule
	shared map[*node]*Rule // bodies of counted repetitions
	ret    int32
	err    error
}

// compile refuses an expression that is too large, one with an undefined rule, and a rule that begins with itself.
func compile(e Expr) (*program, error) {
	c := &compiler{rules: map[*Rule]int32{}, shared: map[*node]*Rule{}}
	accept := c.emit(instruction{kind: opAccept})
	c.ret = c.emit(instruction{kind: opReturn})
	start := c.node(e.node, accept, 0)
	for len(c.queue) > 0 && c.err == nil {
		r := c.queue[0]
		c.queue = c.queue[1:]
		if r.body == nil {
			return nil, fmt.Errorf("grammar: the rule %s is not defined", r.name)
		}
		entry := c.rules[r]
		body := c.node(r.body.node, c.ret, 0)
		c.code[entry].to = []int32{body}
	}
	if c.err != nil {
		return nil, c.err
	}
	p := &program{code: c.code, start: start}
	return p, c.endless(p)
}

func (c *compiler) emit(i instruction) int32 {
	if len(c.code) >= maxInstructions {
		c.err = fmt.Errorf("grammar: it is too large: more than %d instructions; allow fewer alternatives or fewer repetitions", maxInstructions)
		return 0
	}
	c.code = append(c.code, i)
	return int32(len(c.code) - 1)
}

// node compiles n before the instruction next and returns its first one.
func (c *compiler) node(n *node, next int32, depth int) int32 {
	if depth > maxDepth && c.err == nil {
		c.err = fmt.Errorf("grammar: it is nested more than %d deep", maxDepth)
	}
	if n == nil || c.err != nil {
		return next
	}
	switch n.kind {
	case kindByte:
		return c.emit(instruction{kind: opByte, bytes: n.bytes, next: next})
	case kindSequence:
		for _, part := range slices.Backward(n.parts) {
			next = c.node(part, next, depth+1)
		}
		return next
	case kindChoice:
		to := make([]int32, len(n.parts))
		for i, part := range n.parts {
			to[i] = c.node(part, next, depth+1)
		}
		return c.emit(instruction{kind: opSplit, to: to})
	case kindRepeat:
		return c.repeat(n, next, depth)
	default:
		return c.call(n.rule, next)
	}
}

func (c *compiler) call(r *Rule, next int32) int32 {
	entry, ok := c.rules[r]
	if !ok {
		entry = c.emit(instruction{kind: opSplit})
		c.rules[r] = entry
		c.queue = append(c.queue, r)
	}
	return c.emit(instruction{kind: opCall, to: []int32{entry}, next: next, tail: next == c.ret})
}

func (c *compiler) repeat(n *node, next int32, depth int) int32 {
	body := n.parts[0]
	if body == nil {
		return next
	}
	if body.kind != kindByte && body.kind != kindRule && (n.min > 1 || n.max > 1) { // one copy, called
		r, ok := c.shared[body]
		if !ok {
			r = &Rule{name: "repetition", body: &Expr{body}}
			c.shared[body] = r
		}
		body = &node{kind: kindRule, rule: r}
	}
	if n.max < 0 {
		loop := c.emit(instruction{kind: opSplit})
		to := []int32{c.node(body, loop, depth+1), next}
		c.code[loop].to = to
		next = loop
	} else {
		end := next
		for range n.max - n.min {
			if c.err != nil {
				break
			}
			next = c.emit(instruction{kind: opSplit, to: []int32{c.node(body, next, depth+1), end}})
		}
	}
	for range n.min {
		if c.err != nil {
			break
		}
		next = c.node(body, next, depth+1)
	}
	return next
}

// endless refuses a rule that comes to itself before it has read a byte: the automaton would call it without end.
func (c *compiler) endless(p *program) error {
	nullable := map[int32]bool{} // entries of rules that the empty text is of
	for changed := true; changed; {
		changed = false
		for _, entry := range c.rules {
			if !nullable[entry] && p.empty(entry, nullable, nil) {
				nullable[entry], changed = true, true
			}
		}
	}
	calls := map[int32][]int32{}
	names := map[int32]string{}
	for r, entry := range c.rules {
		names[entry] = r.name
		p.empty(entry, nullable, func(to int32) { calls[entry] = append(calls[entry], to) })
	}
	const open, closed = 1, 2
	state := map[int32]int{}
	var visit func(at int32) error
	visit = func(at int32) error {
		switch state[at] {
		case open:
			return fmt.Errorf("grammar: %s comes to itself before anything is written", names[at])
		case closed:
			return nil
		}
		state[at] = open
		for _, to := range calls[at] {
			if err := visit(to); err != nil {
				return err
			}
		}
		state[at] = closed
		return nil
	}
	for entry := range calls {
		if err := visit(entry); err != nil {
			return err
		}
	}
	return nil
}

// empty tells whether the rule at entry may read nothing; called is told of the rules that it calls before it reads.
func (p *program) empty(entry int32, nullable map[int32]bool, called func(int32)) bool {
	seen := map[int32]bool{}
	ends := false
	work := []int32{entry}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		switch i := &p.code[at]; i.kind {
		case opSplit:
			work = append(work, i.to...)
		case opReturn:
			ends = true
		case opCall:
			if called != nil {
				called(i.to[0])
			}
			if nullable[i.to[0]] {
				work = append(work, i.next)
			}
		}
	}
	return ends
}
