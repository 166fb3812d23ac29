package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/retry"
)

// Update implements engines.Engine. Each replica goes through
//
//	are its weights this run's? ─► pause (requests in flight are kept) ─► name the weights unproven ─► load ─► is the name still
//	there? ─► name the version ─► empty the prefix cache, check the answer ─► resume on probation ─► proof
//
// and no replica serves before all have proven. On probation a server computes, because a paused one answers nothing, but
// what it samples is held back until the verdict and dropped if it is bad. A replica that does not answer is left out and
// gets the weights before it serves again; at least one must remain. On any other error every replica stays paused and
// Generate fails with it until an Update succeeds. Where another run changed the weights of a server meanwhile, this one leaves
// the server to it and fails for good (engines.ErrForeign); before the first update of a server whoever had it before loses it.
func (e *Engine) Update(ctx context.Context, w engines.Weights) error {
	if err := e.update(ctx, w); err != nil {
		return fmt.Errorf("vllm: update to version %d: %w", w.Version, err)
	}
	return nil
}

func (e *Engine) update(ctx context.Context, w engines.Weights) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	ctx, cancel := e.untilClosed(ctx)
	defer cancel()
	if err := e.checkWeights(w); err != nil {
		return err
	}
	if err := e.isLost(); err != nil {
		return err
	}
	return e.inTurn(ctx, func() error { return e.updateAll(ctx, w) })
}

// inTurn does one thing at a time of those that change what the replicas hold.
func (e *Engine) inTurn(ctx context.Context, do func() error) error {
	select {
	case <-e.turn:
	case <-ctx.Done():
		return e.orClosed(ctx.Err())
	}
	defer func() { e.turn <- struct{}{} }()
	return e.orClosed(do())
}

// untilClosed is ctx, which Close ends as well.
func (e *Engine) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (e *Engine) orClosed(err error) error {
	if err != nil && e.ctx.Err() != nil {
		return engines.ErrClosed
	}
	return err
}

// modelFor is what requests name after an update by that way.
func (r *replica) modelFor(w Way) string {
	if w == WayLoRA {
		return r.options.adapterName()
	}
	return r.info().Model
}

// updateAll loads every replica, and lets them serve when all that answer have proven. When none answers, it waits for one
// as requests do: the server may be on its way up again.
func (e *Engine) updateAll(ctx context.Context, w engines.Weights) error {
	until := time.Now().Add(e.options.Patience)
	for {
		proven, missing, err := e.tryAll(ctx, w)
		if foreign := e.isLost(); err == nil && foreign != nil { // a request or a look saw it meanwhile
			err = foreign
		}
		if err == nil && len(proven) == 0 {
			if err = joined(missing); !late(err) && e.awaitAnswer(ctx, until) {
				continue
			}
			if foreign := e.isLost(); foreign != nil {
				return foreign
			}
			if gone := e.options.Gone(); gone != nil {
				err = gone
			}
		}
		if err != nil {
			e.stopAll(ctx, err)
			if errors.Is(err, engines.ErrForeign) {
				e.lose(nil, err)
			}
			return err
		}
		e.mu.Lock()
		e.current, e.failed, e.sleeping = &w, nil, false
		e.mu.Unlock()
		for _, r := range proven {
			r.adopt(e.options.versionName(w.Version), r.modelFor(e.way(w.Path)), w.Version)
			r.set(serving, nil)
		}
		return nil
	}
}

// tryAll loads every replica that is not down. missing are the errors of those that do not answer; err is any other, and
// from a sleeping engine that of a replica that does not answer too.
func (e *Engine) tryAll(ctx context.Context, w engines.Weights) (proven []*replica, missing []error, err error) {
	e.mu.Lock()
	sleeping := e.sleeping
	e.mu.Unlock()
	errs := make([]error, len(e.replicas))
	var all sync.WaitGroup
	for i, r := range e.replicas {
		state, reason := r.status()
		if state == down {
			errs[i] = &lostError{reason, false}
			continue
		}
		r.set(updating, nil)
		all.Go(func() { errs[i] = e.load(ctx, r, w, state == serving, sleeping) })
	}
	all.Wait()
	var fatal []error
	for i, r := range e.replicas {
		var gone *lostError
		switch {
		case errs[i] == nil:
			proven = append(proven, r)
		case errors.As(errs[i], &gone) && ctx.Err() == nil:
			r.set(down, gone.err)
			missing = append(missing, fmt.Errorf("%s: %w", r.url, errs[i]))
		default:
			fatal = append(fatal, fmt.Errorf("%s: %w", r.url, errs[i]))
		}
	}
	if sleeping && len(proven) > 0 {
		fatal = append(fatal, missing...)
	}
	return proven, missing, joined(fatal)
}

// late tells whether a server was given all its time: it is there, and another attempt would take as long.
func late(err error) bool {
	var gone *lostError
	return errors.As(err, &gone) && gone.late
}

// awaitAnswer waits, when every replica is down, until one can be loaded, or tells that none can.
func (e *Engine) awaitAnswer(ctx context.Context, until time.Time) bool {
	for e.options.Gone() == nil && e.isLost() == nil && time.Now().Before(until) {
		for _, r := range e.replicas {
			if e.rejoin(ctx, r) == nil {
				return true
			}
		}
		if retry.Pause(ctx, min(e.options.HealthEvery, time.Until(until))) != nil {
			return false
		}
	}
	return false
}

// rejoin probes a replica that was away, which may be another server now. It serves nobody before it is loaded.
func (e *Engine) rejoin(ctx context.Context, r *replica) error {
	one, cancel := context.WithTimeout(ctx, e.options.HealthTimeout)
	err := r.call(one, http.MethodGet, "/health", nil, nil)
	cancel()
	if err == nil {
		err = r.isMine(ctx) // a probe would resume a server that the other run has paused
	}
	if errors.Is(err, engines.ErrForeign) {
		e.lose(r, err)
	}
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, e.options.ControlTimeout)
	defer cancel()
	server, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.set(updating, nil)
	r.adopt(server.Version, server.Model, -1) // what the server names until it is loaded
	return nil
}

// joined is errors.Join in one line.
func joined(all []error) error {
	if len(all) == 0 {
		return nil
	}
	err := all[0]
	for _, more := range all[1:] {
		err = fmt.Errorf("%w; %w", err, more)
	}
	return err
}

// stopAll takes every replica out of service, paused, after an update that failed. One that another run has goes on for it.
func (e *Engine) stopAll(ctx context.Context, reason error) {
	e.mu.Lock()
	e.failed = reason
	e.mu.Unlock()
	var all sync.WaitGroup
	for _, r := range e.replicas {
		if state, _ := r.status(); state == down {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.HealthTimeout)
			defer cancel()
			err := r.isMine(ctx)
			if errors.Is(err, engines.ErrForeign) {
				r.set(behind, err)
				return
			}
			if err == nil {
				err = r.call(ctx, http.MethodPost, "/pause?mode=keep", nil, nil)
			}
			if err == nil {
				err = r.nameWeights(ctx, r.options.unprovenName())
			}
			if err != nil {
				r.set(down, fmt.Errorf("it could not be paused: %w", err))
				return
			}
			r.set(behind, reason)
		})
	}
	all.Wait()
}

// lostError says that a replica does not answer, so that an update goes on without it.
type lostError struct {
	err  error
	late bool // it had all its time
}

func (e *lostError) Error() string { return fmt.Sprintf("it does not answer: %v", e.err) }
func (e *lostError) Unwrap() error { return e.err }

// step is one of an update, with a deadline of its own.
type step struct {
	name string
	run  func(context.Context) error
}

// load takes one replica through an update, up to and including the proof. Its state is the caller's matter. warm says
// that the server computes now: one that is paused would not answer. sleeping says that it was told to sleep.
func (e *Engine) load(ctx context.Context, r *replica, w engines.Weights, warm, sleeping bool) error {
	u := &updateRun{replica: r, weights: w, way: e.way(w.Path), version: e.options.versionName(w.Version), before: r.currentModel()}
	u.model = r.modelFor(u.way)
	begin, resume := step{"pause", u.pause}, step{"resume", u.resume}
	if sleeping {
		begin, resume = step{"wake the weights", u.wakeWeights}, step{"wake the cache", u.wakeCache}
	}
	steps := []step{
		{"look whose weights it has", u.own},
		begin,
		{"claim the weights", u.claim},
		{"load", u.load},
		{"look whose weights it has", u.claimed},
		{"name the version", u.name},
		{"empty the prefix cache", u.empty},
		resume,
		{"proof", u.prove},
	}
	if warm {
		steps = slices.Insert(steps, 1, step{"warm the cache", u.warm})
	}
	return u.steps(ctx, steps)
}

// steps runs them in order.
func (r *replica) steps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		one, cancel := context.WithTimeout(ctx, r.options.ControlTimeout)
		err := s.run(one)
		late := one.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			continue
		}
		if late {
			err = fmt.Errorf("not done after %v: %w", r.options.ControlTimeout, err)
		}
		err = fmt.Errorf("%s: %w", s.name, err)
		if ctx.Err() == nil && (late || lost(err)) {
			err = &lostError{err, late}
		}
		return err
	}
	return nil
}

func (r *replica) currentModel() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model
}

// updateRun is one replica's way through an update.
type updateRun struct {
	*replica
	weights engines.Weights
	way     Way
	version string
	before  string // model that requests name now
	model   string // and after the update
}

// warm puts the proof's prompt into the prefix cache under the old weights: if the cache is not emptied, the proof sees it.
func (u *updateRun) warm(ctx context.Context) error {
	_, err := u.send(ctx, u.before, u.cachePrompt(), samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0))
	var status *statusError
	if errors.As(err, &status) {
		return nil // of a server that has nothing usable yet; the proof will say so
	}
	return err
}

// own refuses a server that another run changed since this one loaded it.
func (u *updateRun) own(ctx context.Context) error {
	u.mu.Lock()
	loaded := u.loaded
	u.mu.Unlock()
	if !loaded { // whoever had the server before loses it now
		return nil
	}
	return u.isMine(ctx)
}

// claim names the weights before they change: another run that comes meanwhile takes the name away, which claimed sees, and
// a process that ends meanwhile leaves no old name on new weights.
func (u *updateRun) claim(ctx context.Context) error {
	u.mu.Lock()
	u.loaded = true
	u.adapted = u.adapted || u.way == WayLoRA
	u.mu.Unlock()
	return u.nameWeights(ctx, u.options.unprovenName())
}

// claimed tells whether the name is still there. A transfer has put the new one in its place.
func (u *updateRun) claimed(ctx context.Context) error {
	got, err := u.weightVersion(ctx)
	if err == nil && got != u.options.unprovenName() && got != u.version {
		err = u.mismatch(got, u.options.unprovenName())
	}
	return err
}

// mismatch is the error of a version that the server has instead of the one that it was just given.
func (u *updateRun) mismatch(got, want string) error {
	var other *ForeignError
	if errors.As(u.judge(got), &other) {
		return &ForeignError{got, want}
	}
	return &VersionMismatch{got, want}
}

func (r *replica) nameWeights(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodPost, "/update_weight_version", map[string]any{"new_version": name}, nil)
}

func (u *updateRun) pause(ctx context.Context) error {
	return u.call(ctx, http.MethodPost, "/pause?mode=keep", nil, nil)
}

func (u *updateRun) resume(ctx context.Context) error {
	return u.call(ctx, http.MethodPost, "/resume", nil, nil)
}

func (u *updateRun) load(ctx context.Context) error {
	switch u.way {
	case WayLoRA:
		return u.call(ctx, http.MethodPost, "/v1/load_lora_adapter", map[string]any{
			"lora_name": u.options.adapterName(), "lora_path": u.weights.Path, "load_inplace": true,
		}, nil)
	case WayTransfer:
		return u.transfer(ctx)
	case WayGloo, WayNCCL:
		return u.broadcast(ctx)
	default:
		err := u.call(ctx, http.MethodPost, "/collective_rpc", map[string]any{
			"method": "reload_weights", "kwargs": map[string]any{"weights_path": u.weights.Path},
		}, nil)
		if err != nil || !u.info().Extension {
			return err
		}
		return u.call(ctx, http.MethodPost, "/collective_rpc", map[string]any{"method": "agentfly_after_reload"}, nil)
	}
}

func (u *updateRun) name(ctx context.Context) error {
	return u.nameWeights(ctx, u.version)
}

// empty asks until the server says that the cache is empty: it says no while something holds a block.
func (u *updateRun) empty(ctx context.Context) error {
	const most = 20
	for n := 1; ; n++ {
		var answer struct {
			Success *bool `json:"success"`
		}
		if err := u.call(ctx, http.MethodPost, "/reset_prefix_cache?reset_running_requests=true", nil, &answer); err != nil {
			return err
		}
		switch {
		case answer.Success == nil:
			return fmt.Errorf("%w: no success", errReply)
		case *answer.Success:
			return nil
		case n == most:
			return fmt.Errorf("the server answers %d times that it could not", most)
		}
		if err := retry.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
