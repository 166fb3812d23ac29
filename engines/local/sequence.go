package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// sequence is one request in the engine; the loop owns it.
type sequence struct {
	ctx       context.Context
	request   engines.Request
	done      chan outcome // buffered
	tokens    []int32      // prompt, then what was sampled
	blocks    []int32      // hold tokens 0 .. len(blocks) * size
	computed  int          // tokens whose keys and values are in the cache
	published int          // full blocks that others can find
	last      *entry       // of the last published block
	out       engines.Completion
	text      []byte // of the completion, when there are stop strings
}

type outcome struct {
	completion engines.Completion
	err        error
}

func (e *Engine) newSequence(ctx context.Context, r engines.Request) (*sequence, error) {
	p := r.Sampling
	switch {
	case len(r.Prompt) == 0:
		return nil, fmt.Errorf("engines/local: request %s: the prompt is empty", r.ID)
	case len(r.Prompt) >= e.options.MaxModelLen:
		return nil, fmt.Errorf("engines/local: request %s: %w: %d tokens, the limit with one sampled token is %d", r.ID, engines.ErrTooLong, len(r.Prompt), e.options.MaxModelLen)
	case p.MaxTokens < 1 || !(p.Temperature >= 0) || !(p.TopP > 0 && p.TopP <= 1) || p.TopK < 0 || !(p.MinP >= 0 && p.MinP < 1):
		return nil, fmt.Errorf("engines/local: request %s: max tokens >= 1, temperature >= 0, 0 < top-p <= 1, top-k >= 0 and 0 <= min-p < 1 are needed, got %+v", r.ID, p)
	case len(p.Stop) > 0 && e.options.Decoder == nil:
		return nil, fmt.Errorf("engines/local: request %s: stop strings need a decoder", r.ID)
	}
	return &sequence{ctx: ctx, request: r, done: make(chan outcome, 1), tokens: slices.Clone(r.Prompt)}, nil
}

// end answers a sequence and frees its blocks.
func (e *Engine) end(s *sequence, err error) {
	for _, b := range s.blocks {
		e.blocks.release(b)
	}
	s.blocks = nil
	if err != nil {
		err = fmt.Errorf("engines/local: request %s: %w", s.request.ID, err)
	}
	s.done <- outcome{s.out, err}
}

func (e *Engine) dropCancelled() {
	keep := func(s *sequence) bool {
		if s.ctx.Err() == nil {
			return true
		}
		e.end(s, s.ctx.Err())
		return false
	}
	drop := func(s *sequence) bool { return !keep(s) }
	e.running = slices.DeleteFunc(e.running, drop)
	e.waiting = slices.DeleteFunc(e.waiting, drop)
}

// admit lets waiting sequences run while there is room. One whose next block is just being computed by another waits for
// it, so that a prefix which many share is computed once.
func (e *Engine) admit() {
	size := e.options.BlockSize
	type link struct {
		parent *entry
		text   string
	}
	pending := map[link]bool{} // blocks that running sequences are about to publish
	next := func(s *sequence) (link, bool) {
		start := s.published * size
		if start+size >= len(s.tokens) { // the last token is always computed
			return link{}, false
		}
		return link{s.last, key(s.tokens[start : start+size])}, true
	}
	for _, s := range e.running {
		if l, ok := next(s); ok {
			pending[l] = true
		}
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(s *sequence) bool {
		if len(e.running) >= e.options.MaxSequences {
			return false
		}
		e.reuse(s)
		l, ok := next(s)
		if ok && pending[l] {
			return false
		}
		need := (min(len(s.tokens)+s.request.Sampling.MaxTokens, e.options.MaxModelLen)+size-1)/size - len(s.blocks)
		if need > e.blocks.available() && len(e.running) > 0 {
			return false // blocks come back when a running sequence ends
		}
		for range need {
			b, ok := e.blocks.alloc()
			if !ok {
				e.end(s, errors.New("the key/value cache is too small for this request; raise engine.cache_tokens"))
				return true
			}
			s.blocks = append(s.blocks, b)
		}
		if ok {
			pending[l] = true
		}
		s.out.CachedTokens = s.computed
		e.prompt.Add(int64(len(s.request.Prompt)))
		e.cached.Add(int64(s.computed))
		e.running = append(e.running, s)
		return true
	})
}

func key(tokens []int32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = append(b, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
	}
	return string(b)
}

// reuse takes the published blocks that s begins with, beyond those it holds. At least the last token is left to compute.
func (e *Engine) reuse(s *sequence) {
	size := e.options.BlockSize
	for {
		start := s.published * size
		if start+size >= len(s.tokens) {
			return
		}
		found := e.blocks.find(s.last, s.tokens[start:start+size])
		if found == nil {
			return
		}
		e.blocks.use(found)
		s.blocks = append(s.blocks, found.block)
		s.last = found
		s.published++
		s.computed = start + size
	}
}

// forward computes one batch: the next token of every sequence whose prompt is done, and as much of the prompts as fits.
func (e *Engine) forward() {
	if len(e.running) == 0 {
		return
	}
	step := &cgo.Step{Deterministic: e.options.Deterministic}
	budget := e.options.PrefillTokens
	var batch []*sequence
	var outputs []*sequence
	for _, s := range e.running {
		n := len(s.tokens) - s.computed
		if n > 1 {
			n = min(n, budget)
			budget -= n
		}
		if n == 0 {
			continue
		}
		for i := s.computed; i < s.computed+n; i++ {
			step.Tokens = append(step.Tokens, s.tokens[i])
			step.Positions = append(step.Positions, int32(i))
			step.Sequence = append(step.Sequence, int32(len(batch)))
		}
		s.computed += n
		batch = append(batch, s)
		step.MaxBlocks = max(step.MaxBlocks, len(s.blocks))
		if s.computed == len(s.tokens) {
			outputs = append(outputs, s)
			e.addOutput(step, s)
		}
	}
	for _, s := range batch {
		step.BlockTable = append(step.BlockTable, s.blocks...)
		step.BlockTable = append(step.BlockTable, make([]int32, step.MaxBlocks-len(s.blocks))...)
	}
	sampled, logprobs := make([]int32, len(outputs)), make([]float32, len(outputs))
	if err := e.cache.Step(step, sampled, logprobs); err != nil {
		for _, s := range batch {
			e.end(s, err)
		}
		e.running = slices.DeleteFunc(e.running, func(s *sequence) bool { return slices.Contains(batch, s) })
		return
	}
	e.forwards.Add(1)
	for _, s := range batch {
		e.publish(s)
	}
	for i, s := range outputs {
		e.sampled.Add(1)
		if e.append(s, sampled[i], logprobs[i]) {
			e.end(s, nil)
			e.running = slices.DeleteFunc(e.running, func(x *sequence) bool { return x == s })
		}
	}
}

func (e *Engine) addOutput(step *cgo.Step, s *sequence) {
	p := s.request.Sampling
	step.OutputRow = append(step.OutputRow, int32(len(step.Tokens)-1))
	step.Temperature = append(step.Temperature, p.Temperature)
	step.TopP = append(step.TopP, p.TopP)
	step.TopK = append(step.TopK, int32(p.TopK))
	step.MinP = append(step.MinP, p.MinP)
	step.Seed = append(step.Seed, s.request.Seed)
	step.Counter = append(step.Counter, uint64(len(s.out.TokenIDs)))
}

// publish makes the full blocks that are computed by now findable for others.
func (e *Engine) publish(s *sequence) {
	size := e.options.BlockSize
	for (s.published+1)*size <= s.computed {
		start := s.published * size
		block := s.blocks[s.published]
		if e.blocks.entry[block] != nil { // taken over from the prefix
			s.last = e.blocks.entry[block]
		} else {
			s.last = e.blocks.publish(s.last, s.tokens[start:start+size], block)
		}
		s.published++
	}
}

// append adds a sampled token and reports whether the completion ends with it.
func (e *Engine) append(s *sequence, token int32, logprob float32) bool {
	s.tokens = append(s.tokens, token)
	s.out.TokenIDs = append(s.out.TokenIDs, token)
	s.out.Logprobs = append(s.out.Logprobs, logprob)
	s.out.Versions = append(s.out.Versions, e.version.Load())
	p := s.request.Sampling
	switch {
	case slices.Contains(p.StopIDs, token) || e.stopString(s, token):
		s.out.FinishReason = trajectory.FinishStop
	case len(s.out.TokenIDs) >= p.MaxTokens || len(s.tokens) >= e.options.MaxModelLen:
		s.out.FinishReason = trajectory.FinishLength
	default:
		return false
	}
	return true
}

func (e *Engine) stopString(s *sequence, token int32) bool {
	stops := s.request.Sampling.Stop
	if len(stops) == 0 {
		return false
	}
	piece := e.options.Decoder.Bytes(token)
	s.text = append(s.text, piece...)
	for _, stop := range stops {
		if tail := s.text[max(0, len(s.text)-len(piece)-len(stop)+1):]; bytes.Contains(tail, []byte(stop)) {
			return true
		}
	}
	return false
}
