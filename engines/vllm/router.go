package vllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
)

// Generate implements engines.Engine. What may pass (a lost connection, 429, 5xx, an unusable reply, a replica that went
// out of service) is tried again, on another replica if there is one; what cannot pass is returned at once.
func (e *Engine) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	c, err := e.generate(ctx, q)
	if err != nil {
		return engines.Completion{}, fmt.Errorf("vllm: request %s: %w", q.ID, err)
	}
	return c, nil
}

func (e *Engine) generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	if err := q.ValidateFree(); err != nil {
		return engines.Completion{}, err
	}
	if err := e.check(&q); err != nil {
		return engines.Completion{}, err
	}
	var c engines.Completion
	err := e.attempts(ctx, q.Session, func(ctx context.Context, r *replica) (err error) {
		c, err = r.generate(ctx, q)
		return err
	})
	return c, err
}

// Logprobs implements engines.Logprober. ids must be shorter than the context: vLLM samples a token with every prompt.
func (e *Engine) Logprobs(ctx context.Context, ids []int32) ([]float32, error) {
	out, err := e.logprobs(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("vllm: logprobs: %w", err)
	}
	return out, nil
}

func (e *Engine) logprobs(ctx context.Context, ids []int32) (out []float32, err error) {
	if len(ids) < 2 || slices.Min(ids) < 0 {
		return nil, fmt.Errorf("%d ids; a logprob needs a token and one before it, none negative", len(ids))
	}
	if most := e.Capabilities().MaxModelLen; len(ids) >= most {
		return nil, fmt.Errorf("%d tokens of %d leave no room: %w", len(ids), most, engines.ErrTooLong)
	}
	err = e.attempts(ctx, "", func(ctx context.Context, r *replica) error {
		got, versions, err := r.ask(ctx, func(ctx context.Context, model string) (reply, error) { return r.sendLogprobs(ctx, model, ids) })
		if err == nil {
			_, err = r.sampledBy(ctx, got, versions)
		}
		out = got.prompt
		return err
	})
	return out, err
}

// check refuses what the servers would answer wrongly, and cuts MaxTokens to what fits.
func (e *Engine) check(q *engines.Request) error {
	room := e.Capabilities().MaxModelLen - len(q.Prompt)
	if room < 1 {
		return fmt.Errorf("%d tokens of %d leave no room: %w", len(q.Prompt), e.Capabilities().MaxModelLen, engines.ErrTooLong)
	}
	if q.Sampled != 0 {
		return errors.New("a server cannot go on within a completion as if it had not ended")
	}
	s := &q.Sampling
	s.MaxTokens = min(s.MaxTokens, room)
	if s.Temperature > 0 && s.Temperature < 0.01 {
		return fmt.Errorf("temperature is %v; vLLM raises temperatures below 0.01 to 0.01, so its logprobs would be of another distribution; use 0 or at least 0.01", s.Temperature)
	}
	plain := !s.Penalized() && (s.Temperature == 0 || s.Temperature == 1 && s.TopP == 1 && s.TopK == 0 && s.MinP == 0)
	for _, r := range e.replicas {
		if !plain && !r.info().Processed {
			return fmt.Errorf("%s returns the model's logprobs, not those of what is sampled, so temperature must be 1 (or 0) and top_p, top_k, min_p, min_tokens and penalties off; start vLLM with --logprobs-mode processed_logprobs", r.url)
		}
	}
	return nil
}

// attempts does something on one replica after another until it succeeds, cannot succeed, or the time is over.
func (e *Engine) attempts(ctx context.Context, session string, do func(context.Context, *replica) error) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	var last error
	var avoid *replica
	backoff := retry.Backoff{First: e.options.Backoff, Most: 5 * time.Second}
	left := 0 // attempts that another request's failure ended: they say nothing of this one
	for n := 0; n < e.options.Attempts+left; n++ {
		if n > 0 {
			if err := e.backOff(ctx, pauseAfter(last, backoff.Wait(n))); err != nil {
				return e.orClosed(fmt.Errorf("%w after %d attempts; the last: %w", err, n, last))
			}
		}
		if err := e.place(ctx); err != nil {
			return e.orClosed(since(last, err))
		}
		var r *replica
		done := make(chan error)
		go func() { // net/http wants 16 KB of stack, which every trajectory would keep between its requests
			var err error
			r, err = e.attempt(ctx, session, avoid, do)
			done <- err
		}()
		err := <-done
		<-e.places
		switch {
		case err == nil:
			return nil
		case r == nil:
			return e.orClosed(since(last, err))
		case ctx.Err() != nil || e.ctx.Err() != nil:
			return e.orClosed(fmt.Errorf("%s: %w", r.url, ctx.Err()))
		}
		if errors.Is(err, engines.ErrForeign) {
			e.lose(r, err)
			return e.isLost()
		}
		last, avoid = fmt.Errorf("%s: %w", r.url, err), r
		if errors.Is(err, errLeft) && left < mostLeft {
			left++
		}
		if !passing(err) {
			return last
		}
		if lost(err) {
			r.fail(down, err)
		}
	}
	return fmt.Errorf("%d attempts failed; the last: %w", e.options.Attempts+left, last)
}

// since names the last attempt, if there was one, beside what ended them all.
func since(last, err error) error {
	if last != nil {
		return fmt.Errorf("%w; the last attempt: %w", err, last)
	}
	return err
}

// place waits for a place among the requests in flight. Places go to who waits longest, so that no task starves beside one
// with many trajectories; what waits holds nothing but its prompt.
func (e *Engine) place(ctx context.Context) error {
	select {
	case e.places <- struct{}{}: // a channel serves its senders in their order
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return engines.ErrClosed
	}
}

// attempt does something on one replica; nil: none serves.
func (e *Engine) attempt(ctx context.Context, session string, avoid *replica, do func(context.Context, *replica) error) (*replica, error) {
	ctx, cancel := e.untilClosed(ctx)
	defer cancel()
	r, err := e.pick(ctx, session, avoid)
	if err != nil {
		return nil, err
	}
	defer e.release(r)
	watchdog.Move(ctx, r.part)
	return r, do(ctx, r)
}

// mostLeft bounds how often a request follows a server that comes and goes.
const mostLeft = 100

// pauseAfter is how long to wait after a failed attempt.
func pauseAfter(err error, backoff time.Duration) time.Duration {
	var status *statusError
	switch {
	case errors.As(err, &status) && status.RetryAfter > 0:
		return status.RetryAfter
	case errors.Is(err, errLeft) || errors.Is(err, errMixed):
		return 0
	}
	return backoff
}

// backOff is a pause that Close ends.
func (e *Engine) backOff(ctx context.Context, d time.Duration) error {
	ctx, cancel := e.untilClosed(ctx)
	defer cancel()
	return retry.Pause(ctx, d)
}

// passing tells whether another attempt may succeed.
func passing(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.Status >= 500 && status.Status != http.StatusNotImplemented ||
			slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status.Status)
	}
	return true
}

// lost tells whether the connection failed, so that nobody else should try the server until it is looked at. A deadline is
// no such thing: one request may hang where others do not.
func lost(err error) bool {
	var transport *url.Error
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.As(err, &transport) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// pick takes a place on the replica of the session, or else on the least loaded one, and waits while none serves. avoid
// is taken only if no other serves.
func (e *Engine) pick(ctx context.Context, session string, avoid *replica) (*replica, error) {
	waiting := time.Duration(0)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := e.isLost(); err != nil {
			return nil, err
		}
		changes := e.changes() // before looking, so that no change is missed
		if r := e.choose(session, avoid); r != nil {
			return r, nil
		}
		e.mu.Lock()
		failed := e.failed
		e.mu.Unlock()
		if failed != nil {
			return nil, fmt.Errorf("no replica serves since an update failed: %w", failed)
		}
		if gone := e.options.Gone(); gone != nil && e.allDown() {
			return nil, fmt.Errorf("no replica serves: %w", gone)
		}
		if waiting >= e.options.Patience {
			return nil, fmt.Errorf("no replica serves: %s", e.reasons())
		}
		start := time.Now()
		wait(ctx, changes, min(time.Second, e.options.Patience))
		if !e.busy() { // an update has deadlines of its own, and training lasts as long as it lasts
			waiting += time.Since(start)
		}
	}
}

func (e *Engine) changes() []chan struct{} {
	out := make([]chan struct{}, len(e.replicas))
	for i, r := range e.replicas {
		r.mu.Lock()
		out[i] = r.changed
		r.mu.Unlock()
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
func (e *Engine) busy() bool {
	return slices.ContainsFunc(e.replicas, func(r *replica) bool { s, _ := r.status(); return s == updating || s == asleep })
}

func (e *Engine) allDown() bool {
	return !slices.ContainsFunc(e.replicas, func(r *replica) bool { s, _ := r.status(); return s != down })
}

func (e *Engine) reasons() string {
	var out []string
	for _, r := range e.replicas {
		state, reason := r.status()
		out = append(out, fmt.Sprintf("%s is %s (%v)", r.url, state, reason))
	}
	return strings.Join(out, "; ")
}

// choose takes a place on a replica that serves, or returns nil.
func (e *Engine) choose(session string, avoid *replica) *replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	var best *replica
	most := 0
	home := e.sessions.of(session)
	for _, r := range e.replicas {
		r.mu.Lock()
		load, ok := r.load, r.state == serving
		r.mu.Unlock()
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
	e.sessions.set(session, best)
	best.mu.Lock()
	best.load++
	best.mu.Unlock()
	return best
}

func (e *Engine) release(r *replica) {
	r.mu.Lock()
	r.load--
	r.mu.Unlock()
}

// watch looks at a replica until the engine is closed: one that does not answer is taken out of service, one that answers
// again gets the current weights and proves them first.
func (e *Engine) watch(r *replica) {
	tick := time.NewTicker(e.options.HealthEvery)
	defer tick.Stop()
	slow := 0 // looks in a row without an answer in time
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
			slow = e.look(r, slow)
		}
	}
}

// mostSlow is how often in a row a replica may be too slow to answer a look: a busy one is not taken from its requests at
// the first time.
const mostSlow = 3

// look returns how many looks in a row were too slow.
func (e *Engine) look(r *replica, slow int) int {
	r.direct.prune()
	state, _ := r.status()
	if state == updating {
		return 0
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.options.HealthTimeout)
	err := r.call(ctx, http.MethodGet, "/health", nil, nil)
	if err == nil && state == serving && r.info().Control {
		err = e.sameVersion(ctx, r)
	}
	cancel()
	var wrong *versionError
	switch {
	case e.ctx.Err() != nil:
	case errors.Is(err, engines.ErrForeign):
		e.lose(r, err)
	case errors.As(err, &wrong):
		r.fail(behind, err)
	case errors.Is(err, context.DeadlineExceeded) && slow+1 < mostSlow:
		return slow + 1
	case err != nil:
		r.fail(down, err)
	case state == down || state == behind:
		e.bringBack(r)
	}
	return 0
}

// sameVersion notices a server that was restarted between two looks.
func (e *Engine) sameVersion(ctx context.Context, r *replica) error {
	r.mu.Lock()
	want := r.version
	r.mu.Unlock()
	got, err := r.weightVersion(ctx)
	r.mu.Lock()
	changed := got != want && r.version == want && r.state == serving
	r.mu.Unlock()
	if err == nil && changed {
		err = r.judge(got)
	}
	return err
}

// bringBack takes a replica into service again, with the current weights.
func (e *Engine) bringBack(r *replica) {
	select {
	case <-e.turn:
	default:
		return // an update is under way; the next look comes
	}
	defer func() { e.turn <- struct{}{} }()
	e.mu.Lock()
	current, failed, sleeping, foreign := e.current, e.failed, e.sleeping, e.lost
	e.mu.Unlock()
	if foreign != nil {
		return
	}
	if sleeping { // the device's memory is the trainer's; the next update looks for it
		return
	}
	if failed != nil { // an update that succeeds brings it back, if it answers
		r.set(behind, failed)
		return
	}
	if current == nil {
		err := r.isMine(e.ctx)
		if err == nil {
			err = r.start(e.ctx)
		}
		if err != nil {
			e.stay(r, down, err)
		}
		return
	}
	if err := e.rejoin(e.ctx, r); err != nil {
		e.stay(r, down, err)
		return
	}
	if err := e.load(e.ctx, r, *current, false, false); err != nil {
		e.stay(r, behind, err)
		return
	}
	r.adopt(e.options.versionName(current.Version), r.modelFor(e.way(current.Path)), current.Version)
	r.set(serving, nil)
}

// stay leaves a replica out of service that could not be brought back.
func (e *Engine) stay(r *replica, s condition, err error) {
	r.set(s, err)
	if errors.Is(err, engines.ErrForeign) {
		e.lose(r, err)
	}
}
