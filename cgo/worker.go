package cgo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// PanicError is what [Worker.Do] returns when its function panicked, as gotorch's operations do on bad arguments.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("cgo: panic in worker: %v", e.Value) }

var errGoexit = errors.New("cgo: worker: the function ended its goroutine")

// Worker runs functions one at a time on a goroutine that is locked to its OS thread. One worker owns a trainer: its
// model, its tensors, its losses. A round trip costs about 30 microseconds, so one Do is a whole step, not one operation.
type Worker struct {
	jobs   chan job
	closed chan struct{}
	once   sync.Once
	joined sync.WaitGroup
}

type job struct {
	fn   func() error
	done chan error // buffered
}

// NewWorker starts a worker. Close joins it.
func NewWorker() *Worker {
	w := &Worker{jobs: make(chan job), closed: make(chan struct{})}
	w.joined.Go(w.loop)
	return w
}

// Do runs fn on the worker and returns its error, or a [PanicError]. A cancelled ctx gives up only while fn waits for its
// turn: a running fn is waited for, because C++ cannot be interrupted; long functions look at ctx themselves.
func (w *Worker) Do(ctx context.Context, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cgo: worker: %w", err)
	}
	j := job{fn: fn, done: make(chan error, 1)}
	select {
	case w.jobs <- j:
		return <-j.done
	case <-w.closed:
		return fmt.Errorf("cgo: worker: %w", ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("cgo: worker: %w", ctx.Err())
	}
}

// Close waits for the running function and ends the worker. It may be called again.
func (w *Worker) Close() error {
	w.once.Do(func() { close(w.closed) })
	w.joined.Wait()
	return nil
}

func (w *Worker) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case j := <-w.jobs:
			w.run(j)
		case <-w.closed:
			return
		}
	}
}

func (w *Worker) run(j job) {
	err := errGoexit // unless fn returns or panics
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		} else if errors.Is(err, errGoexit) {
			w.joined.Go(w.loop) // this goroutine is ending
		}
		j.done <- err
	}()
	err = j.fn()
}
