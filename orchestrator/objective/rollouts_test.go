package objective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// Overlong shaping counts the tokens that a completion cut by max_new_tokens has; only rollout.max_tokens is the limit of the penalty.
func TestOverlongShapingOfACutCompletion(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.SayCut("hm") })
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
	w := &rollouts{sampler: r, algorithm: &algorithms.Algorithm{Overlong: algorithms.Overlong{Buffer: 100, Factor: 1}}}
	w.shape(tr)
	require.Zero(t, tr.RewardParts[algorithms.OverlongPart])
}

// The part overlong is the penalty, also beside a reward of the job that has this name.
func TestOverlongShapingBesideARewardOfItsName(t *testing.T) {
	w := &rollouts{sampler: &rollout.Sampler{MaxTotal: 100}, algorithm: &algorithms.Algorithm{Overlong: algorithms.Overlong{Buffer: 10, Factor: 0.5}}}
	tr := &trajectory.Trajectory{Reward: 1, RewardParts: map[string]float64{"overlong": 1}, StopReason: trajectory.StopMaxTokens}
	w.shape(tr)
	require.Equal(t, 0.5, tr.Reward)
	require.Equal(t, map[string]float64{"overlong": -0.5}, tr.RewardParts)
}

// Dynamic sampling compares what the update would: a reward of calls that are not trained makes no group informative.
func TestGroupsAreUsableByWhatIsTrained(t *testing.T) {
	w := &rollouts{algorithm: &algorithms.Algorithm{DynamicSampling: true}, sampler: &rollout.Sampler{Frozen: isJudge}}
	for role, usable := range map[trajectory.Role]bool{"solver": true, "judge": false, trajectory.RoleDiscarded: false} {
		g := counted(1, 3)[0]
		for i, reward := range []float64{1, 1, 0} {
			g.Trajectories[i].Reward = reward
			spokenBy("solver")(g.Trajectories[i])
		}
		spokenBy(role)(g.Trajectories[2])
		require.Equal(t, usable, w.Usable(g), role)
	}
}
