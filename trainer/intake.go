package trainer

import "github.com/agentfly/agentfly/trajectory"

// Fate is what an update does with a trajectory of its batch.
type Fate int

// The fates of a trajectory. All but Taken leave it out, with its reward.
const (
	Taken    Fate = iota
	Failed        // it failed, or its group's baseline did, without which the group says nothing
	Filtered      // it was cut, or its group's baseline was, and rollout.cut is filter
	Empty         // it has no token to learn from
)

// FateOf is the fate of a trajectory whose response mask has what is trained (Trajectory.Trained). greedy is its group's baseline; nil: the estimator
// has none. filterCut is Batch.FilterCut.
func FateOf(t, greedy *trajectory.Trajectory, filterCut bool) Fate {
	switch {
	case t.Failed():
		return Failed
	case filterCut && t.Cut():
		return Filtered
	case greedy != nil && greedy.Failed():
		return Failed
	case greedy != nil && filterCut && greedy.Cut():
		return Filtered
	case t.ResponseTokens() == 0:
		return Empty
	}
	return Taken
}
