// Package scripted is an engine for unit tests: a Go function answers the requests. It keeps the engine's contract
// (stop ids, lengths, versions, cancellation, closing), so what runs on it runs on a real engine.
//
// It does not compute with a model.
package scripted

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// Options configure an engine.
type Options struct {
	// Respond answers a request; it is called concurrently, and r is the callee's own copy. Of the completion only TokenIDs
	// is needed: missing Logprobs are 0, missing Versions the engine's, a missing Top the token itself and the ids after it, each
	// less likely by a nat, and without a FinishReason the ids end at the first stop id, completed stop string or MaxTokens.
	Respond     func(r engines.Request) (engines.Completion, error)
	Delay       time.Duration            // before each answer
	MaxModelLen int                      // 0: 4096
	Version     int32                    // policy version at the start
	Decode      func(ids []int32) string // for stop strings; nil: requests with stop strings are refused
	TokenDelay  time.Duration            // before each token of an answer but the first
}

// Engine implements engines.Engine.
type Engine struct {
	options Options
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.RWMutex // held for reading by an answer, for writing by an update
	versions int32
	log      struct {
		sync.Mutex
		closed   bool
		requests []engines.Request
	}
}

var (
	_ engines.Engine   = (*Engine)(nil)
	_ engines.Streamer = (*Engine)(nil)
)

// New returns an engine. Respond must be set.
func New(o Options) *Engine {
	if o.MaxModelLen == 0 {
		o.MaxModelLen = 4096
	}
	e := &Engine{options: o, versions: o.Version}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Requests returns copies of all accepted requests, in the order of their arrival.
func (e *Engine) Requests() []engines.Request {
	e.log.Lock()
	defer e.log.Unlock()
	return slices.Clone(e.log.requests)
}

// Capabilities implements engines.Engine.
func (e *Engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, WeightUpdates: true, SharedParameters: true, BatchInvariant: true, Top: mostTop, MaxModelLen: e.options.MaxModelLen}
}

// Generate implements engines.Engine.
func (e *Engine) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	return e.named(ctx, r, engines.Detail{}, func([]engines.Token) {})
}

// named is generate whose errors name the request.
func (e *Engine) named(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	c, err := e.generate(ctx, r, d, on)
	if err != nil {
		return engines.Completion{}, fmt.Errorf("scripted: request %s: %w", r.ID, err)
	}
	return c, nil
}

// mostTop is how many alternatives are told.
const mostTop = 1000

// alternatives are the token itself and the ids after it, each less likely by a nat.
func alternatives(id int32, logprob float32, n int) (out []engines.Alternative) {
	for i := range n {
		out = append(out, engines.Alternative{ID: id + int32(i), Logprob: logprob - float32(i)})
	}
	return out
}

// Stream implements engines.Streamer: one token a piece.
func (e *Engine) Stream(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	if r.Top != 0 {
		return engines.Completion{}, fmt.Errorf("scripted: request %s: %w", r.ID, engines.ErrStreamTop)
	}
	return e.named(ctx, r, d, on)
}

func (e *Engine) generate(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	if err := r.ValidateFree(); err != nil {
		return engines.Completion{}, err
	}
	if err := r.ValidateTop(mostTop); err != nil {
		return engines.Completion{}, err
	}
	if r.Sampled != 0 {
		return engines.Completion{}, errors.New("a script cannot go on within a completion")
	}
	if len(r.Prompt) >= e.options.MaxModelLen {
		return engines.Completion{}, fmt.Errorf("%d tokens of %d leave no room: %w", len(r.Prompt), e.options.MaxModelLen, engines.ErrTooLong)
	}
	if len(r.Sampling.Stop) > 0 && e.options.Decode == nil {
		return engines.Completion{}, errors.New("stop strings need Options.Decode")
	}
	r.Prompt = slices.Clone(r.Prompt)
	r.Sampling.StopIDs, r.Sampling.Stop = slices.Clone(r.Sampling.StopIDs), slices.Clone(r.Sampling.Stop)
	e.log.Lock()
	if e.log.closed {
		e.log.Unlock()
		return engines.Completion{}, engines.ErrClosed
	}
	e.running.Add(1)
	e.log.requests = append(e.log.requests, r)
	e.log.Unlock()
	defer e.running.Done()
	if err := e.wait(ctx, e.options.Delay); err != nil {
		return engines.Completion{}, err
	}
	c, own, err := e.answer(ctx, r)
	if err != nil {
		return engines.Completion{}, err
	}
	for i, id := range c.TokenIDs {
		if i > 0 && e.options.TokenDelay > 0 {
			if err := e.wait(ctx, e.options.TokenDelay); err != nil {
				return engines.Completion{}, err
			}
		}
		if i > 0 && !own { // an update may have come
			if err := e.lock(ctx); err != nil {
				return engines.Completion{}, err
			}
			c.Versions[i] = e.versions
			e.mu.RUnlock()
		}
		t := engines.Token{ID: id, Logprob: c.Logprobs[i], Version: c.Versions[i], Top: alternatives(id, c.Logprobs[i], d.Top)}
		on([]engines.Token{t})
	}
	return c, nil
}

// answer asks Respond; own says that the versions are Respond's.
func (e *Engine) answer(ctx context.Context, r engines.Request) (c engines.Completion, own bool, err error) {
	if err := e.lock(ctx); err != nil {
		return c, false, err
	}
	defer e.mu.RUnlock()
	if c, err = e.options.Respond(r); err != nil {
		return c, false, err
	}
	own = c.Versions != nil
	c, err = e.complete(c, r)
	return c, own, err
}

func (e *Engine) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return engines.ErrClosed
	}
}

// lock takes mu for reading; an update may hold it for long, and a request can be cancelled meanwhile.
func (e *Engine) lock(ctx context.Context) error {
	for !e.mu.TryRLock() {
		if err := e.wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// complete fills in what Respond left out.
func (e *Engine) complete(c engines.Completion, r engines.Request) (engines.Completion, error) {
	n := len(c.TokenIDs)
	if n == 0 {
		return c, errors.New("the Respond function returned no tokens")
	}
	if c.Logprobs == nil {
		c.Logprobs = make([]float32, n)
	}
	if c.Versions == nil {
		c.Versions = slices.Repeat([]int32{e.versions}, n)
	}
	if len(c.Logprobs) != n || len(c.Versions) != n {
		return c, fmt.Errorf("the Respond function returned %d tokens, %d logprobs and %d versions", n, len(c.Logprobs), len(c.Versions))
	}
	switch {
	case r.Top == 0:
		c.Top = nil
	case c.Top == nil:
		for i, id := range c.TokenIDs {
			c.Top = append(c.Top, alternatives(id, c.Logprobs[i], r.Top))
		}
	case len(c.Top) != n:
		return c, fmt.Errorf("the Respond function returned %d tokens and the likeliest ones at %d places", n, len(c.Top))
	}
	if c.FinishReason != "" {
		return c, nil
	}
	most := min(r.Sampling.MaxTokens, e.options.MaxModelLen-len(r.Prompt))
	for i, id := range c.TokenIDs {
		stop := slices.Contains(r.Sampling.StopIDs, id) || e.stops(c.TokenIDs[:i+1], r.Sampling.Stop)
		if !stop && i+1 < most && i+1 < n {
			continue
		}
		c.TokenIDs, c.Logprobs, c.Versions = c.TokenIDs[:i+1], c.Logprobs[:i+1], c.Versions[:i+1]
		if c.Top != nil {
			c.Top = c.Top[:i+1]
		}
		c.FinishReason = trajectory.FinishLength
		if stop || i+1 < most { // the script's own end is a stop
			c.FinishReason = trajectory.FinishStop
		}
		break
	}
	return c, nil
}

func (e *Engine) stops(ids []int32, stops []string) bool {
	if len(stops) == 0 {
		return false
	}
	text := []byte(e.options.Decode(ids))
	return slices.ContainsFunc(stops, func(s string) bool { return len(s) <= len(text) && slices.Contains(windows(text, len(s)), s) })
}

func windows(text []byte, n int) []string {
	var out []string
	for i := 0; i+n <= len(text); i++ {
		out = append(out, string(text[i:i+n]))
	}
	return out
}

// Update implements engines.Engine.
func (e *Engine) Update(ctx context.Context, w engines.Weights) error {
	e.log.Lock()
	closed := e.log.closed
	e.log.Unlock()
	if closed {
		return fmt.Errorf("scripted: update: %w", engines.ErrClosed)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("scripted: update: %w", err)
	}
	if w.Apply != nil {
		if err := w.Apply(ctx); err != nil {
			return fmt.Errorf("scripted: update to version %d: %w", w.Version, err)
		}
	}
	e.versions = w.Version
	return nil
}

// Close implements engines.Engine.
func (e *Engine) Close() error {
	e.log.Lock()
	e.log.closed = true
	e.log.Unlock()
	e.cancel()
	e.running.Wait()
	return nil
}

// Tokens is a completion of these ids; the engine fills in the rest.
func Tokens(ids ...int32) engines.Completion { return engines.Completion{TokenIDs: ids} }

// Replies returns a Respond that gives the n-th request of a session the n-th reply; a session without replies left is an
// error. Sessions do not disturb each other, whatever the timing.
func Replies(replies ...[]int32) func(engines.Request) (engines.Completion, error) {
	var mu sync.Mutex
	turn := map[string]int{}
	return func(r engines.Request) (engines.Completion, error) {
		mu.Lock()
		defer mu.Unlock()
		n := turn[r.Session]
		if n >= len(replies) {
			return engines.Completion{}, fmt.Errorf("session %q asks for turn %d, the script has %d", r.Session, n, len(replies))
		}
		turn[r.Session]++
		return Tokens(slices.Clone(replies[n])...), nil
	}
}

// Model returns a Respond that is a pseudo-random model of this vocabulary: each id follows from what is before it and
// the seed (not when greedy), all with the same probability. It never ends by itself.
func Model(vocab int) func(engines.Request) (engines.Completion, error) {
	return func(r engines.Request) (engines.Completion, error) {
		h := fnv.New64a()
		write := func(v uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v)) } // a hash never fails
		for _, id := range r.Prompt {
			write(uint64(id))
		}
		if r.Sampling.Temperature > 0 {
			write(r.Seed)
		}
		var c engines.Completion
		for range r.Sampling.MaxTokens {
			id := int32(h.Sum64() >> 16 % uint64(vocab))
			write(uint64(id))
			c.TokenIDs = append(c.TokenIDs, id)
			c.Logprobs = append(c.Logprobs, float32(-math.Log(float64(vocab))))
		}
		return c, nil
	}
}
