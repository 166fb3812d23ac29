package rollout

import (
	"strings"
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

// What others sampled of a turn does not branch again off the leaf that has it from them, wherever among its own turns it stands: an agent that makes several
// calls at once may have made another one first.
func TestTokensOfOthersDoNotBranch(t *testing.T) {
	r := &Sampler{Trees: &Trees{Within: true}, Decode: func(ids []int32) string { return strings.Repeat("a", len(ids)) }}
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1})
	require.NoError(t, s.AppendResponse([]int32{5, 5, 5, 5, 5}, []float32{-1, -2, -3, -4, -5}, make([]int32, 5)))
	turn := trajectory.Turn{CompletionStart: 1, CompletionEnd: 6}
	tr := &trajectory.Trajectory{Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{turn, turn}}
	tr.Turns[1].Begun = []trajectory.Begun{{Shared: "train-0-0-0:1", End: 2}}
	turns := r.turnsOf(tr)
	require.Equal(t, []float64{1, 2, 3, 4, 5}, turns[0].NLL)
	require.Equal(t, []float64{-1, -1, -1, 4, 5}, turns[1].NLL)
}
