package resources

import (
	"cmp"
	"context"
	"runtime"
)

// Grade waits for one of the places in which rewards run programs, of which the job has Options.Gradings, and returns what gives it back. More
// programs at once than processors would only take each other's time.
func (r *Resources) Grade(ctx context.Context) (leave func(), err error) {
	r.mu.Lock()
	if r.gradings == nil {
		r.gradings = make(chan struct{}, cmp.Or(max(r.options.Gradings, 0), runtime.NumCPU()))
	}
	places := r.gradings
	r.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
