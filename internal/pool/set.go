package pool

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Set holds the named pools of a job. The zero value is an empty set.
type Set struct {
	mu     sync.Mutex
	pools  []*Pool
	closed bool
}

// Add adds a pool, which Close closes. A pool that was closed leaves the set, and its name is free again.
func (s *Set) Add(p *Pool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("pool %s: the pools of the job are closed", p.Name())
	}
	if slices.ContainsFunc(s.sweep(), func(other *Pool) bool { return other.Name() == p.Name() }) {
		return fmt.Errorf("pool %s: there is a pool of this name already; give one of the two another name", p.Name())
	}
	s.pools = append(s.pools, p)
	return nil
}

// sweep forgets the pools that are closed, and returns those whose Close was not called.
func (s *Set) sweep() (open []*Pool) {
	s.pools = slices.DeleteFunc(s.pools, (*Pool).gone)
	for _, p := range s.pools {
		if p.ctx.Err() == nil {
			open = append(open, p)
		}
	}
	return open
}

// All are the numbers of all pools, in the order in which they were added.
func (s *Set) All() []Stats {
	s.mu.Lock()
	pools := s.sweep()
	s.mu.Unlock()
	all := make([]Stats, len(pools))
	for i, p := range pools {
		all[i] = p.Stats()
	}
	return all
}

// Close closes the pools, the last first, and waits also for those that another closes at the same time. It may be called several times. What a pool's
// own Close has told, earlier or to another, is not told again.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	s.sweep()
	pools := slices.Clone(s.pools)
	s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(pools) {
		told := p.ctx.Err() != nil
		if err := p.Close(); !told {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
