package local

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

// loop is the engine's goroutine and all that only it touches.
type loop struct {
	*Engine
	pool    *pool
	waiting []*sequence // first come, first served; preempted ones return to the front
	running []*sequence // oldest first; each holds blocks
	version int32
	step    cgo.Step
	planned []*sequence // of the current step, in the order of its block table
	ended   []*sequence // by the current step, not handed out yet
	listed  []int32     // blocks that the current step makes findable
	counts  Stats
}

func newLoop(e *Engine) *loop {
	return &loop{Engine: e, pool: newPool(e.options.CacheTokens/e.options.BlockSize, e.options.BlockSize), version: e.options.Version}
}

func (l *loop) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.done)
	if l.options.Threads > 0 {
		cgo.SetThreads(l.options.Threads)
	}
	for {
		barriers, closed := l.collect()
		if closed {
			l.failAll()
			return
		}
		for _, b := range barriers {
			l.hold(b)
		}
		l.dropCancelled()
		if l.plan(); len(l.planned) == 0 {
			l.publish()
			<-l.wake
			continue
		}
		l.execute()
		l.publish() // first: who has a completion finds its step in Stats
		for _, s := range l.ended {
			s.end(s.err)
		}
		l.ended = l.ended[:0]
	}
}

func (l *loop) collect() (barriers []*barrier, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, l.incoming...)
	l.incoming = nil
	barriers, l.barriers = l.barriers, nil
	return barriers, l.closed
}

func (l *loop) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats = l.counts
	l.stats.Running, l.stats.Waiting = len(l.running), len(l.waiting)
	l.stats.Blocks, l.stats.UsedBlocks = l.pool.total(), l.pool.total()-l.pool.idle
	l.stats.Version = l.version
}

// hold lets Update change the weights. What was computed with the old ones is forgotten.
func (l *loop) hold(b *barrier) {
	close(b.reached)
	if version := <-b.release; version != nil {
		l.version = *version
		for _, s := range l.running {
			l.vacate(s)
		}
		l.waiting = append(slices.Clone(l.running), l.waiting...)
		l.running = l.running[:0]
		l.pool.forget()
		l.publish()
	}
	close(b.finished)
}

// vacate frees the sequence's blocks; its tokens must be computed again.
func (l *loop) vacate(s *sequence) {
	l.pool.release(s.blocks)
	s.blocks, s.computed, s.listed, s.serial = s.blocks[:0], 0, 0, 0
	if s.targets != nil {
		s.completion.Logprobs = s.completion.Logprobs[:0]
	}
}

func (l *loop) failAll() {
	for _, s := range append(l.running, l.waiting...) {
		l.vacate(s)
		s.end(engines.ErrClosed)
	}
	l.running, l.waiting = nil, nil
	l.publish()
}

func (l *loop) dropCancelled() {
	drop := func(s *sequence) bool {
		err := s.ctx.Err()
		if err != nil {
			l.vacate(s)
			s.end(err)
		}
		return err != nil
	}
	l.running = slices.DeleteFunc(l.running, drop)
	l.waiting = slices.DeleteFunc(l.waiting, drop)
}

// plan fills the next step: one token of every sequence that decodes, then pieces of prompts up to StepTokens.
func (l *loop) plan() {
	l.step.Reset()
	l.planned, l.listed = l.planned[:0], l.listed[:0]
	budget := l.options.StepTokens
	for _, s := range l.running {
		if s.remaining() == 1 {
			budget--
		}
	}
	preempted := false
	for i := 0; i < len(l.running); i++ { // the list may shrink at its end
		s := l.running[i]
		s.planned = 1
		if s.remaining() > 1 {
			s.planned = s.piece(budget)
			budget -= s.planned
		}
		preempted = !l.reserve(s) || preempted
	}
	for _, s := range l.running {
		if s.planned > 0 {
			l.place(s)
		}
	}
	for !preempted && budget > 0 && len(l.waiting) > 0 && len(l.running) < l.options.MaxSequences {
		s := l.waiting[0]
		if !l.admit(s) {
			break
		}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.running = append(l.running, s)
		s.planned = s.piece(budget)
		budget -= s.planned
		l.place(s)
	}
	l.fillTable()
}

func (l *loop) blocksOf(tokens int) int { return (tokens + l.pool.size - 1) / l.pool.size }

// reserve takes the blocks that the sequence's planned rows need. When there are none left the youngest sequences give
// theirs up and wait again; false says that this happened. The oldest always gets on: the cache holds MaxModelLen.
func (l *loop) reserve(s *sequence) bool {
	whole := true
	for len(s.blocks) < l.blocksOf(s.computed+s.planned) {
		if id, ok := l.pool.take(); ok {
			s.blocks = append(s.blocks, id)
			continue
		}
		victim := l.running[len(l.running)-1]
		l.running = l.running[:len(l.running)-1]
		l.vacate(victim)
		l.waiting = slices.Insert(l.waiting, 0, victim)
		l.counts.Preemptions++
		whole = false
		if victim == s {
			break
		}
	}
	return whole
}

// admit finds the sequence's prefix in the cache and takes blocks for the rest. false: there is no room now.
func (l *loop) admit(s *sequence) bool {
	for s.targets == nil && (s.listed+1)*l.pool.size <= len(s.tokens) {
		id, serial, ok := l.pool.find(s.serial, s.prefix(), s.listed*l.pool.size)
		if !ok {
			break
		}
		l.pool.share(id)
		s.blocks = append(s.blocks, id)
		s.listed, s.serial = s.listed+1, serial
	}
	spare := 1 // room to grow before the next preemption
	if len(l.running) == 0 {
		spare = 0
	}
	if l.blocksOf(len(s.tokens))-len(s.blocks)+spare > l.pool.idle {
		l.vacate(s)
		return false
	}
	// The last token is computed in any case: its row is sampled from. In a shared block it writes the bits that are there,
	// on a device the same up to rounding, so a step that fails cannot harm who shares it.
	s.computed = min(len(s.blocks)*l.pool.size, len(s.tokens)-1)
	for len(s.blocks) < l.blocksOf(len(s.tokens)) {
		id, _ := l.pool.take() // there are enough
		s.blocks = append(s.blocks, id)
	}
	if !s.started {
		s.started = true
		s.completion.CachedTokens = s.computed
		l.counts.PromptTokens += int64(s.prompt)
		l.counts.CachedTokens += int64(s.computed)
	}
	return true
}

// place adds the sequence's planned rows to the step, and lists the blocks that they fill: later sequences of this very
// step may share them, because a step writes all keys before it reads any.
func (l *loop) place(s *sequence) {
	end := s.computed + s.planned
	for p := s.computed; p < end; p++ {
		l.step.Tokens = append(l.step.Tokens, s.tokens[p])
		l.step.Positions = append(l.step.Positions, int32(p))
		l.step.Sequence = append(l.step.Sequence, int32(len(l.planned)))
	}
	for (s.listed+1)*l.pool.size <= end {
		id := s.blocks[s.listed]
		serial, listed := l.pool.list(id, s.serial, s.prefix(), s.listed*l.pool.size)
		if listed {
			l.listed = append(l.listed, id)
		}
		s.listed, s.serial = s.listed+1, serial
	}
	s.output = -1
	switch {
	case s.targets != nil:
		s.output = len(l.step.Outputs)
		for p := s.computed; p < end; p++ {
			l.step.Outputs = append(l.step.Outputs, cgo.Output{Row: len(l.step.Tokens) - end + p, Given: true, Target: s.targets[p]})
		}
	case end == len(s.tokens):
		s.output = len(l.step.Outputs)
		l.step.Outputs = append(l.step.Outputs, s.nextOutput(len(l.step.Tokens)-1))
	}
	l.planned = append(l.planned, s)
}

func (l *loop) fillTable() {
	l.step.MaxBlocks = 1
	for _, s := range l.planned {
		l.step.MaxBlocks = max(l.step.MaxBlocks, len(s.blocks))
	}
	for _, s := range l.planned {
		l.step.Blocks = append(l.step.Blocks, s.blocks...)
		for range l.step.MaxBlocks - len(s.blocks) {
			l.step.Blocks = append(l.step.Blocks, 0)
		}
	}
}

// execute runs the step. An error fails the step's requests and nothing else.
func (l *loop) execute() {
	err := l.cache.Step(&l.step)
	l.counts.Steps++
	if err != nil {
		for _, id := range l.listed {
			l.pool.unlist(id)
		}
		for _, s := range l.planned {
			l.finish(s, fmt.Errorf("step failed: %w", err))
		}
		return
	}
	l.counts.ComputedTokens += int64(len(l.step.Tokens))
	for _, s := range l.planned {
		s.computed += s.planned
		if s.output < 0 {
			continue
		}
		if s.targets == nil {
			l.counts.GeneratedTokens++
		}
		if s.take(&l.step, l.version, l.options.Decoder, l.options.MaxModelLen) {
			l.finish(s, s.form.failure())
		}
	}
}

// finish takes the sequence out; its blocks stay findable until others need them.
func (l *loop) finish(s *sequence, err error) {
	l.running = slices.DeleteFunc(l.running, func(r *sequence) bool { return r == s })
	l.pool.release(s.blocks)
	s.blocks, s.err = nil, err
	l.ended = append(l.ended, s)
}
