//go:build torch

package algorithms

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
)

func TestInspectLoss(t *testing.T) {
	live := cgo.LiveHandles()
	// Rewards 3 and 0: advantages 1.5, -1.5. Ratios e^0.5 (above 1.2: clipped), 1 and e^-0.5 (below 0.8: clipped for A < 0).
	// Losses -1.5*1.2 = -1.8, -1.5, 1.5*0.8 = 1.2; three tokens: -2.1/3 = -0.7. Gradient of the middle token: -1.5/3.
	line := `{"algorithm": {"advantage": "dr_grpo", "loss": "ppo_clip"}, "trajectories": [` +
		`{"group": 0, "reward": 3, "response_mask": [0, 1, 0, 1], "old": [null, -1.5, 7, -2], "current": [null, -1, null, -2]},` +
		`{"group": 0, "reward": 0, "response_mask": [1, 0], "old": [-1, null], "current": [-1.5, 99], "values": null, "turn": [0, 0]},` +
		`{"group": 0, "reward": 50, "response_mask": [0], "old": [null], "current": [null]}]}`
	got, err := inspectLines(t, line)
	require.NoError(t, err)
	var out inspectResult
	require.NoError(t, json.Unmarshal([]byte(got[0]), &out))
	require.Equal(t, [][]float64{{0, 1.5, 0, 1.5}, {-1.5, 0}, {0}}, out.Advantages)
	require.InDelta(t, -0.7, *out.Loss, 1e-12) // computed in float64
	require.Equal(t, [][]float64{{0, 0, 0, -0.5}, {0, 0}, {0}}, out.GradCurrent)

	// Nothing on any mask: loss 0, gradient 0.
	got, err = inspectLines(t, `{"algorithm": {}, "trajectories": [{"group": 0, "reward": 3, "response_mask": [0, 0], "current": [null, null]}]}`)
	require.NoError(t, err)
	require.Equal(t, []string{`{"advantages":[[0,0]],"loss":0,"grad_current":[[0,0]]}`}, got)

	// reinforce needs no old; sequence weights: (−1·−1 + …).
	got, err = inspectLines(t, `{"algorithm": {"advantage": "dr_grpo", "loss": "reinforce", "aggregation": "seq-mean-token-mean"}, "trajectories": [`+
		`{"group": 0, "reward": 2, "response_mask": [1, 1], "current": [-1, -3]}, {"group": 0, "reward": 0, "response_mask": [1], "current": [-4]}]}`)
	require.NoError(t, err)
	// A = 1, -1: (mean(1, 3) - 4)/2 = -1; gradients -1/(2·2), -1/4, 1/2.
	require.Equal(t, []string{`{"advantages":[[1,1],[-1]],"loss":-1,"grad_current":[[-0.25,-0.25],[0.5]]}`}, got)

	// A ratio that overflows is an error that says where.
	got, err = inspectLines(t, `{"algorithm": {"advantage": "dr_grpo"}, "trajectories": [{"group": 0, "reward": 0, "response_mask": [0, 1], "old": [null, -900], "current": [null, -1]}, {"group": 0, "reward": 2, "response_mask": [1], "old": [-1], "current": [-1]}]}`)
	require.ErrorContains(t, err, "line 1: trajectory 0: the loss at position 1 is +Inf")
	require.Len(t, got, 1)
	require.LessOrEqual(t, cgo.LiveHandles(), live)
}
