package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
)

// Sleep implements engines.Sleeper: every replica gives its device memory back, until the next Update wakes it:
//
//	warm the cache ─► sleep, keeping requests in flight ─► is it asleep? ─► (level 2: name its weights unproven)
//	Update: wake the weights ─► load ─► name the version ─► empty the prefix cache ─► wake the cache ─► proof ─► serve
//
// The weights wake alone, so that the old cache and the new weights never lie in memory together; the proof comes last,
// because a server without a cache computes nothing. A replica that is away is waited for first, because it would take
// memory when it returns. On any error no replica serves.
func (e *Engine) Sleep(ctx context.Context) error {
	if err := e.sleep(ctx); err != nil {
		return fmt.Errorf("vllm: sleep: %w", err)
	}
	return nil
}

func (e *Engine) sleep(ctx context.Context) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	ctx, cancel := e.untilClosed(ctx)
	defer cancel()
	for _, r := range e.replicas {
		if !r.info().Sleep {
			return fmt.Errorf("%s has no routes to sleep and wake up; start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode", r.url)
		}
	}
	if err := e.isLost(); err != nil {
		return err
	}
	if err := e.allBack(ctx); err != nil {
		return e.orClosed(err)
	}
	e.mu.Lock()
	adapter := e.options.Way == WayLoRA || e.current != nil && e.way(e.current.Path) == WayLoRA
	e.mu.Unlock()
	if adapter && e.options.Sleep > 1 {
		return errors.New("level 2 drops the weights that the adapter comes on top of; use level 1")
	}
	return e.inTurn(ctx, func() error { return e.sleepAll(ctx) })
}

// allBack waits until no replica is away.
func (e *Engine) allBack(ctx context.Context) error {
	until := time.Now().Add(e.options.Patience)
	for {
		changes := e.changes()
		e.mu.Lock()
		failed, foreign := e.failed, e.lost
		e.mu.Unlock()
		gone := e.options.Gone()
		switch {
		case foreign != nil:
			return foreign
		case failed != nil:
			return fmt.Errorf("no replica serves since an update failed: %w", failed)
		case !e.away():
			return nil
		case gone != nil:
			return gone
		case time.Now().After(until):
			return fmt.Errorf("not every replica is back after %v, so its memory is not given back: %s", e.options.Patience, e.reasons())
		}
		wait(ctx, changes, min(time.Second, e.options.HealthEvery))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (e *Engine) away() bool {
	for _, r := range e.replicas {
		if s, _ := r.status(); s == down || s == behind || s == updating {
			return true
		}
	}
	return false
}

func (e *Engine) sleepAll(ctx context.Context) error {
	errs := make([]error, len(e.replicas))
	var all sync.WaitGroup
	for i, r := range e.replicas {
		r.set(updating, nil)
		all.Go(func() { errs[i] = e.layDown(ctx, r) })
	}
	all.Wait()
	var bad []error
	for i, r := range e.replicas {
		if errs[i] != nil {
			bad = append(bad, fmt.Errorf("%s: %w", r.url, errs[i]))
		}
	}
	if err := joined(bad); err != nil {
		e.stopAll(ctx, err)
		if errors.Is(err, engines.ErrForeign) {
			e.lose(nil, err)
		}
		return err
	}
	e.mu.Lock()
	e.sleeping = true
	e.mu.Unlock()
	for _, r := range e.replicas {
		r.set(asleep, nil)
	}
	return nil
}

// layDown takes one replica to sleep.
func (e *Engine) layDown(ctx context.Context, r *replica) error {
	u := &updateRun{replica: r, before: r.currentModel()}
	e.mu.Lock()
	if e.current != nil {
		u.weights = *e.current
	}
	e.mu.Unlock()
	steps := []step{{"look whose weights it has", u.own}, {"sleep", u.sleep}, {"is it asleep", u.sleeps}}
	if u.weights.Probe != nil { // for the proof of the next update: this cache must be gone then
		steps = slices.Insert(steps, 1, step{"warm the cache", u.warm})
	}
	if e.options.Sleep > 1 {
		steps = append(steps, step{"name the version", u.disown})
	}
	return u.steps(ctx, steps)
}

func (u *updateRun) sleep(ctx context.Context) error {
	var answer struct{ Status string }
	if err := u.call(ctx, http.MethodPost, "/sleep?mode=keep&level="+strconv.Itoa(u.options.Sleep), nil, &answer); err != nil {
		return err
	}
	if answer.Status != "sleeping" {
		return fmt.Errorf("%w: status %q, expected sleeping", errReply, answer.Status)
	}
	return nil
}

func (u *updateRun) sleeps(ctx context.Context) error {
	sleeping, err := u.isSleeping(ctx)
	if err == nil && !sleeping {
		err = errors.New("the server says that it is not")
	}
	return err
}

func (r *replica) isSleeping(ctx context.Context) (bool, error) {
	var answer struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	if err := r.call(ctx, http.MethodGet, "/is_sleeping", nil, &answer); err != nil {
		return false, err
	}
	if answer.Sleeping == nil {
		return false, fmt.Errorf("%w: no is_sleeping", errReply)
	}
	return *answer.Sleeping, nil
}

// disown says that the server has no weights: should this process end now, nobody takes what wakes up there for a policy.
func (u *updateRun) disown(ctx context.Context) error {
	return u.nameWeights(ctx, u.options.unprovenName())
}

// wakeWeights wakes the weights alone. A server that was started again meanwhile is awake already, and says so.
func (u *updateRun) wakeWeights(ctx context.Context) error {
	_, err := u.wakeUp(ctx, "?tags=weights")
	return err
}

// wakeCache wakes the rest, after which the server samples.
func (u *updateRun) wakeCache(ctx context.Context) error {
	status, err := u.wakeUp(ctx, "?tags=kv_cache")
	if err == nil && status != "awake" {
		err = errors.New("the server says that it still sleeps")
	}
	return err
}

func (r *replica) wakeUp(ctx context.Context, tags string) (string, error) {
	var answer struct{ Status string }
	if err := r.call(ctx, http.MethodPost, "/wake_up"+tags, nil, &answer); err != nil {
		return "", err
	}
	if answer.Status != "awake" && answer.Status != "sleeping" {
		return "", fmt.Errorf("%w: status %q, expected awake or sleeping", errReply, answer.Status)
	}
	return answer.Status, nil
}
