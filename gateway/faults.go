package gateway

import "sync"

// faults are what a session cannot go on with.
type faults struct {
	mu     sync.Mutex
	broke  error // of the engine, for the newest call; nil: it was answered
	failed error // what the trajectory cannot go on after: it could not be stored, or has another run's weights
}

// breaks notes that the engine has no answer to a call, or with nil that it has one, which makes good for the calls before.
func (f *faults) breaks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broke = err
}

// fails notes what ends the trajectory; the first reason stays.
func (f *faults) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

func (f *faults) all() (broke, failed error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broke, f.failed
}
