package objective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
)

// Overlong shaping counts the tokens that a completion cut by max_new_tokens has; only rollout.max_tokens is the limit of the penalty.
func TestOverlongShapingOfACutCompletion(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.SayCut("hm") })
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
	w := &rollouts{sampler: r, algorithm: &algorithms.Algorithm{Overlong: algorithms.Overlong{Buffer: 100, Factor: 1}}}
	w.shape(tr)
	require.Zero(t, tr.RewardParts[overlongPart])
}
