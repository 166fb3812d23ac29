package gateway

import (
	"encoding/hex"
	"slices"

	"github.com/agentfly/agentfly/trajectory"
)

// recovered is what an earlier process recorded of the trajectory and the agent did not ask for again yet.
type recovered struct {
	turns   []recordedTurn
	taken   int // turns that were asked for again, in their order; -1: in another one
	posts   posts
	rewrite func() // what was recorded is not what the trajectory is now
}

// recordedTurn is a turn that was recorded before the process ended.
type recordedTurn struct {
	turn   trajectory.Turn
	sample *trajectory.Sample
	index  int // in the trajectory then
}

// prompt is what the turn was sampled after.
func (r recordedTurn) prompt() []int32 { return r.sample.TokenIDs[:r.turn.CompletionStart] }

// number is the number of a new call: that of the recorded one which asked for the same, so that the ids of its reply stay, else the next. recorded tells
// whether a turn was recorded for the same.
func (p *recovered) number(l *calls, q asked) (number int, recorded bool) {
	digest := hex.EncodeToString(q.Digest[:])
	for _, r := range p.turns {
		in := r.turn.Incoming
		if in == nil || in.Digest != digest {
			continue
		}
		if recorded = true; in.Call > 0 && l.byNumber[in.Call-1] == nil {
			return in.Call - 1, true
		}
	}
	return l.arrived, recorded
}

// of is the place of the turn that was recorded for a call, if it fits: of several equal ones that with the call's number, because the ids of its reply
// follow from it, else the first that is not of another call, which comes for it; -1: there is none.
func (p *recovered) of(l *calls, c *call, fits func(r recordedTurn) bool) int {
	digest, found := hex.EncodeToString(c.asks.digest[:]), -1
	for i, r := range p.turns {
		in := r.turn.Incoming
		if in == nil || in.Digest != digest || !fits(r) {
			continue
		}
		if in.Call == c.number+1 {
			return i
		}
		if other := l.byNumber[in.Call-1]; found < 0 && (other == nil || other.ended()) {
			found = i
		}
	}
	return found
}

// prompt is the one that was recorded for a call; nil: none was.
func (p *recovered) prompt(l *calls, c *call) []int32 {
	if i := p.of(l, c, func(recordedTurn) bool { return true }); i >= 0 {
		return p.turns[i].prompt()
	}
	return nil
}

// take takes the turn that was recorded for a call, with the same prompt; false: there is none.
func (p *recovered) take(l *calls, c *call, ids []int32) (r recordedTurn, ok bool) {
	i := p.of(l, c, func(r recordedTurn) bool { return slices.Equal(r.prompt(), ids) })
	if i < 0 {
		return r, false
	}
	r = p.turns[i]
	p.turns = slices.Delete(p.turns, i, i+1)
	if i > 0 { // in another order than before
		p.leave()
	}
	return r, true
}

// leave says that what was recorded is not what the trajectory is now.
func (p *recovered) leave() {
	if p.taken >= 0 {
		p.posts.setAside(p.taken)
		p.taken = -1
		p.rewrite()
	}
}

// ahead tells whether the log has turns that the trajectory has not.
func (p *recovered) ahead() bool { return p.taken >= 0 && len(p.turns) > 0 }
