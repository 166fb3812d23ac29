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
//	Update: is it asleep still? ─► wake the weights ─► load ─► name the version ─► empty the prefix cache ─► wake the cache ─► proof ─► serve
//
// The weights wake alone, so that the old cache and the new weights never lie in memory together; the proof comes last,
// because a server without a cache computes nothing. A replica that is away, or ends before any sleeps, is waited for first, because it
// would take memory when it returns. On any error no replica serves.
func (e *Engine) Sleep(ctx context.Context) error {
	if err := e.updater.sleep(ctx); err != nil {
		return fmt.Errorf("vllm: sleep: %w", err)
	}
	return nil
}

func (up *updater) sleep(ctx context.Context) error {
	if err := up.life.enter(); err != nil {
		return err
	}
	defer up.life.running.Done()
	ctx, cancel := up.life.untilClosed(ctx)
	defer cancel()
	for _, r := range up.fleet.replicas {
		if !r.standing.info().Sleep {
			return fmt.Errorf("%s has no routes to sleep and wake up; start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode", r.url)
		}
	}
	if err := up.fleet.isLost(); err != nil {
		return err
	}
	for until := time.Now().Add(up.options.Patience); ; {
		if err := up.allBack(ctx, until); err != nil {
			return up.life.orClosed(err)
		}
		current := up.fleet.want().current
		adapter := up.options.Way == WayLoRA || current != nil && up.options.wayOf(current.Path) == WayLoRA
		if adapter && up.options.Sleep > 1 {
			return errors.New("level 2 drops the weights that the adapter comes on top of; use level 1")
		}
		again := false
		err := up.inTurn(ctx, func() (err error) {
			again, err = up.sleepAll(ctx, until)
			return err
		})
		if err != nil || !again {
			return err
		}
	}
}

// allBack waits until no replica is away. It asks each: one may have ended since the last look at it.
func (up *updater) allBack(ctx context.Context, until time.Time) error {
	for {
		changes := up.fleet.changes()
		want := up.fleet.want()
		gone := up.options.Gone()
		switch {
		case want.lost != nil:
			return want.lost
		case want.failed != nil:
			return fmt.Errorf("no replica serves since an update failed: %w", want.failed)
		case !up.fleet.away() && up.answer(ctx):
			return nil
		case gone != nil:
			return gone
		case time.Now().After(until):
			return fmt.Errorf("not every replica is back after %v, so its memory is not given back: %s", up.options.Patience, up.fleet.reasons())
		}
		wait(ctx, changes, min(time.Second, up.options.HealthEvery))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// answer tells whether every replica that serves can be reached, and takes those that cannot out of service.
func (up *updater) answer(ctx context.Context) bool {
	errs := up.onAll(func(r *replica) error {
		err := r.healthy(ctx)
		if lost(err) {
			r.standing.fail(down, err)
		}
		return err
	})
	return !slices.ContainsFunc(errs, lost)
}

// sleepAll takes every replica to sleep. again: one ended before any slept, and it is not late yet; the others serve on, and all are to be taken to
// sleep when it is back.
func (up *updater) sleepAll(ctx context.Context, until time.Time) (again bool, err error) {
	replicas := up.fleet.replicas
	states := make([]condition, len(replicas))
	for i, r := range replicas {
		states[i], _ = r.standing.status()
		r.standing.set(updating, nil)
	}
	errs := up.onAll(func(r *replica) error { return up.warmForSleep(ctx, r) })
	foreign := up.fleet.isLost() // a request saw it meanwhile, or a look: the servers are another run's
	if foreign == nil && ended(errs) && ctx.Err() == nil && time.Now().Before(until) {
		for i, r := range replicas {
			if errs[i] != nil {
				r.standing.set(down, errs[i])
			} else {
				r.standing.set(states[i], nil)
			}
		}
		return true, nil
	}
	if foreign == nil && !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		errs = up.onAll(func(r *replica) error { return up.layDown(ctx, r) })
	}
	var bad []error
	for i, r := range replicas {
		if errs[i] != nil {
			bad = append(bad, fmt.Errorf("%s: %w", r.url, errs[i]))
		}
	}
	err = joined(bad)
	if foreign = up.fleet.isLost(); foreign != nil {
		err = foreign
	}
	if err != nil {
		up.stopAll(ctx, err)
		if errors.Is(err, engines.ErrForeign) {
			up.fleet.lose(nil, err)
		}
		return false, err
	}
	up.fleet.slept()
	for _, r := range replicas {
		r.standing.set(asleep, nil)
	}
	return false, nil
}

// onAll does something with all replicas at once, and returns the error of each.
func (up *updater) onAll(do func(r *replica) error) []error {
	errs := make([]error, len(up.fleet.replicas))
	var all sync.WaitGroup
	for i, r := range up.fleet.replicas {
		all.Go(func() { errs[i] = do(r) })
	}
	all.Wait()
	return errs
}

// ended tells whether replicas failed, and each because it does not answer any more.
func ended(errs []error) bool {
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	return len(failed) > 0 && !slices.ContainsFunc(failed, func(err error) bool {
		var gone *lostError
		return !errors.As(err, &gone) || gone.late
	})
}

// warmForSleep is what comes before any replica sleeps.
func (up *updater) warmForSleep(ctx context.Context, r *replica) error {
	u := &updateRun{replica: r, before: r.standing.held().model}
	steps := []step{{"look whose weights it has", u.own}}
	if current := up.fleet.want().current; current != nil && current.Probe != nil { // for the proof of the next update: this cache must be gone then
		u.weights = *current
		steps = append(steps, step{"warm the cache", u.warm})
	}
	return inSteps(ctx, r, steps)
}

// layDown takes one replica to sleep.
func (up *updater) layDown(ctx context.Context, r *replica) error {
	u := &updateRun{replica: r}
	steps := []step{{"sleep", u.sleep}, {"is it asleep", u.sleeps}}
	if up.options.Sleep > 1 {
		steps = append(steps, step{"name the version", u.disown})
	}
	return inSteps(ctx, r, steps)
}

func (u *updateRun) sleep(ctx context.Context) error {
	var answer struct{ Status string }
	if err := u.client.call(ctx, http.MethodPost, "/sleep?mode=keep&level="+strconv.Itoa(u.options.Sleep), nil, &answer); err != nil {
		return err
	}
	if answer.Status != "sleeping" {
		return fmt.Errorf("%w: status %q, expected sleeping", errReply, answer.Status)
	}
	return nil
}

func (u *updateRun) sleeps(ctx context.Context) error {
	sleeping, err := u.client.isSleeping(ctx)
	if err == nil && !sleeping {
		err = errors.New("the server says that it is not")
	}
	return err
}

// probeAwake probes a replica of a sleeping engine that is awake: it was started again meanwhile, and may be another server now. One that sleeps is
// asked no more, because a probe would wake its old weights and its cache.
func (up *updater) probeAwake(ctx context.Context, r *replica) error {
	u := &updateRun{replica: r}
	return inSteps(ctx, r, []step{{"look whose weights it has", u.own}, {"look what it can do", u.probeAwake}})
}

// probeAwake leaves a server down that cannot be used, so that the next update probes it again.
func (u *updateRun) probeAwake(ctx context.Context) error {
	sleeping, err := u.client.isSleeping(ctx)
	if err != nil || sleeping {
		return err
	}
	if _, err = u.probe(ctx); err != nil {
		u.standing.set(down, err)
	}
	return err
}

// disown says that the server has no weights: should this process end now, nobody takes what wakes up there for a policy.
func (u *updateRun) disown(ctx context.Context) error {
	return u.client.nameWeights(ctx, u.options.unprovenName())
}

// wakeWeights wakes the weights alone. A server that was started again meanwhile is awake already, and says so.
func (u *updateRun) wakeWeights(ctx context.Context) error {
	_, err := u.client.wakeUp(ctx, "?tags=weights")
	return err
}

// wakeCache wakes the rest, after which the server samples.
func (u *updateRun) wakeCache(ctx context.Context) error {
	status, err := u.client.wakeUp(ctx, "?tags=kv_cache")
	if err == nil && status != "awake" {
		err = errors.New("the server says that it still sleeps")
	}
	return err
}
