package grammar

import (
	"errors"
	"fmt"
	"slices"
)

// program is an expression as instructions of a pushdown automaton.
type program struct {
	code  []instruction
	live  []bool // by instruction: a text leads from it to the end of its rule; the others are never followed
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
	uses   map[*node]int   // how often the expression holds a node
	shared map[*node]*Rule // nodes that are compiled once, and called
	bytes  byteSet         // that a token has
	ret    int32
	err    error
}

// compile refuses an expression that is too large, one with an undefined rule, a rule that begins with itself, and an expression that no
// text of these bytes has.
func compile(e Expr, available byteSet) (*program, error) {
	c := &compiler{rules: map[*Rule]int32{}, uses: uses(e.node), shared: map[*node]*Rule{}, bytes: available}
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
		body := c.inner(r.body.node, c.ret, 0)
		c.code[entry].to = []int32{body}
	}
	if c.err != nil {
		return nil, c.err
	}
	p := &program{code: c.code, start: start}
	if err := c.endless(p); err != nil {
		return nil, err
	}
	p.live = p.least(func(i *instruction, known []bool) bool {
		switch i.kind {
		case opByte:
			return i.bytes != byteSet{} && known[i.next]
		case opSplit:
			return slices.ContainsFunc(i.to, func(to int32) bool { return known[to] })
		case opCall:
			return known[i.to[0]] && known[i.next]
		}
		return true
	})
	if !p.live[start] {
		return nil, errors.New("grammar: no text has this form, or the vocabulary has no tokens for it")
	}
	return p, nil
}

// uses counts how often each node is held. A node that is held in several places is compiled once: the size of a program does not double
// with each level of a schema.
func uses(root *node) map[*node]int {
	count := map[*node]int{}
	work := []*node{root}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if n == nil || n.kind == kindByte {
			continue
		}
		if count[n]++; count[n] > 1 {
			continue
		}
		work = append(work, n.parts...)
		if n.kind == kindRule && n.rule.body != nil && count[n.rule.body.node] == 0 {
			work = append(work, n.rule.body.node)
		}
	}
	return count
}

func (c *compiler) emit(i instruction) int32 {
	if len(c.code) >= maxInstructions {
		c.err = fmt.Errorf("grammar: it is too large: more than %d instructions; allow fewer alternatives or fewer repetitions", maxInstructions)
		return 0
	}
	c.code = append(c.code, i)
	return int32(len(c.code) - 1)
}

// node compiles n before the instruction next and returns its first one; what stands in several places is called.
func (c *compiler) node(n *node, next int32, depth int) int32 {
	if n != nil && c.uses[n] > 1 && !n.small() {
		return c.call(c.rule(n), next)
	}
	return c.inner(n, next, depth)
}

// small: a call would be no shorter.
func (n *node) small() bool {
	leaf := func(part *node) bool { return part == nil || part.kind == kindByte }
	return n.kind == kindRule || n.kind == kindByte || n.kind != kindRepeat && len(n.parts) <= 4 && !slices.ContainsFunc(n.parts, func(p *node) bool { return !leaf(p) })
}

// rule is a node as a rule of its own.
func (c *compiler) rule(n *node) *Rule {
	r, ok := c.shared[n]
	if !ok {
		r = &Rule{name: "repetition", body: &Expr{n}}
		c.shared[n] = r
	}
	return r
}

// inner compiles n where it stands.
func (c *compiler) inner(n *node, next int32, depth int) int32 {
	if depth > maxDepth && c.err == nil {
		c.err = fmt.Errorf("grammar: it is nested more than %d deep", maxDepth)
	}
	if n == nil || c.err != nil {
		return next
	}
	switch n.kind {
	case kindByte:
		bytes := n.bytes
		for i := range bytes {
			bytes[i] &= c.bytes[i]
		}
		return c.emit(instruction{kind: opByte, bytes: bytes, next: next})
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
		body = &node{kind: kindRule, rule: c.rule(body)}
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
	nullable := p.least(func(i *instruction, known []bool) bool { // the empty text leads from it to the end of its rule
		switch i.kind {
		case opSplit:
			return slices.ContainsFunc(i.to, func(to int32) bool { return known[to] })
		case opCall:
			return known[i.to[0]] && known[i.next]
		}
		return i.kind == opReturn
	})
	calls := map[int32][]int32{}
	names := map[int32]string{}
	for r, entry := range c.rules {
		names[entry] = r.name
		calls[entry] = p.called(entry, nullable)
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

// least are the instructions that hold when no more do than must; holds asks for one of them what is known of those that follow it.
func (p *program) least(holds func(i *instruction, known []bool) bool) []bool {
	before := make([][]int32, len(p.code)) // by instruction: those that it follows
	known, work := make([]bool, len(p.code)), make([]int32, len(p.code))
	for at := range p.code {
		i := &p.code[at]
		for _, to := range i.to {
			before[to] = append(before[to], int32(at))
		}
		if i.kind == opByte || i.kind == opCall {
			before[i.next] = append(before[i.next], int32(at))
		}
		work[at] = int32(at)
	}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if !known[at] && holds(&p.code[at], known) {
			known[at] = true
			work = append(work, before[at]...)
		}
	}
	return known
}

// called are the rules that the rule at entry calls before it reads.
func (p *program) called(entry int32, nullable []bool) []int32 {
	var out []int32
	seen := map[int32]bool{}
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
		case opCall:
			out = append(out, i.to[0])
			if nullable[i.to[0]] {
				work = append(work, i.next)
			}
		}
	}
	return out
}
