package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// Engine is an engine that samples completions once more as they were recorded: each token with the weights of the policy
// version that sampled it then. A completion that went on over updates is sampled in parts, each of which waits for its
// version; new weights wait until every recorded token of the present ones is sampled. What differs from the record is an
// error that names the first token.
type Engine struct {
	engines.Engine

	mu      sync.Mutex
	version int32
	changed chan struct{} // closed and made anew at each change of what follows
	left    map[int32]int // recorded tokens of a version that are not sampled again yet
	record  map[string]*trajectory.Trajectory
	err     error               // the first difference
	begun   func(version int32) // called when new weights are there
}

// Difference is a difference from the record.
type Difference struct {
	id          string // of a trajectory; "": none in particular
	turn, token int    // token of the completion; -1: none in particular
	text        string
}

func (d *Difference) Error() string {
	switch {
	case d.id == "":
		return d.text
	case d.token < 0:
		return fmt.Sprintf("trajectory %s, turn %d: %s", d.id, d.turn, d.text)
	}
	return fmt.Sprintf("trajectory %s, turn %d, token %d of its completion: %s", d.id, d.turn, d.token, d.text)
}

func NewEngine(e engines.Engine, version int32) *Engine {
	return &Engine{Engine: e, version: version, changed: make(chan struct{}), left: map[int32]int{}, record: map[string]*trajectory.Trajectory{}}
}

// Expect adds a recorded trajectory, whose tokens are then to be sampled.
func (a *Engine) Expect(t *trajectory.Trajectory) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record[t.ID] = t
}

// recorded is a trajectory that is expected.
func (a *Engine) recorded(id string) *trajectory.Trajectory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.record[id]
}

// forget drops a trajectory that is done.
func (a *Engine) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.record, id)
}

// count adds a trajectory's tokens to those that are left, and returns how many they are: those of turns, and of their beginnings, that another
// trajectory of its tree sampled are that one's.
func (a *Engine) count(t *trajectory.Trajectory) (tokens int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	shared := make([]int, len(t.Samples)) // tokens of each sample that are others'
	for i := range t.Turns {
		turn := &t.Turns[i]
		if turn.SharedBy() != "" && turn.SharedBy() != t.ID {
			shared[turn.Sample] = turn.CompletionEnd
		} else if n := turn.BegunTokens(); n > 0 {
			shared[turn.Sample] = turn.CompletionStart + n
		}
	}
	for k, s := range t.Samples {
		for i := shared[k]; i < s.Len(); i++ {
			if s.ResponseMask[i] {
				a.left[s.PolicyVersion[i]]++
				tokens++
			}
		}
	}
	return tokens
}

// fail ends every wait with the first error.
func (a *Engine) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
		a.wake()
	}
}

// failed is the first error.
func (a *Engine) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// wake lets those who wait look again. The lock is held.
func (a *Engine) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait returns when ready is true, which is called with the lock held.
func (a *Engine) wait(ctx context.Context, ready func() bool) error {
	for {
		a.mu.Lock()
		err, ok, changed := a.err, ready(), a.changed
		a.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Generate implements engines.Engine.
func (a *Engine) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	c, err := a.generate(ctx, r)
	if err != nil {
		a.fail(err)
	}
	return c, err
}

func (a *Engine) generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	var out engines.Completion
	at := strings.LastIndexByte(r.ID, '-')
	turn, err := strconv.Atoi(r.ID[at+1:])
	if err != nil {
		return out, fmt.Errorf("orchestrator: replay: request %q names no turn", r.ID)
	}
	id := r.ID[:at]
	a.mu.Lock()
	rec := a.record[id]
	a.mu.Unlock()
	if rec == nil || turn >= len(rec.Turns) {
		return out, &Difference{id, turn, -1, "it was not recorded"}
	}
	of := rec.Turns[turn]
	s, start := rec.Samples[of.Sample], of.CompletionStart+of.BegunTokens() // the prompt has what others began it with
	switch {
	case !(trajectory.Prefix{IDs: r.Prompt, Media: r.Media}).Equal(s.Prefix(start)):
		return out, &Difference{id, turn, -1, "its prompt has other tokens than the recorded one; the job's prompt, tools or model changed since"}
	case r.Seed != of.Seed:
		return out, &Difference{id, turn, -1, fmt.Sprintf("its seed is %d, recorded is %d; the job's seed changed since", r.Seed, of.Seed)}
	}
	versions := s.PolicyVersion[start:of.CompletionEnd]
	for n := 0; n < len(versions); {
		end := n
		for end < len(versions) && versions[end] == versions[n] {
			end++
		}
		c, err := a.part(ctx, r, s.TokenIDs[start:start+n], versions[n], end-n, end == len(versions))
		if err != nil {
			return out, err
		}
		if err := compareTokens(id, turn, of.BegunTokens()+n, c, s, start+n, end-n); err != nil {
			return out, err
		}
		out.TokenIDs, out.Logprobs, out.Versions = append(out.TokenIDs, c.TokenIDs...), append(out.Logprobs, c.Logprobs...), append(out.Versions, c.Versions...)
		out.FinishReason = c.FinishReason
		n = end
		a.mu.Lock()
		a.left[c.Versions[0]] -= len(c.TokenIDs)
		a.wake()
		a.mu.Unlock()
	}
	if out.FinishReason != of.FinishReason {
		return out, &Difference{id, turn, -1, fmt.Sprintf("the completion ends with %q, recorded is %q", out.FinishReason, of.FinishReason)}
	}
	return out, nil
}

// part samples n more tokens of a completion with the weights of a version; of the last part, as many as come.
func (a *Engine) part(ctx context.Context, r engines.Request, sampled []int32, version int32, n int, last bool) (engines.Completion, error) {
	if err := a.wait(ctx, func() bool { return a.version >= version }); err != nil {
		return engines.Completion{}, err
	}
	r.Prompt, r.Sampled = slices.Concat(r.Prompt, sampled), len(sampled)
	if r.Sampling.MaxTokens -= len(sampled); !last {
		r.Sampling.MaxTokens = n
	}
	return a.Engine.Generate(ctx, r)
}

// compareTokens holds n tokens of a completion, from its token first on, against those of a sample from position at on.
func compareTokens(id string, turn, first int, c engines.Completion, s *trajectory.Sample, at, n int) error {
	for i := range min(n, len(c.TokenIDs)) {
		text := ""
		switch {
		case c.TokenIDs[i] != s.TokenIDs[at+i]:
			text = fmt.Sprintf("sampled is %d, recorded is %d", c.TokenIDs[i], s.TokenIDs[at+i])
		case math.Float32bits(c.Logprobs[i]) != math.Float32bits(s.SamplingLogprobs[at+i]):
			text = fmt.Sprintf("its logprob is %v, recorded is %v", c.Logprobs[i], s.SamplingLogprobs[at+i])
		case c.Versions[i] != s.PolicyVersion[at+i]:
			text = fmt.Sprintf("policy version %d sampled it, recorded is %d", c.Versions[i], s.PolicyVersion[at+i])
		default:
			continue
		}
		return &Difference{id, turn, first + i, text}
	}
	if len(c.TokenIDs) != n {
		return &Difference{id, turn, first + min(n, len(c.TokenIDs)), fmt.Sprintf("%d tokens came, recorded are %d", first+len(c.TokenIDs), first+n)}
	}
	return nil
}

// Update implements engines.Engine: it waits for the tokens of the present weights.
func (a *Engine) Update(ctx context.Context, w engines.Weights) error {
	var missing error
	err := a.wait(ctx, func() bool {
		for version, n := range a.left {
			if version <= a.version && n > 0 {
				return false
			}
			if version <= a.version && n < 0 {
				missing = errors.New("orchestrator: replay: more tokens were sampled than recorded")
				return true
			}
		}
		return true
	})
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	if err := a.Engine.Update(ctx, w); err != nil {
		return err
	}
	a.mu.Lock()
	a.version = w.Version
	a.wake()
	a.mu.Unlock()
	a.begun(w.Version)
	return nil
}
