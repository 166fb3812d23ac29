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
// what it samples is held back until the verdict and dropped if it is bad. A replica that does not answer, or whose engine dies, is left out
// and gets the weights before it serves again; at least one must remain. On any other error every replica stays paused and
// Generate fails with it until an Update succeeds. Where another run changed the weights of a server meanwhile, this one leaves
// the server to it and fails for good (engines.ErrForeign); before the first update of a server whoever had it before loses it.
func (e *Engine) Update(ctx context.Context, w engines.Weights) error {
	if err := e.updater.update(ctx, w); err != nil {
		return fmt.Errorf("vllm: update to version %d: %w", w.Version, err)
	}
	return nil
}

// updater brings weights to the replicas, one thing at a time.
type updater struct {
	options Options
	fleet   *fleet
	life    *life
	turn    chan struct{} // holds a token: who takes it changes weights
}

func newUpdater(o Options, f *fleet, l *life) *updater {
	up := &updater{options: o, fleet: f, life: l, turn: make(chan struct{}, 1)}
	up.turn <- struct{}{}
	return up
}

func (up *updater) update(ctx context.Context, w engines.Weights) error {
	if err := up.life.enter(); err != nil {
		return err
	}
	defer up.life.running.Done()
	ctx, cancel := up.life.untilClosed(ctx)
	defer cancel()
	if err := up.fleet.checkWeights(up.options, w); err != nil {
		return err
	}
	if err := up.fleet.isLost(); err != nil {
		return err
	}
	return up.inTurn(ctx, func() error { return up.updateAll(ctx, w) })
}

// inTurn does one thing at a time of those that change what the replicas hold.
func (up *updater) inTurn(ctx context.Context, do func() error) error {
	select {
	case <-up.turn:
	case <-ctx.Done():
		return up.life.orClosed(ctx.Err())
	}
	defer func() { up.turn <- struct{}{} }()
	return up.life.orClosed(do())
}

// updateAll loads every replica, and lets them serve when all that answer have proven. When none answers, it waits for one
// as requests do: the server may be on its way up again.
func (up *updater) updateAll(ctx context.Context, w engines.Weights) error {
	until := time.Now().Add(up.options.Patience)
	for round := 0; ; round++ {
		if round > 1 { // a server that answered and was lost again would be loaded without end
			_ = retry.Pause(ctx, min(up.options.HealthEvery, time.Until(until))) // the loads say that ctx has ended
		}
		proven, missing, err := up.tryAll(ctx, w)
		if foreign := up.fleet.isLost(); err == nil && foreign != nil { // a request or a look saw it meanwhile
			err = foreign
		}
		if err == nil && len(proven) == 0 {
			if !late(joined(missing)) && up.awaitAnswer(ctx, until, missing) {
				continue
			}
			err = joined(missing)
			if foreign := up.fleet.isLost(); foreign != nil {
				return foreign
			}
			if gone := up.options.Gone(); gone != nil {
				err = gone
			}
		}
		if err != nil {
			up.stopAll(ctx, err)
			if errors.Is(err, engines.ErrForeign) {
				up.fleet.lose(nil, err)
			}
			return err
		}
		up.fleet.updated(w)
		for _, r := range proven {
			r.standing.adopt(up.options.versionName(w.Version), r.modelFor(up.options.wayOf(w.Path)), w.Version)
			r.standing.set(serving, nil)
		}
		return nil
	}
}

// tryAll loads every replica that is not down, and of a sleeping engine every one that answers. missing are the errors of those that do not answer; err
// is any other, and from a sleeping engine that of a replica that does not answer too.
func (up *updater) tryAll(ctx context.Context, w engines.Weights) (proven []*replica, missing []error, err error) {
	sleeping := up.fleet.want().sleeping
	errs := make([]error, len(up.fleet.replicas))
	var all sync.WaitGroup
	for i, r := range up.fleet.replicas {
		state, reason := r.standing.status()
		if state == down && !(sleeping && r.healthy(ctx) == nil) { // nobody has a replica of a sleeping engine back
			errs[i] = &lostError{reason, false}
			continue
		}
		r.standing.set(updating, nil)
		all.Go(func() {
			if sleeping {
				errs[i] = up.probeAwake(ctx, r)
			}
			if errs[i] == nil {
				errs[i] = up.load(ctx, r, w, state == serving, sleeping)
			}
		})
	}
	all.Wait()
	var fatal []error
	for i, r := range up.fleet.replicas {
		var gone *lostError
		switch {
		case errs[i] == nil:
			proven = append(proven, r)
		case errors.As(errs[i], &gone) && ctx.Err() == nil:
			r.standing.set(down, gone.err)
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

// awaitAnswer waits, when every replica is down, until one can be loaded, or tells that none can. missing has an error for each replica, in whose place
// it puts the newest: a server that came back and was not taken has another reason than that it did not answer before.
func (up *updater) awaitAnswer(ctx context.Context, until time.Time, missing []error) bool {
	for up.options.Gone() == nil && up.fleet.isLost() == nil && time.Now().Before(until) {
		for i, r := range up.fleet.replicas {
			err := up.rejoin(ctx, r)
			if err == nil {
				return true
			}
			if ctx.Err() == nil {
				r.standing.set(down, err)
				missing[i] = fmt.Errorf("%s: %w", r.url, err)
			}
		}
		if retry.Pause(ctx, min(up.options.HealthEvery, time.Until(until))) != nil {
			return false
		}
	}
	return false
}

// rejoin probes a replica that was away, which may be another server now. It serves nobody before it is loaded. One that has this run's
// unproven weights is the server that was probed before, and stays paused: its load may not have ended, see probe. One that
// sleeps on stays asleep: a probe would wake its old weights and its cache.
func (up *updater) rejoin(ctx context.Context, r *replica) error {
	name, err := "", r.healthy(ctx)
	if err == nil {
		name, err = r.myWeights(ctx) // a probe would resume a server that the other run has paused
	}
	if errors.Is(err, engines.ErrForeign) {
		up.fleet.lose(r, err)
	}
	if err != nil {
		return err
	}
	server := r.standing.info()
	if name != up.options.unprovenName() {
		ctx, cancel := context.WithTimeout(ctx, up.options.ControlTimeout)
		defer cancel()
		sleeps := false
		if up.fleet.want().sleeping {
			if sleeps, err = r.client.isSleeping(ctx); err != nil {
				return err
			}
		}
		if !sleeps {
			if server, err = r.probe(ctx); err != nil {
				return err
			}
			name = server.Version
		}
	}
	r.standing.set(updating, nil)
	r.standing.adopt(name, server.Model, -1) // what the server names until it is loaded
	return nil
}

// bringBack takes a replica into service again, with the current weights.
func (up *updater) bringBack(r *replica) {
	select {
	case <-up.turn:
	default:
		return // an update is under way; the next look comes
	}
	defer func() { up.turn <- struct{}{} }()
	want := up.fleet.want()
	if want.lost != nil {
		return
	}
	if want.sleeping { // the device's memory is the trainer's; the next update looks for it
		return
	}
	if want.failed != nil { // an update that succeeds brings it back, if it answers
		r.standing.set(behind, want.failed)
		return
	}
	if want.current == nil {
		err := r.isMine(up.life.ctx)
		if err == nil {
			err = r.start(up.life.ctx)
		}
		if err != nil {
			up.stay(r, down, err)
		}
		return
	}
	if err := up.rejoin(up.life.ctx, r); err != nil {
		up.stay(r, down, err)
		return
	}
	if err := up.load(up.life.ctx, r, *want.current, false, false); err != nil {
		up.stay(r, behind, err)
		return
	}
	r.standing.adopt(up.options.versionName(want.current.Version), r.modelFor(up.options.wayOf(want.current.Path)), want.current.Version)
	r.standing.set(serving, nil)
}

// stay leaves a replica out of service that could not be brought back.
func (up *updater) stay(r *replica, s condition, err error) {
	r.standing.set(s, err)
	if errors.Is(err, engines.ErrForeign) {
		up.fleet.lose(r, err)
	}
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
func (up *updater) stopAll(ctx context.Context, reason error) {
	up.fleet.stopped(reason)
	var all sync.WaitGroup
	for _, r := range up.fleet.replicas {
		if state, _ := r.standing.status(); state == down {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.HealthTimeout)
			defer cancel()
			err := r.isMine(ctx)
			if errors.Is(err, engines.ErrForeign) {
				r.standing.set(behind, err)
				return
			}
			if err == nil {
				err = r.client.pause(ctx)
			}
			if err == nil {
				err = r.client.nameWeights(ctx, r.options.unprovenName())
			}
			if err != nil {
				r.standing.set(down, fmt.Errorf("it could not be paused: %w", err))
				return
			}
			r.standing.set(behind, reason)
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
func (up *updater) load(ctx context.Context, r *replica, w engines.Weights, warm, sleeping bool) error {
	u := &updateRun{replica: r, weights: w, way: up.options.wayOf(w.Path), version: up.options.versionName(w.Version), before: r.standing.held().model}
	u.model = r.modelFor(u.way)
	begin, resume := step{"pause", r.client.pause}, step{"resume", r.client.resume}
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
	if !r.standing.info().sampled {
		steps = slices.Insert(steps, len(steps)-1, step{"ask what it samples", u.probeSamples})
	}
	if warm {
		steps = slices.Insert(steps, 1, step{"warm the cache", u.warm})
	}
	return inSteps(ctx, r, steps)
}

// inSteps takes a replica through steps in order. A server that ends on the way is a lostError, whatever the step saw of it.
func inSteps(ctx context.Context, r *replica, steps []step) error {
	for _, s := range steps {
		one, cancel := context.WithTimeout(ctx, r.options.ControlTimeout)
		gone, err := r.whileItLives(one, s.run)
		late := one.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			continue
		}
		if late {
			err = fmt.Errorf("not done after %v: %w", r.options.ControlTimeout, err)
		}
		err = fmt.Errorf("%s: %w", s.name, err)
		if verdict(err) {
			return err
		}
		if gone == nil && !lost(err) { // the broken group of its workers, or the 500 of a dead engine, may have come before a look
			gone = r.dead(ctx)
		}
		if gone != nil {
			err = fmt.Errorf("%w; its health: %w", err, gone)
		}
		if ctx.Err() == nil && (late || gone != nil || lost(err)) {
			err = &lostError{err, late}
		}
		return err
	}
	return nil
}

// verdict tells whether an error is what a server that answers says of its weights: nothing mends that.
func verdict(err error) bool {
	var proof *ProofError
	var version *VersionMismatch
	return errors.Is(err, engines.ErrForeign) || errors.As(err, &proof) || errors.As(err, &version)
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
	info := u.standing.info()
	_, err := u.completer.send(ctx, info.Native, u.before, cachePrompt(u.weights.Probe.TokenIDs, info.MaxModelLen), samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0))
	var status *statusError
	if errors.As(err, &status) {
		return nil // of a server that has nothing usable yet; the proof will say so
	}
	return err
}

// probeSamples asks a server whose weights were unproven when it was probed.
func (u *updateRun) probeSamples(ctx context.Context) error {
	server := u.standing.info()
	err := probeSamples(ctx, u.completer, &server)
	if err == nil {
		u.standing.setInfo(server)
	}
	return err
}

// own refuses a server that another run changed since this one loaded it.
func (u *updateRun) own(ctx context.Context) error {
	if !u.standing.held().loaded { // whoever had the server before loses it now
		return nil
	}
	return u.isMine(ctx)
}

// claim names the weights before they change: another run that comes meanwhile takes the name away, which claimed sees, and
// a process that ends meanwhile leaves no old name on new weights.
func (u *updateRun) claim(ctx context.Context) error {
	u.standing.hold(func(h *holding) {
		h.loaded = true
		h.adapted = h.adapted || u.way == WayLoRA
	})
	return u.client.nameWeights(ctx, u.options.unprovenName())
}

// claimed tells whether the name is still there. A transfer has put the new one in its place.
func (u *updateRun) claimed(ctx context.Context) error {
	got, err := u.client.weightVersion(ctx)
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

func (u *updateRun) load(ctx context.Context) error {
	switch u.way {
	case WayLoRA:
		return u.client.call(ctx, http.MethodPost, "/v1/load_lora_adapter", map[string]any{
			"lora_name": u.options.adapterName(), "lora_path": u.weights.Path, "load_inplace": true,
		}, nil)
	case WayTransfer:
		return u.transfer(ctx)
	case WayIPC:
		return u.openMemory(ctx)
	case WayGloo, WayNCCL:
		return u.broadcast(ctx)
	default:
		err := u.client.call(ctx, http.MethodPost, "/collective_rpc", map[string]any{
			"method": "reload_weights", "kwargs": map[string]any{"weights_path": u.weights.Path},
		}, nil)
		if err != nil || !u.standing.info().Extension {
			return err
		}
		return u.client.call(ctx, http.MethodPost, "/collective_rpc", map[string]any{"method": "agentfly_after_reload"}, nil)
	}
}

// weightUpdate has the server, whose transfer engine is made, load the tensors that send brings it.
func (u *updateRun) weightUpdate(ctx context.Context, send func() error) error {
	if err := u.client.post(ctx, "/start_weight_update", nil); err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	return u.client.post(ctx, "/finish_weight_update", map[string]any{"weight_version": u.version})
}

func (u *updateRun) name(ctx context.Context) error {
	return u.client.nameWeights(ctx, u.version)
}

// empty asks until the server says that the cache is empty: it says no while something holds a block.
func (u *updateRun) empty(ctx context.Context) error {
	const most = 20
	for n := 1; ; n++ {
		var answer struct {
			Success *bool `json:"success"`
		}
		if err := u.client.call(ctx, http.MethodPost, "/reset_prefix_cache?reset_running_requests=true", nil, &answer); err != nil {
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
