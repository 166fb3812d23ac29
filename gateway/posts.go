package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// posts is what an earlier process stored of what was posted, where the agent begins anew: it may post all of that again, and it counts once.
type posts struct {
	t      *trajectory.Trajectory // whose Posted has them
	unsaid []int                  // of the trajectory's Posted, those that did not come again
	aside  []trajectory.Posted    // for turns that are not there yet; Turn is their index of before
}

// MaxReward bounds what is posted, so that sums stay finite.
const MaxReward = 1e9

// maxPosts bounds what is posted for a trajectory.
const maxPosts = 1 << 16

// Post takes a reward for a call, named by the id of its reply, or with "" for the trajectory. Several add up; those with the same id count once. When
// it returns, the reward is stored.
func (s *Session) Post(id, call string, value float64) error {
	s.logs.Lock()
	defer s.logs.Unlock()
	news, err := s.posted(trajectory.Posted{ID: id, Turn: -1, Reward: value}, call)
	if err != nil || !news {
		return err
	}
	return s.record()
}

// Conclude takes the result with which the agent ends its trajectory. When it returns, the result is stored. The same result may come again.
func (s *Session) Conclude(result json.RawMessage) error {
	s.logs.Lock()
	defer s.logs.Unlock()
	news, err := s.posted(trajectory.Posted{Turn: -1, End: result}, "")
	if err != nil || !news {
		return err
	}
	return s.record()
}

// Concluded is the result that was stored; nil: there is none.
func (s *Session) Concluded() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ResultOf(s.growth.t)
}

// ResultOf is the result with which the agent of a trajectory ended it; nil: it has none.
func ResultOf(t *trajectory.Trajectory) json.RawMessage {
	for _, p := range t.Posted {
		if p.End != nil {
			return p.End
		}
	}
	return nil
}

// posted makes what is posted part of the trajectory; news is false where it is already.
func (s *Session) posted(p trajectory.Posted, call string) (news bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, failed := s.faults.all()
	switch was := ResultOf(s.growth.t); {
	case s.over || failed != nil:
		return false, errEnded
	case p.End != nil && was != nil && bytes.Equal(was, p.End):
		return false, nil
	case p.End != nil && was != nil:
		return false, &dialects.Error{Status: http.StatusConflict, Message: "the trajectory has a result already"}
	case !(math.Abs(p.Reward) <= MaxReward):
		return false, &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("the reward is %g; it must be from %g to %g", p.Reward, -MaxReward, MaxReward), Param: "reward"}
	case len(s.growth.t.Posted) >= maxPosts:
		return false, &dialects.Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf("%d rewards were posted for the trajectory, which is the most", maxPosts)}
	}
	if call != "" {
		c := s.calls.named(call)
		if c == nil || c.turn < 0 {
			return false, &dialects.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("the session has no call %q; give the id of one of its replies", wording.Clip(call, 80)), Param: "call"}
		}
		p.Turn = c.turn
	}
	if s.recovered.posts.repeated(p) {
		return false, nil
	}
	if s.recovered.posts.withdraw(p.ID) {
		s.recovered.rewrite()
	}
	if s.recovered.ahead() {
		s.recovered.leave()
	}
	s.growth.t.Posted = append(s.growth.t.Posted, p)
	return true, nil
}

// payPosts pays the turns what was posted for them, and returns the sum of what was posted for the trajectory; nil: nothing was.
func payPosts(t *trajectory.Trajectory) (sum *float64) {
	for i := range t.Turns {
		t.Turns[i].Reward = nil // of one that was recorded when it was paid
	}
	for _, p := range t.Posted {
		to := &sum
		if p.End != nil {
			continue
		}
		if p.Turn >= 0 {
			to = &t.Turns[p.Turn].Reward
		}
		paid := p.Reward
		if *to != nil {
			paid += **to
		}
		*to = &paid
	}
	return sum
}

// repeated tells whether something was posted before: by this process with the same id, or by an earlier one.
func (s *posts) repeated(p trajectory.Posted) bool {
	for k, i := range s.unsaid {
		if was := s.t.Posted[i]; was.Turn == p.Turn && was.Reward == p.Reward && was.ID == p.ID && p.End == nil {
			s.unsaid = slices.Delete(s.unsaid, k, k+1)
			return true
		}
	}
	for i, was := range s.t.Posted {
		if p.ID != "" && was.ID == p.ID && !slices.Contains(s.unsaid, i) {
			return true
		}
	}
	return false
}

// withdraw drops what an earlier process was posted with an id, in whose place its agent posts something else now; "" is no id.
func (s *posts) withdraw(id string) (dropped bool) {
	if id == "" {
		return false
	}
	is := func(p trajectory.Posted) bool { return p.ID == id }
	s.aside = slices.DeleteFunc(s.aside, is)
	return len(s.cut(is)) > 0
}

// cut takes some of what did not come again off the trajectory.
func (s *posts) cut(which func(p trajectory.Posted) bool) (taken []trajectory.Posted) {
	var left []trajectory.Posted
	var unsaid []int
	for i, p := range s.t.Posted {
		old := slices.Contains(s.unsaid, i)
		if old && which(p) {
			taken = append(taken, p)
			continue
		}
		if old {
			unsaid = append(unsaid, len(left))
		}
		left = append(left, p)
	}
	s.t.Posted, s.unsaid = left, unsaid
	return taken
}

// adopt takes over what was posted for the adopted turns and the trajectory.
func (s *posts) adopt(r *trajectory.Trajectory, adopted int) {
	for _, p := range r.Posted {
		if p.Turn < adopted {
			s.t.Posted = append(s.t.Posted, p)
		}
	}
}

// recall takes over what was posted, for turns that come again.
func (s *posts) recall(r *trajectory.Trajectory) {
	for i, p := range r.Posted {
		s.t.Posted, s.unsaid = append(s.t.Posted, p), append(s.unsaid, i)
	}
}

// setAside sets aside what was posted for turns of before that did not come again in their order: the first taken ones did.
func (s *posts) setAside(taken int) {
	s.aside = append(s.aside, s.cut(func(p trajectory.Posted) bool { return p.Turn >= taken })...)
}

// move has what was set aside for a turn of before go with the turn, which is another one now.
func (s *posts) move(before, now int) {
	var left []trajectory.Posted
	for _, p := range s.aside {
		if p.Turn != before {
			left = append(left, p)
			continue
		}
		p.Turn = now
		s.unsaid = append(s.unsaid, len(s.t.Posted))
		s.t.Posted = append(s.t.Posted, p)
	}
	s.aside = left
}

// drop drops what an earlier process was posted for the trajectory, where its agent went another way and did not post it again: it judged what
// is no more.
func (s *posts) drop() (dropped bool) {
	return len(s.cut(func(p trajectory.Posted) bool { return p.Turn < 0 || p.Turn >= len(s.t.Turns) })) > 0
}
