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

// take takes the turn that was recorded for the same request, with the same prompt; false: there is none.
func (p *recovered) take(digest string, ids []int32) (recordedTurn, bool) {
	for i, r := range p.turns {
		if r.turn.Incoming == nil || r.turn.Incoming.Digest != digest || !slices.Equal(r.sample.TokenIDs[:r.turn.CompletionStart], ids) {
			continue
		}
		p.turns = slices.Delete(p.turns, i, i+1)
		if i > 0 { // in another order than before
			p.leave()
		}
		return r, true
	}
	return recordedTurn{}, false
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
