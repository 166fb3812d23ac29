package tools

import (
	"sync"
	"time"
)

// lastCall is how long the end of a trajectory waits for a call that was told to end. A tool that ignores its context comes too late.
const lastCall = time.Second

// running counts the calls that run, by trajectory.
type running struct {
	mu    sync.Mutex
	calls map[string]int
	none  map[string]chan struct{} // closed when no call runs; there where somebody waits
}

func (r *running) begin(trajectory string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls, r.none = map[string]int{}, map[string]chan struct{}{}
	}
	r.calls[trajectory]++
}

func (r *running) end(trajectory string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[trajectory]--; r.calls[trajectory] > 0 {
		return
	}
	delete(r.calls, trajectory)
	if none := r.none[trajectory]; none != nil {
		close(none)
		delete(r.none, trajectory)
	}
}

// wait waits until no call of a trajectory runs, or for so long.
func (r *running) wait(trajectory string, most time.Duration) {
	r.mu.Lock()
	if r.calls[trajectory] == 0 {
		r.mu.Unlock()
		return
	}
	none := r.none[trajectory]
	if none == nil {
		none = make(chan struct{})
		r.none[trajectory] = none
	}
	r.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}
