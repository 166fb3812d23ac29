// Package local is the engine in this process: continuous batching over the C++ library's paged cache.
//
// One goroutine, locked to its OS thread, owns the cache. Between two steps requests join and leave; a step computes one
// token of every running sequence and pieces of the prompts that are new, and samples. Equal prefixes (the examples of a
// batch, the prompt of a group, the earlier turns of a trajectory) are computed once, by whole blocks: a block is found
// again as soon as its tokens are planned, so that requests which arrive together share even within one step.
//
// On the CPU a request's tokens and logprobs are the same bits whatever runs beside it, after prefix reuse and after
// preemption: the library computes each row in an order that depends on that row alone. A model on a device is computed there,
// with kernels that are chosen by the size of a batch; the capability BatchInvariant says which of the two it is.
//
// It does not compute tensors (package cgo does) or change weights: the trainer does, at a barrier that the engine keeps.
package local

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// Decoder turns token ids into bytes. It is called from the engine's goroutine.
type Decoder interface {
	Bytes(id int32) []byte // of this token alone; empty for an unknown one
}

// Options configure an engine.
type Options struct {
	MaxModelLen  int     // prompt plus completion, tokens; at least 2, needed
	BlockSize    int     // tokens of a cache block, a multiple of 8; 0: 16
	CacheTokens  int     // keys and values kept; at least MaxModelLen; 0: the greater of 32768 and MaxModelLen. Memory is taken as it is first used, on a device at once
	MaxSequences int     // most sequences in a step; 0: 64
	StepTokens   int     // most tokens computed in a step, at least MaxSequences; 0: the greater of 512 and MaxSequences
	Threads      int     // of libtorch's operations; 0: its default, one per CPU
	BFloat16     bool    // compute in bfloat16: half the memory traffic, the logprobs of a trainer in bfloat16 on a CPU without adapters. On a device: as the model does
	Version      int32   // policy version of the weights that the model has now
	Decoder      Decoder // nil: requests with stop strings are refused
}

// Stats is a snapshot for metrics. Counts are since New.
type Stats struct {
	Running, Waiting   int   // requests
	Blocks, UsedBlocks int   // of the cache; used ones belong to running requests
	PromptTokens       int64 // of admitted requests
	CachedTokens       int64 // of these, found in the cache
	ComputedTokens     int64 // rows computed, prompts and completions
	GeneratedTokens    int64
	Steps, Preemptions int64
	Version            int32
}

// stepper is the part of cgo.Cache that the engine uses.
type stepper interface {
	Step(*cgo.Step) error
	BatchInvariant() bool
	Close() error
}

// Engine implements engines.Engine.
type Engine struct {
	options   Options
	vocab     int
	cache     stepper
	invariant bool          // the cache's BatchInvariant
	wake      chan struct{} // buffered: something changed
	done      chan struct{} // closed when the loop has ended
	joined    sync.WaitGroup
	close     sync.Once

	mu       sync.Mutex
	incoming []*sequence
	barriers []*barrier
	closed   bool
	stats    Stats
}

var (
	_ engines.Engine    = (*Engine)(nil)
	_ engines.Logprober = (*Engine)(nil)
	_ engines.Streamer  = (*Engine)(nil)
	_ engines.Loaded    = (*Engine)(nil)
)

// New starts an engine that samples from model, on the device where it lies, and shares its parameters with the trainer: only
// Update may change them. The model must outlive the engine.
func New(model *cgo.Model, o Options) (*Engine, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	cache, err := cgo.NewCache(model, cgo.CacheConfig{Blocks: o.CacheTokens / o.BlockSize, BlockSize: o.BlockSize, BFloat16: o.BFloat16})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return start(cache, model.Config().VocabSize, o), nil
}

// complete fills in defaults.
func (o Options) complete() (Options, error) {
	or := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	or(&o.BlockSize, 16)
	or(&o.CacheTokens, max(32768, o.MaxModelLen+o.BlockSize-1))
	or(&o.MaxSequences, 64)
	or(&o.StepTokens, max(512, o.MaxSequences))
	switch {
	case o.MaxModelLen < 2:
		return o, fmt.Errorf("local: MaxModelLen is %d, it must be at least 2", o.MaxModelLen)
	case o.BlockSize < 8 || o.BlockSize%8 != 0:
		return o, fmt.Errorf("local: BlockSize is %d, it must be a multiple of 8", o.BlockSize)
	case o.CacheTokens/o.BlockSize*o.BlockSize < o.MaxModelLen:
		return o, fmt.Errorf("local: CacheTokens %d in blocks of %d do not hold one sequence of MaxModelLen %d", o.CacheTokens, o.BlockSize, o.MaxModelLen)
	case o.MaxSequences < 1 || o.StepTokens < o.MaxSequences:
		return o, fmt.Errorf("local: MaxSequences is %d and StepTokens is %d, allowed are at least 1 and at least MaxSequences", o.MaxSequences, o.StepTokens)
	case o.Threads < 0:
		return o, fmt.Errorf("local: Threads is %d, it must be at least 0 (the default)", o.Threads)
	}
	return o, nil
}

func start(cache stepper, vocab int, o Options) *Engine {
	e := &Engine{options: o, vocab: vocab, cache: cache, invariant: cache.BatchInvariant(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	l := newLoop(e)
	e.stats = Stats{Blocks: l.pool.total(), Version: o.Version}
	e.joined.Go(l.run)
	return e
}

// Capabilities implements engines.Engine.
func (e *Engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, WeightUpdates: true, SharedParameters: true, BatchInvariant: e.invariant, Constraints: true, Top: e.vocab, MaxModelLen: e.options.MaxModelLen}
}

// Stats returns a snapshot as of the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Waiting += len(e.incoming)
	return s
}

// Load implements engines.Loaded.
func (e *Engine) Load() []engines.Load {
	s := e.Stats()
	return []engines.Load{{Running: s.Running, Slots: e.options.MaxSequences, Waiting: s.Waiting}}
}

// Generate implements engines.Engine. A cancelled request leaves before the next step.
func (e *Engine) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	if err := e.check(r); err != nil {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, err)
	}
	s, err := e.newSequence(ctx, &r)
	if err == nil && !s.over() {
		err = e.submit(s)
	}
	if err != nil {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, err)
	}
	return s.completion, nil
}

// Logprobs implements engines.Logprober. Nothing of it is found in the cache: every row is computed.
func (e *Engine) Logprobs(ctx context.Context, ids []int32) ([]float32, error) {
	if len(ids) < 2 {
		return nil, fmt.Errorf("local: logprobs: %d tokens predict nothing; at least 2 are needed", len(ids))
	}
	if len(ids) > e.options.MaxModelLen {
		return nil, fmt.Errorf("local: logprobs: %d tokens of %d: %w", len(ids), e.options.MaxModelLen, engines.ErrTooLong)
	}
	if err := e.checkIDs(ids); err != nil {
		return nil, fmt.Errorf("local: logprobs: %w", err)
	}
	n := len(ids) - 1
	s := &sequence{ctx: ctx, id: "logprobs", prompt: n, tokens: append([]int32(nil), ids[:n]...), targets: append([]int32(nil), ids[1:]...), done: make(chan struct{})}
	if err := e.submit(s); err != nil {
		return nil, fmt.Errorf("local: logprobs: %w", err)
	}
	return s.completion.Logprobs, nil
}

// newSequence copies what it keeps of r.
func (e *Engine) newSequence(ctx context.Context, r *engines.Request) (*sequence, error) {
	form, err := newForm(r, e.vocab)
	if err != nil {
		return nil, err
	}
	s := &sequence{
		form: form,
		ctx:  ctx, id: r.ID, sampling: r.Sampling, seed: r.Seed, top: r.Top, prompt: len(r.Prompt) - r.Sampled, done: make(chan struct{}),
		tokens: append(make([]int32, 0, len(r.Prompt)+min(r.Sampling.MaxTokens, 256)), r.Prompt...),
	}
	s.media = append([]trajectory.Medium(nil), r.Media...)
	s.sampling.StopIDs = append([]int32(nil), r.Sampling.StopIDs...)
	s.sampling.Stop = append([]string(nil), r.Sampling.Stop...)
	if r.Sampling.Penalized() {
		s.penalties = &penalties{vocab: e.vocab}
	}
	for _, id := range r.Prompt[s.prompt:] { // a stop string may begin in what was sampled before
		if len(r.Sampling.Stop) > 0 {
			s.text = append(s.text, e.options.Decoder.Bytes(id)...)
		}
	}
	return s, nil
}

// submit hands the sequence to the loop and waits for its end.
func (e *Engine) submit(s *sequence) error {
	if err := e.enqueue(s); err != nil {
		return err
	}
	select {
	case <-s.done:
		return s.err
	case <-s.ctx.Done():
		e.poke()
		return s.ctx.Err()
	}
}

// enqueue hands the sequence to the loop.
func (e *Engine) enqueue(s *sequence) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return engines.ErrClosed
	}
	e.incoming = append(e.incoming, s)
	e.mu.Unlock()
	e.poke()
	return nil
}

func (e *Engine) check(r engines.Request) error {
	if err := r.ValidateText(); err != nil {
		return err
	}
	if err := r.ValidateTop(e.vocab); err != nil {
		return err
	}
	if len(r.Prompt) >= e.options.MaxModelLen {
		return fmt.Errorf("%d tokens of %d leave no room: %w", len(r.Prompt), e.options.MaxModelLen, engines.ErrTooLong)
	}
	if len(r.Sampling.Stop) > 0 && e.options.Decoder == nil {
		return errors.New("stop strings need a decoder, this engine has none; use stop token ids")
	}
	if r.Sampling.MinTokens > 0 && len(r.Sampling.StopIDs) >= e.vocab && stopsAll(r.Sampling.StopIDs, e.vocab) {
		return fmt.Errorf("min_tokens is %d, but every one of the %d tokens is a stop id: none could be sampled", r.Sampling.MinTokens, e.vocab)
	}
	return e.checkIDs(r.Prompt)
}

func (e *Engine) checkIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= e.vocab {
			return fmt.Errorf("%w: prompt token %d is %d, allowed are 0 to %d", engines.ErrRefused, i, id, e.vocab-1)
		}
	}
	return nil
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// barrier holds the loop between two steps.
type barrier struct {
	reached  chan struct{} // closed by the loop
	release  chan *int32   // buffered: the new version, nil when nothing changed
	finished chan struct{} // closed by the loop: new tokens carry the version
}

// Update implements engines.Engine: it runs w.Apply between two steps, forgets the cache, and the running sequences are
// computed again with the new weights. After an error the old version serves on.
func (e *Engine) Update(ctx context.Context, w engines.Weights) error {
	if w.Apply == nil {
		return errors.New("local: update: Apply is missing; this engine shares the trainer's parameters and reads no files")
	}
	b := &barrier{reached: make(chan struct{}), release: make(chan *int32, 1), finished: make(chan struct{})}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fmt.Errorf("local: update: %w", engines.ErrClosed)
	}
	e.barriers = append(e.barriers, b)
	e.mu.Unlock()
	e.poke()
	select {
	case <-b.reached:
	case <-e.done:
		return fmt.Errorf("local: update: %w", engines.ErrClosed)
	case <-ctx.Done():
		b.release <- nil
		return fmt.Errorf("local: update: %w", ctx.Err())
	}
	err := apply(ctx, w)
	if err != nil {
		b.release <- nil
		return fmt.Errorf("local: update to version %d: %w", w.Version, err)
	}
	b.release <- &w.Version
	<-b.finished
	return nil
}

func apply(ctx context.Context, w engines.Weights) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("apply panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return w.Apply(ctx)
}

// Close implements engines.Engine. It waits for the step that runs.
func (e *Engine) Close() error {
	var err error
	e.close.Do(func() {
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.poke()
		e.joined.Wait()
		err = e.cache.Close()
	})
	e.joined.Wait()
	return err
}
