package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func TestSeedsDeriveFromPlaceAndTurn(t *testing.T) {
	r := &Sampler{Seed: 5, RunName: "test"}
	base := Place{Step: 1, Group: 2, Index: 3, Task: trajectory.Task{ID: "t"}, Phase: "train"}
	same := base
	require.Equal(t, base.requestSeed(r.Seed, 0), same.requestSeed(r.Seed, 0))
	seen := map[uint64]bool{base.requestSeed(r.Seed, 0): true}
	for _, change := range []func(p *Place){
		func(p *Place) { p.Step = 2 }, func(p *Place) { p.Group = 3 }, func(p *Place) { p.Index = 4 },
		func(p *Place) { p.Task.ID = "u" }, func(p *Place) { p.Phase = "eval-before" },
	} {
		p := base
		change(&p)
		require.False(t, seen[p.requestSeed(r.Seed, 0)])
		seen[p.requestSeed(r.Seed, 0)] = true
	}
	require.False(t, seen[base.requestSeed(r.Seed, 1)])
	branch := base
	branch.Branch = "0"
	require.False(t, seen[branch.requestSeed(r.Seed, 0)])
	require.Equal(t, base.ID()+".0", branch.ID())
	require.Equal(t, trajectory.Branch("0"), branch.trajectory().Branch)
	other := *r
	other.Seed++
	require.False(t, seen[base.requestSeed(other.Seed, 0)])
}

// The trajectories of a task wait for environments as one group, whatever they fork off.
func TestTheTrajectoriesOfATaskWaitTogether(t *testing.T) {
	for _, p := range []Place{{}, {Index: 3}, {Branch: "0"}, {Index: 3, Branch: "0"}, {Branch: "1.0"}} {
		p.Phase, p.Step, p.Group = "train", 2, 5
		require.Equal(t, "train-2-5-0", p.group())
	}
	require.NotEqual(t, Place{Phase: "train", Group: 1}.group(), Place{Phase: "train", Group: 2}.group())
}
