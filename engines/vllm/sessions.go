package vllm

import "slices"

// sessions remembers which replica has a session's prefix in its cache. The oldest are forgotten.
type sessions struct {
	home  map[string]*replica
	order []string
}

const mostSessions = 1 << 16

func newSessions() *sessions { return &sessions{home: map[string]*replica{}} }

func (s *sessions) of(name string) *replica { return s.home[name] }

func (s *sessions) set(name string, r *replica) {
	if name == "" {
		return
	}
	if _, ok := s.home[name]; !ok {
		s.order = append(s.order, name)
	}
	s.home[name] = r
	if len(s.order) > mostSessions {
		for _, old := range s.order[:mostSessions/2] {
			delete(s.home, old)
		}
		s.order = slices.Clone(s.order[mostSessions/2:])
	}
}
