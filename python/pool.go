package python

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/python/protocol"
)

// pool holds the workers of a file. A worker runs one plain call at a time, and many async ones. Calls of a stateful function go to the
// worker that keeps their trajectory.
type pool struct {
	launch  launch
	load    protocol.Request
	max     int
	stderr  io.Writer
	context context.Context // of the workers
	cancel  context.CancelFunc
	ids     atomic.Int64
	all     sync.WaitGroup // workers and calls
	ends    sync.WaitGroup // of trajectories, until their worker has closed what they kept

	mu       sync.Mutex
	closed   bool
	workers  []*worker // that loaded the file
	starting int
	waiting  []*waiter          // in the order in which they came
	kept     map[string]*worker // by trajectory
	lost     map[string]string  // trajectories whose worker ended, with its detail
}

// waiter is a call that wants a worker.
type waiter struct {
	callable
	trajectory string
	ready      chan placed // one, or none once it left the queue
}

type placed struct {
	w   *worker
	err error
}

const asyncEach = 64 // async calls in a worker before another one is started

// Texts of a BrokenError.
const (
	errLost = "what it kept of this trajectory is lost, and begins anew"
	errLoad = "its process could not load the file"
)

var errClosed = errors.New("python: the file is closed")

func newPool(l launch, load protocol.Request, o Options) *pool {
	p := &pool{launch: l, load: load, max: o.Workers, kept: map[string]*worker{}, lost: map[string]string{}}
	if o.Stderr != nil {
		p.stderr = newSaid(o.Stderr) // one write at a time
	}
	p.context, p.cancel = context.WithCancel(context.Background())
	p.ids.Store(load.ID)
	return p
}

// first starts the first worker and returns what it says of the file.
func (p *pool) first(ctx context.Context) (protocol.Reply, error) {
	p.mu.Lock()
	p.starting++
	p.mu.Unlock()
	return p.start(ctx)
}

// start starts a worker that was counted in starting, and lets it load the file. A reply with Errors is that of a file that cannot be loaded, and the
// worker is gone.
func (p *pool) start(ctx context.Context) (protocol.Reply, error) {
	p.all.Add(1) // until it is gone
	w, err := startWorker(p.context, p.launch, p.stderr, func(w *worker) {
		p.remove(w)
		p.all.Done()
	})
	if err != nil {
		p.all.Done()
		p.started(nil)
		return protocol.Reply{}, err
	}
	var r protocol.Reply
	var ok bool
	select {
	case r, ok = <-w.ask(p.load):
	case <-ctx.Done():
		w.kill(errors.New("it took too long to load the file"))
	case <-p.context.Done():
	}
	switch {
	case ok && len(r.Errors) > 0:
		w.kill(errors.New("the file cannot be loaded"))
		<-w.gone
		p.started(nil)
		return r, nil
	case ok:
		p.started(w)
		return r, nil
	}
	w.kill(errClosed)
	<-w.gone
	p.started(nil)
	return protocol.Reply{}, &BrokenError{Text: errLoad, Detail: w.detail}
}

// started ends a start; w is nil where it failed.
func (p *pool) started(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	if w == nil {
		return
	}
	if p.closed {
		w.kill(errClosed)
		return
	}
	if !w.removed {
		p.workers = append(p.workers, w)
	}
	p.dispatch()
}

// call runs a request on a worker. It returns when the reply is there, the worker is gone, or ctx is done; then the call is ended behind
// its back.
func (p *pool) call(ctx context.Context, c callable, r protocol.Request, environment Environs) (protocol.Reply, error) {
	w, err := p.acquire(ctx, c, r.Trajectory)
	if err != nil {
		return protocol.Reply{}, err
	}
	r.ID, r.Environment = p.ids.Add(1), environment != nil
	answer, asks := w.askWith(r)
	defer w.forget(r.ID)
	told := false // its environment's answer was that the time is over
	for {
		select {
		case got, ok := <-answer:
			return p.settle(w, c, r.Trajectory, got, ok)
		case a := <-asks:
			w.tell(answerOf(ctx, r.ID, a, environment))
			told = ctx.Err() != nil
		case <-ctx.Done():
			go func() { // all counts it: acquire did
				got, ok := w.abort(r.ID, answer, told)
				_, _ = p.settle(w, c, r.Trajectory, got, ok) // nobody waits for it
			}()
			return protocol.Reply{}, ctx.Err()
		}
	}
}

// answerOf asks the environment of a call.
func answerOf(ctx context.Context, call int64, a protocol.Ask, environment Environs) protocol.Request {
	out := protocol.Request{ID: call, Op: "answer", Ask: a.ID}
	if ctx.Err() != nil {
		out.Error = "the call is over"
		return out
	}
	result, err := environment(ctx, a.Op, a.Arguments)
	switch {
	case err != nil:
		out.Error = cmp.Or(err.Error(), "it failed")
	case !json.Valid(result):
		out.Error = "its answer is no JSON"
	default:
		out.Result = result
	}
	return out
}

// abort ends a call, and the worker where that does not help. A call that was told so by its environment may end by itself first: one that is
// interrupted costs the worker.
func (w *worker) abort(id int64, answer <-chan protocol.Reply, told bool) (protocol.Reply, bool) {
	if told {
		select {
		case r, ok := <-answer:
			return r, ok
		case <-time.After(lull):
		}
	}
	w.tell(protocol.Request{ID: id, Op: "cancel"})
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case r, ok := <-answer:
		return r, ok
	case <-timer.C:
		w.kill(errors.New("a call did not end in time"))
	}
	r, ok := <-answer
	return r, ok
}

// settle gives the worker back after a call. A worker whose call broke is replaced, unless others need it.
func (p *pool) settle(w *worker, c callable, trajectory string, r protocol.Reply, ok bool) (protocol.Reply, error) {
	defer p.all.Done()
	if !ok {
		<-w.gone
		text := "its process ended"
		if c.stateful { // who made the call learns it now
			text += "; " + errLost
			p.mu.Lock()
			delete(p.lost, trajectory)
			p.mu.Unlock()
		}
		return r, &BrokenError{Text: text, Detail: w.detail}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.async {
		w.async--
	} else {
		w.busy = false
	}
	if r.Broken && w.sticky == 0 && w.async == 0 && !w.busy {
		p.forget(w)
		w.kill(errors.New("a call broke"))
	}
	p.dispatch()
	return r, nil
}

// acquire waits for a worker, and counts the call.
func (p *pool) acquire(ctx context.Context, c callable, trajectory string) (*worker, error) {
	q := &waiter{c, trajectory, make(chan placed, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	if detail, ok := p.lost[trajectory]; ok && c.stateful {
		delete(p.lost, trajectory)
		p.mu.Unlock()
		return nil, &BrokenError{Text: errLost, Detail: detail}
	}
	p.waiting = append(p.waiting, q)
	p.dispatch()
	p.mu.Unlock()
	select {
	case got := <-q.ready:
		return got.w, got.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, q); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return nil, ctx.Err()
	}
	got := <-q.ready // it came at the same moment
	if got.w != nil {
		if c.async {
			got.w.async--
		} else {
			got.w.busy = false
		}
		p.all.Done()
		p.dispatch()
	}
	return nil, ctx.Err()
}

// dispatch gives workers to those who wait, and starts workers for those who get none. The mutex is held.
func (p *pool) dispatch() {
	left := p.waiting[:0]
	missing := 0
	for _, q := range p.waiting {
		w, start := p.place(q)
		if w == nil {
			left = append(left, q)
			if start {
				missing++
			}
			continue
		}
		if q.async {
			w.async++
		} else {
			w.busy = true
		}
		p.all.Add(1)
		q.ready <- placed{w: w}
	}
	clear(p.waiting[len(left):])
	p.waiting = left
	for ; p.starting < missing && len(p.workers)+p.starting < p.max; p.starting++ {
		p.all.Go(func() {
			ctx, cancel := context.WithTimeout(p.context, loadTimeout)
			defer cancel()
			r, err := p.start(ctx)
			if err == nil && len(r.Errors) > 0 { // it could be loaded before
				err = &BrokenError{Text: errLoad, Detail: p.load.File + ":" + strings.Join(r.Errors, "; ")}
			}
			if err != nil {
				p.refuse(err)
			}
		})
	}
}

// refuse is told that a worker did not start. The workers that are there must do; where there is none, the first who waits fails and the
// others try again.
func (p *pool) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.workers) > 0:
		p.max = len(p.workers)
	case len(p.waiting) > 0:
		p.waiting[0].ready <- placed{err: err}
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
	if !p.closed {
		p.dispatch()
	}
}

// place finds a worker for a call, or says that one more would help.
func (p *pool) place(q *waiter) (w *worker, start bool) {
	if q.stateful {
		return p.placeStateful(q)
	}
	for _, one := range p.workers {
		switch {
		case q.async && (w == nil || one.async < w.async),
			!q.async && !one.busy && (w == nil || one.sticky < w.sticky):
			w = one
		}
	}
	if q.async && w != nil && w.async >= asyncEach && len(p.workers)+p.starting < p.max {
		return nil, true
	}
	return w, w == nil
}

// placeStateful finds the worker of a trajectory; a new trajectory goes where the fewest are.
func (p *pool) placeStateful(q *waiter) (w *worker, start bool) {
	w = p.kept[q.trajectory]
	if w == nil {
		for _, one := range p.workers {
			if w == nil || one.sticky < w.sticky {
				w = one
			}
		}
		if w == nil || w.sticky > 0 && len(p.workers)+p.starting < p.max {
			return nil, true
		}
		p.kept[q.trajectory] = w
		w.sticky++
	}
	if !q.async && w.busy {
		return nil, false
	}
	return w, false
}

// forget takes a worker out of the pool; what it kept is lost. The mutex is held.
func (p *pool) forget(w *worker) {
	p.workers = slices.DeleteFunc(p.workers, func(one *worker) bool { return one == w })
}

// remove is called when a worker is gone.
func (p *pool) remove(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.removed = true
	p.forget(w)
	for trajectory, of := range p.kept {
		if of == w {
			delete(p.kept, trajectory)
			p.lost[trajectory] = w.detail
		}
	}
	left := p.waiting[:0]
	for _, q := range p.waiting {
		if detail, ok := p.lost[q.trajectory]; ok && q.stateful {
			delete(p.lost, q.trajectory)
			q.ready <- placed{err: &BrokenError{Text: errLost, Detail: detail}}
			continue
		}
		left = append(left, q)
	}
	clear(p.waiting[len(left):])
	p.waiting = left
	if !p.closed {
		p.dispatch()
	}
}

func (p *pool) keeps(trajectory string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[trajectory] != nil
}

func (p *pool) end(trajectory string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lost, trajectory)
	if w := p.kept[trajectory]; w != nil {
		delete(p.kept, trajectory)
		w.sticky--
		if answer := w.ask(protocol.Request{ID: p.ids.Add(1), Op: "end", Trajectory: trajectory}); !p.closed {
			p.ends.Go(func() { <-answer })
		}
	}
}

// close ends everything and waits for it. Trajectories that ended before may close what they kept for a while.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		p.ends.Wait()
		close(ended)
	}()
	timer := time.NewTimer(grace)
	select {
	case <-ended:
	case <-timer.C:
	}
	timer.Stop()
	p.mu.Lock()
	for _, w := range p.workers {
		w.kill(errClosed)
	}
	for _, q := range p.waiting {
		q.ready <- placed{err: errClosed}
	}
	p.waiting = nil
	p.mu.Unlock()
	p.cancel()
	p.all.Wait()
	<-ended
}
