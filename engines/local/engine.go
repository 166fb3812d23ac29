// Package local samples in process with libtorch: continuous batching over a paged key/value cache with prefix reuse.
//
// One goroutine, locked to its OS thread, owns the cache and runs forwards; requests join and leave between two of them.
// The engine shares the trainer's parameters: Update runs the optimizer's write between two forwards, forgets the cached
// prefixes, and lets the running requests compute theirs anew under the new weights.
package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

// Decoder gives the bytes of a token, for stop strings.
type Decoder interface{ Bytes(id int32) []byte }

// Options of an engine.
type Options struct {
	BlockSize     int     // tokens of a cache block, a multiple of 8; default 16
	CacheTokens   int     // tokens of cache; default 32768
	MaxSequences  int     // sequences decoded at once; default 128
	MaxModelLen   int     // prompt plus completion; 0: as many as the cache holds
	PrefillTokens int     // most prompt tokens in one forward; default 512
	Deterministic bool    // a request's bits do not depend on what runs beside it
	Decoder       Decoder // needed for stop strings only
}

// Stats are counters since the start, and what runs now.
type Stats struct {
	Running, Waiting                                    int
	PromptTokens, CachedTokens, SampledTokens, Forwards int64
}

// Engine implements engines.Engine.
type Engine struct {
	options  Options
	cache    *cgo.Cache
	blocks   *blocks
	arrivals chan *sequence
	updates  chan update
	closed   chan struct{}
	once     sync.Once
	joined   sync.WaitGroup
	closeErr error

	version atomic.Int32
	running []*sequence // the loop's own
	waiting []*sequence

	statRunning, statWaiting          atomic.Int64
	prompt, cached, sampled, forwards atomic.Int64
}

var _ engines.Engine = (*Engine)(nil)

type update struct {
	ctx     context.Context
	weights engines.Weights
	done    chan error // buffered
}

// New makes an engine over a model, which the caller closes after the engine.
func New(m *cgo.Model, o Options) (*Engine, error) {
	if o.BlockSize == 0 {
		o.BlockSize = 16
	}
	if o.CacheTokens == 0 {
		o.CacheTokens = 32768
	}
	if o.MaxSequences == 0 {
		o.MaxSequences = 128
	}
	if o.PrefillTokens == 0 {
		o.PrefillTokens = 512
	}
	count := (o.CacheTokens + o.BlockSize - 1) / o.BlockSize
	if o.MaxModelLen == 0 || o.MaxModelLen > count*o.BlockSize {
		o.MaxModelLen = count * o.BlockSize
	}
	cache, err := cgo.NewCache(m, count, o.BlockSize)
	if err != nil {
		return nil, fmt.Errorf("engines/local: %w", err)
	}
	e := &Engine{
		options: o, cache: cache, blocks: newBlocks(count, o.BlockSize),
		arrivals: make(chan *sequence), updates: make(chan update), closed: make(chan struct{}),
	}
	e.joined.Go(e.loop)
	return e, nil
}

// Capabilities implements engines.Engine.
func (e *Engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, SharedParameters: true, BatchInvariant: e.options.Deterministic, MaxModelLen: e.options.MaxModelLen}
}

// Stats are safe to read at any time.
func (e *Engine) Stats() Stats {
	return Stats{
		Running: int(e.statRunning.Load()), Waiting: int(e.statWaiting.Load()), PromptTokens: e.prompt.Load(),
		CachedTokens: e.cached.Load(), SampledTokens: e.sampled.Load(), Forwards: e.forwards.Load(),
	}
}

// Generate implements engines.Engine.
func (e *Engine) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	s, err := e.newSequence(ctx, r)
	if err != nil {
		return engines.Completion{}, err
	}
	select {
	case e.arrivals <- s:
	case <-e.closed:
		return engines.Completion{}, engines.ErrClosed
	case <-ctx.Done():
		return engines.Completion{}, fmt.Errorf("engines/local: request %s: %w", r.ID, ctx.Err())
	}
	o := <-s.done // the loop answers every request it took: at once when ctx is done or the engine closes
	return o.completion, o.err
}

// Update implements engines.Engine. The weights must come as Apply: the parameters are shared.
func (e *Engine) Update(ctx context.Context, w engines.Weights) error {
	if w.Apply == nil {
		return errors.New("engines/local: update: this engine shares the trainer's parameters; set Weights.Apply")
	}
	u := update{ctx, w, make(chan error, 1)}
	select {
	case e.updates <- u:
		return <-u.done
	case <-e.closed:
		return engines.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("engines/local: update to version %d: %w", w.Version, ctx.Err())
	}
}

// Close implements engines.Engine.
func (e *Engine) Close() error {
	e.once.Do(func() {
		close(e.closed)
		e.joined.Wait()
		e.closeErr = e.cache.Close()
	})
	return e.closeErr
}

func (e *Engine) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer e.failAll(engines.ErrClosed)
	for {
		if len(e.running)+len(e.waiting) == 0 {
			select { // idle: nothing to do until somebody comes
			case s := <-e.arrivals:
				e.waiting = append(e.waiting, s)
			case u := <-e.updates:
				e.update(u)
			case <-e.closed:
				return
			}
		}
		for more := true; more; {
			select {
			case s := <-e.arrivals:
				e.waiting = append(e.waiting, s)
			case u := <-e.updates:
				e.update(u)
			case <-e.closed:
				return
			default:
				more = false
			}
		}
		e.dropCancelled()
		e.admit()
		e.forward()
		e.statRunning.Store(int64(len(e.running)))
		e.statWaiting.Store(int64(len(e.waiting)))
	}
}

// update runs between two forwards.
func (e *Engine) update(u update) {
	err := u.ctx.Err()
	if err == nil {
		err = u.weights.Apply(u.ctx)
	}
	if err != nil {
		u.done <- fmt.Errorf("engines/local: update to version %d: %w", u.weights.Version, err)
		return
	}
	e.version.Store(u.weights.Version)
	e.blocks.reset()
	for _, s := range e.running { // their keys and values are of the old weights
		s.computed, s.published, s.last = 0, 0, nil
	}
	for _, s := range e.waiting {
		for _, b := range s.blocks {
			e.blocks.release(b)
		}
		s.blocks, s.computed, s.published, s.last = nil, 0, 0, nil
	}
	u.done <- nil
}

func (e *Engine) failAll(err error) {
	for _, s := range append(e.running, e.waiting...) {
		e.end(s, err)
	}
	e.running, e.waiting = nil, nil
}
