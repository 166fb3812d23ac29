package rewards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A completion that a token limit cut is no final answer, for the rewards too that fall back on what was written last.
func TestAFragmentIsNotScoredAsAnAnswer(t *testing.T) {
	fields := map[string]any{"answer": "Paris", "golden_answers": []any{"Paris"}}
	whole := input(fields, trajectory.Turn{Completion: "<answer>Paris</answer>", FinishReason: trajectory.FinishStop})
	cut := input(fields, trajectory.Turn{Completion: "<answer>Paris</answer>", FinishReason: trajectory.FinishLength})
	cut.Trajectory.StopReason = trajectory.StopMaxTokens
	require.True(t, cut.Trajectory.Cut())
	for _, name := range []string{"search_r1", "qa_em_format_reward", "qa_f1_reward", "qa_em_reward"} {
		r := made(t, name, nil)
		if name == "search_r1" || name == "qa_em_reward" {
			require.Positive(t, scored(t, r, whole).Value, name)
		}
		require.Zero(t, scored(t, r, cut).Value, name)
	}
	block := "```python\npass\n```"
	whole.Trajectory.Turns[0].Completion, cut.Trajectory.Turns[0].Completion = block, block
	_, found := trajectoryCode(whole.Trajectory)
	require.True(t, found)
	_, found = trajectoryCode(cut.Trajectory)
	require.False(t, found)
	require.Equal(t, block, finalResponse(whole.Trajectory))
	require.Empty(t, finalResponse(cut.Trajectory))
}
