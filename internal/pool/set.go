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
	s.sweep()
	if slices.ContainsFunc(s.pools, func(other *Pool) bool { return other.Name() == p.Name() }) {
		return fmt.Errorf("pool %s: there is a pool of this name already; give one of the two another name", p.Name())
	}
	s.pools = append(s.pools, p)
	return nil
}

// sweep forgets the pools that are closed.
func (s *Set) sweep() {
	s.pools = slices.DeleteFunc(s.pools, func(p *Pool) bool { return p.ctx.Err() != nil })
}

// All are the numbers of all pools, in the order in which they were added.
func (s *Set) All() []Stats {
	s.mu.Lock()
	s.sweep()
	pools := slices.Clone(s.pools)
	s.mu.Unlock()
	all := make([]Stats, len(pools))
	for i, p := range pools {
		all[i] = p.Stats()
	}
	return all
}

// Close closes the pools, the last first. It may be called several times. What a pool's own Close has told, earlier and to another, is not told again.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	s.sweep()
	pools := slices.Clone(s.pools)
	s.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(pools) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
