package objective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// What a log has of the trees of outstanding groups keeps its place, what failed included; and a job without trees does not go on with them.
func TestTreesOfALogKeepTheirPlaces(t *testing.T) {
	log := &store.Recovery{Outstanding: []store.Outstanding{
		{
			Admission: store.Admission{Phase: store.Train, Step: 3, Group: 1, Size: 3},
			Finished:  []*trajectory.Trajectory{{ID: "train-3-1-0"}, {ID: "train-3-1-0.0", Branch: "0", Forked: 2, Err: "gone"}, nil},
			Partial:   []*trajectory.Trajectory{nil, nil, {ID: "train-3-1-0.0.1", Branch: "0.1", Forked: 3}},
		},
		{Admission: store.Admission{Phase: store.Greedy, Step: 3, Group: 1, Size: 1}, Finished: []*trajectory.Trajectory{{}}, Partial: make([]*trajectory.Trajectory, 1)},
	}}
	require.Equal(t, map[store.GroupRef][]tree.Leaf{{Step: 3, Group: 1}: {{}, {Branch: "0", Forked: 2}, {Branch: "0.1", Forked: 3}}}, begunOf(log))
	require.Empty(t, begunOf(nil))
	require.Equal(t, "train-3-1-0.0", branchOf(log))

	o := NewRL(&job.Job{Rollout: job.Rollout{Groups: 1, GroupSize: 3}}, &algorithms.Algorithm{}, &rollout.Sampler{}, &data.Dealer{Strata: [][]trajectory.Task{{{ID: "q"}}}}, nil)
	o.Prepare(Found{Groups: schedule.Recovered{Dir: "runs/x", Log: log}})
	_, err := o.openFeed(At{Step: 3})
	require.EqualError(t, err, "rollout.tree: the run in runs/x has outstanding groups with branches, such as train-3-1-0.0, and the job has no trees any more; continue with the settings that it began with")
}

// Sampled tokens that an earlier process recorded are told apart from those of this one: of a trajectory that had ended, of the turns of one that goes on, and not
// of one that began anew or of what another trajectory of the tree sampled.
func TestTokensOfAnEarlierProcess(t *testing.T) {
	turn := func(by string, k, tokens int, seconds float64) trajectory.Turn {
		return trajectory.Turn{Seed: uint64(k), CompletionEnd: tokens, EngineSeconds: seconds, Shared: trajectory.SharedName(by, k)}
	}
	ended := &trajectory.Trajectory{ID: "train-0-0-0", Turns: []trajectory.Turn{turn("train-0-0-0", 0, 1, 0.5), turn("train-0-0-0", 1, 2, 0.5)}}
	on := &trajectory.Trajectory{ID: "train-0-0-0.0", Turns: []trajectory.Turn{turn("train-0-0-0", 0, 1, 0.5), turn("train-0-0-0.0", 1, 4, 0.25)}}
	anew := &trajectory.Trajectory{ID: "train-0-0-1", Turns: []trajectory.Turn{turn("train-0-0-1", 0, 8, 0.5)}}
	log := &store.Recovery{Outstanding: []store.Outstanding{{
		Admission: store.Admission{Phase: store.Train, Size: 4},
		Finished:  []*trajectory.Trajectory{ended, nil, nil, nil}, Partial: []*trajectory.Trajectory{nil, on, anew, nil},
	}}}
	wentOn, again, fresh := *on, *anew, *anew
	wentOn.Turns = append(wentOn.Turns[:2:2], turn("train-0-0-0.0", 2, 16, 0.5))
	again.Turns = []trajectory.Turn{turn("train-0-0-1", 0, 8, 0.75)}
	fresh.ID = "train-0-0-2"
	require.Equal(t, 1+2+4, earlier([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{ended, &wentOn, &again, &fresh}}}, log))
	require.Zero(t, earlier([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{ended}}}, &store.Recovery{}))
}
