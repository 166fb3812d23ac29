package gateway

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Budget bounds a session; 0 is any number, or time. When it is spent, calls get a reply that says so, and nothing is sampled for it.
type Budget struct {
	Calls  int
	Tokens int // sampled
	Until  time.Time
	Time   time.Duration // from the first call on, where Until is not given
}

// spending is what a session has taken of its budget.
type spending struct {
	budget Budget

	mu      sync.Mutex
	begun   time.Time     // its budget of Time; zero: not yet
	before  time.Duration // that an earlier process has spent of it
	sampled int           // tokens
	granted int           // calls that the budget holds for, but for those that failed
	refused int           // calls beyond the budget
}

// grant takes a call of the budget; why is what the agent reads where the budget does not hold for it, else "".
func (s *spending) grant(now time.Time) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := &s.budget; b.Time > 0 && b.Until.IsZero() {
		s.begun, b.Until = now, now.Add(b.Time-s.before)
	}
	b := s.budget
	switch {
	case b.Calls > 0 && s.granted >= b.Calls:
		why = fmt.Sprintf("%d calls", b.Calls)
	case b.Tokens > 0 && s.sampled >= b.Tokens:
		why = fmt.Sprintf("%d tokens", b.Tokens)
	case !b.Until.IsZero() && !now.Before(b.Until):
		why = "its time"
	default:
		s.granted++
		return ""
	}
	s.refused++
	return "The budget of this session is spent: " + why + ". Stop here."
}

// giveBack gives back a call that failed: it comes again.
func (s *spending) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted--
}

// adopt counts a call of before, by which so many seconds were spent; 0: it is not known, or none are counted.
func (s *spending) adopt(seconds float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted++
	s.before = max(s.before, time.Duration(seconds*float64(time.Second)))
}

// seconds are those that are spent of the budget's Time; 0: it has none.
func (s *spending) seconds(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		return 0
	}
	return (s.before + now.Sub(s.begun)).Seconds()
}

// sample counts tokens.
func (s *spending) sample(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sampled += tokens
}

// left is how many tokens the budget still holds.
func (s *spending) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.budget.Tokens == 0 {
		return math.MaxInt
	}
	return max(1, s.budget.Tokens-s.sampled)
}

// beyond is how many calls were refused.
func (s *spending) beyond() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
