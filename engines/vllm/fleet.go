package vllm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
)

// fleet are the replicas of one policy, and the weights that they are to have.
type fleet struct {
	replicas []*replica

	mu       sync.Mutex
	sessions *sessions
	wanted   wanted
}

// wanted is what the replicas are to have.
type wanted struct {
	current  *engines.Weights // proven by every replica that serves; nil before the first update
	failed   error            // of the last update: no replica serves until one succeeds
	lost     error            // another run took a server over; nothing is done from then on
	sleeping bool             // from Sleep to the next update that succeeds
}

func newFleet(o Options) *fleet {
	f := &fleet{sessions: newSessions()}
	for _, u := range o.URLs {
		f.replicas = append(f.replicas, newReplica(u, o))
	}
	return f
}

// start takes every server into service. All must answer and serve the same context length.
func (f *fleet) start(ctx context.Context) error {
	errs := make([]error, len(f.replicas))
	var all sync.WaitGroup
	for i, r := range f.replicas {
		all.Go(func() { errs[i] = r.start(ctx) })
	}
	all.Wait()
	for i, r := range f.replicas {
		if own := r.standing.info().MaxModelLen; errs[i] == nil && own != f.context() {
			errs[i] = fmt.Errorf("its context is %d tokens, that of %s %d; replicas must be alike", own, f.replicas[0].url, f.context())
		}
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", r.url, errs[i])
		}
	}
	return nil
}

// idle closes the connections, and ends what still uses one.
func (f *fleet) idle() {
	for _, r := range f.replicas {
		r.client.http.CloseIdleConnections()
		r.completer.direct.closeIdle(time.Now())
		r.standing.end()
	}
}

// context is how many tokens a request has, prompt and completion.
func (f *fleet) context() int { return f.replicas[0].standing.info().MaxModelLen }

// want is what the replicas are to have now.
func (f *fleet) want() wanted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// updated notes an update that succeeded.
func (f *fleet) updated(w engines.Weights) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted.current, f.wanted.failed, f.wanted.sleeping = &w, nil, false
}

// stopped notes an update that failed.
func (f *fleet) stopped(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted.failed = reason
}

// slept notes that every replica sleeps.
func (f *fleet) slept() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted.sleeping = true
}

// lose ends an engine whose servers another run took over. Loading the weights again would take them from that run, which
// would do the same: both would go on, each on what the other one's weights sampled in between.
func (f *fleet) lose(of *replica, err error) {
	if of != nil {
		err = fmt.Errorf("%s: %w", of.url, err)
	}
	f.mu.Lock()
	if f.wanted.lost == nil {
		f.wanted.lost = err
	}
	f.mu.Unlock()
	for _, r := range f.replicas {
		r.standing.fail(behind, err)
	}
}

// isLost is why the engine ended, or nil.
func (f *fleet) isLost() error { return f.want().lost }

// check refuses what the servers would answer wrongly, and cuts MaxTokens and MinTokens to what fits.
func (f *fleet) check(q *engines.Request) error {
	room := f.context() - len(q.Prompt)
	if room < 1 {
		return fmt.Errorf("%d tokens of %d leave no room: %w", len(q.Prompt), f.context(), engines.ErrTooLong)
	}
	if q.Sampled != 0 {
		return errors.New("a server cannot go on within a completion as if it had not ended")
	}
	if err := f.checkTop(q); err != nil {
		return err
	}
	s := &q.Sampling
	s.MaxTokens = min(s.MaxTokens, room)
	s.MinTokens = min(s.MinTokens, s.MaxTokens) // vLLM refuses more
	if s.Temperature > 0 && s.Temperature < 0.01 {
		return fmt.Errorf("temperature is %v; vLLM raises temperatures below 0.01 to 0.01, so its logprobs would be of another distribution; use 0 or at least 0.01", s.Temperature)
	}
	plain := !s.Penalized() && (s.Temperature == 0 || s.Temperature == 1 && s.TopP == 1 && s.TopK == 0 && s.MinP == 0)
	for _, r := range f.replicas {
		if server := r.standing.info(); !plain && server.sampled && !server.Processed {
			return fmt.Errorf("%s returns the model's logprobs, not those of what is sampled, so temperature must be 1 (or 0) and top_p, top_k, min_p, min_tokens and penalties off; start vLLM with --logprobs-mode processed_logprobs", r.url)
		}
	}
	return nil
}

// choose takes a place on a replica that serves, or returns nil.
func (f *fleet) choose(session string, avoid *replica) *replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	var best *replica
	most := 0
	home := f.sessions.of(session)
	for _, r := range f.replicas {
		load, ok := r.standing.busy()
		switch {
		case !ok || r == avoid && best != nil:
		case r == home && r != avoid:
			best, most = r, -1
		case best == nil || best == avoid || load < most:
			best, most = r, load
		}
	}
	if best == nil {
		return nil
	}
	f.sessions.set(session, best)
	best.standing.count(1)
	return best
}

// release gives back a place that choose took.
func (f *fleet) release(r *replica) { r.standing.count(-1) }

// changes are closed at the next change of each replica.
func (f *fleet) changes() []chan struct{} {
	out := make([]chan struct{}, len(f.replicas))
	for i, r := range f.replicas {
		out[i] = r.standing.change()
	}
	return out
}

// wait returns when one of the channels is closed, the time is over, or ctx is done.
func wait(ctx context.Context, changes []chan struct{}, most time.Duration) {
	watchdog.Move(ctx, "an engine replica that serves")
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range changes[1:] {
		all.Go(func() {
			select {
			case <-c:
				cancel()
			case <-ctx.Done():
			}
		})
	}
	select {
	case <-changes[0]:
	case <-ctx.Done():
	}
	cancel()
	all.Wait()
}

// busy tells whether a replica is only away for an update or asleep.
func (f *fleet) busy() bool {
	return slices.ContainsFunc(f.replicas, func(r *replica) bool { s, _ := r.standing.status(); return s == updating || s == asleep })
}

func (f *fleet) allDown() bool {
	return !slices.ContainsFunc(f.replicas, func(r *replica) bool { s, _ := r.standing.status(); return s != down })
}

func (f *fleet) away() bool {
	for _, r := range f.replicas {
		if s, _ := r.standing.status(); s == down || s == behind || s == updating {
			return true
		}
	}
	return false
}

func (f *fleet) reasons() string {
	var out []string
	for _, r := range f.replicas {
		state, reason := r.standing.status()
		one := fmt.Sprintf("%s is %s", r.url, state)
		if reason != nil {
			one = fmt.Sprintf("%s (%v)", one, reason)
		}
		out = append(out, one)
	}
	return strings.Join(out, "; ")
}
