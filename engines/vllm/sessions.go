package vllm

import "time"

// sessions remembers which replica has a session's prefix in its cache. A session that is not used for as long as two ages is
// forgotten: its prefix is gone by then, and its trajectory has ended.
type sessions struct {
	young, old map[string]*replica
	since      time.Time // when young began
}

const (
	sessionAge   = 5 * time.Minute
	mostSessions = 1 << 15 // of an age
)

func newSessions() *sessions { return &sessions{young: map[string]*replica{}} }

func (s *sessions) of(name string) *replica {
	if r, ok := s.young[name]; ok {
		return r
	}
	return s.old[name]
}

func (s *sessions) set(name string, r *replica) {
	if name == "" {
		return
	}
	if now := time.Now(); len(s.young) >= mostSessions || now.Sub(s.since) > sessionAge {
		s.young, s.old, s.since = map[string]*replica{}, s.young, now
	}
	s.young[name] = r
}
