package vllm

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agentfly/agentfly/engines"
)

// watcher looks at the replicas again and again.
type watcher struct {
	options Options
	fleet   *fleet
	life    *life
	updater *updater
}

// watch looks at a replica until the engine is closed: one that does not answer is taken out of service, one that answers
// again gets the current weights and proves them first.
func (w *watcher) watch(r *replica) {
	tick := time.NewTicker(w.options.HealthEvery)
	defer tick.Stop()
	slow := 0 // looks in a row without an answer in time
	for {
		select {
		case <-w.life.ctx.Done():
			return
		case <-tick.C:
			slow = w.look(r, slow)
		}
	}
}

// mostSlow is how often in a row a replica may be too slow to answer a look: a busy one is not taken from its requests at
// the first time.
const mostSlow = 3

// look returns how many looks in a row were too slow.
func (w *watcher) look(r *replica, slow int) int {
	r.completer.direct.prune()
	state, _ := r.standing.status()
	if state == updating {
		return 0
	}
	ctx, cancel := context.WithTimeout(w.life.ctx, w.options.HealthTimeout)
	err := r.client.call(ctx, http.MethodGet, "/health", nil, nil)
	if err == nil && state == serving && r.standing.info().Control {
		err = sameVersion(ctx, r)
	}
	cancel()
	var wrong *versionError
	switch {
	case w.life.ctx.Err() != nil:
	case errors.Is(err, engines.ErrForeign):
		w.fleet.lose(r, err)
	case errors.As(err, &wrong):
		r.standing.fail(behind, err)
	case errors.Is(err, context.DeadlineExceeded) && slow+1 < mostSlow:
		return slow + 1
	case err != nil:
		r.standing.fail(down, err)
	case state == down || state == behind:
		w.updater.bringBack(r)
	}
	return 0
}

// sameVersion notices a server that was restarted between two looks.
func sameVersion(ctx context.Context, r *replica) error {
	want := r.standing.held().version
	got, err := r.client.weightVersion(ctx)
	if err == nil && got != want && r.standing.serves(want) {
		err = r.judge(got)
	}
	return err
}
