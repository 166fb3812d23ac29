package orchestrator

import (
	"slices"
	"time"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// batch is what one step trains, and what was sampled for it.
type batch struct {
	step    int
	version int32              // of the policy before the update
	all     []trajectory.Group // that ended since the last batch and are used up, by running number
	trained []trajectory.Group // those of all that the update sees
	cut     [][]bool           // [trained][group_size] had not ended when an earlier batch was chosen
	running int                // trajectories that go on being sampled
	dropped int                // groups that were given up because they could not be trained in time
	lost    []int              // sampled tokens of each trajectory of such groups that ended since the last batch
	refills int
	dealt   []int         // the position in the data after the step, see state.Dealt
	before  time.Duration // spent on sampling it by a process that ended
}

// recordedBatch is a batch as it was recorded; what it trains is trained.
func recordedBatch(rec store.Batch, trained []trajectory.Group) *batch {
	b := &batch{step: rec.Step, version: rec.Version, trained: trained, running: rec.Running, dropped: rec.Stale, lost: rec.Lost, refills: rec.Refills, dealt: rec.Dealt, before: job.Seconds(rec.Seconds)}
	at := 0
	for _, g := range trained {
		cut := make([]bool, len(g.Trajectories))
		for i := range cut {
			cut[i] = slices.Contains(rec.Cut, at+i)
		}
		b.cut, at = append(b.cut, cut), at+len(cut)
	}
	return b
}

// record is the batch as the log has it.
func (b *batch) record() store.Batch {
	rec := store.Batch{Step: b.step, Version: b.version, Groups: []store.GroupRef{}, Running: b.running, Stale: b.dropped, Lost: b.lost, Refills: b.refills, Dealt: b.dealt}
	trained := map[store.GroupRef]bool{}
	for _, g := range b.trained {
		rec.Groups = append(rec.Groups, store.RefOf(g))
		trained[store.RefOf(g)] = true
	}
	for _, g := range b.all {
		if !trained[store.RefOf(g)] {
			rec.Others = append(rec.Others, store.RefOf(g))
		}
	}
	for i, cut := range slices.Concat(b.cut...) {
		if cut {
			rec.Cut = append(rec.Cut, i)
		}
	}
	return rec
}
