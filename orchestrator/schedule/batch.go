package schedule

import (
	"slices"
	"time"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Batch is what one step trains, and what was sampled for it.
type Batch struct {
	Step    int
	Version int32              // of the policy before the update
	All     []trajectory.Group // that ended since the last batch and are used up, by running number
	Trained []trajectory.Group // those of all that the update sees
	Cut     [][]bool           // [trained][group_size] had not ended when an earlier batch was chosen
	Running int                // trajectories that go on being sampled
	Dropped int                // groups that were given up because they could not be trained in time
	Lost    []int              // sampled tokens of each trajectory of such groups that ended since the last batch
	Refills int
	Dealt   []int         // the position in the data after the step, see state.Dealt
	Before  time.Duration // spent on sampling it by a process that ended
}

// Recorded is a batch as it was recorded; what it trains is trained.
func Recorded(rec store.Batch, trained []trajectory.Group) *Batch {
	b := &Batch{Step: rec.Step, Version: rec.Version, Trained: trained, Running: rec.Running, Dropped: rec.Stale, Lost: rec.Lost, Refills: rec.Refills, Dealt: rec.Dealt, Before: job.Seconds(rec.Seconds)}
	at := 0
	for _, g := range trained {
		cut := make([]bool, len(g.Trajectories))
		for i := range cut {
			cut[i] = slices.Contains(rec.Cut, at+i)
		}
		b.Cut, at = append(b.Cut, cut), at+len(cut)
	}
	return b
}

// Record is the batch as the log has it.
func (b *Batch) Record() store.Batch {
	rec := store.Batch{Step: b.Step, Version: b.Version, Groups: []store.GroupRef{}, Running: b.Running, Stale: b.Dropped, Lost: b.Lost, Refills: b.Refills, Dealt: b.Dealt}
	trained := map[store.GroupRef]bool{}
	for _, g := range b.Trained {
		rec.Groups = append(rec.Groups, store.RefOf(g))
		trained[store.RefOf(g)] = true
	}
	for _, g := range b.All {
		if !trained[store.RefOf(g)] {
			rec.Others = append(rec.Others, store.RefOf(g))
		}
	}
	for i, cut := range slices.Concat(b.Cut...) {
		if cut {
			rec.Cut = append(rec.Cut, i)
		}
	}
	return rec
}
