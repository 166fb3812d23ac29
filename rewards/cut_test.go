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

// Of an agent that is a program of its own, the last completion is that of the agent itself: a title behind it is neither the answer nor a way around
// the limit that cut it.
func TestATitleIsNotWhatATrajectoryEndsWith(t *testing.T) {
	block := "```python\npass\n```"
	title := trajectory.Turn{Completion: "```python\ntitle\n```", FinishReason: trajectory.FinishStop, Role: trajectory.RoleAuxiliary, Incoming: &trajectory.Incoming{After: -1}}
	thrown := trajectory.Turn{Completion: "thrown away", FinishReason: trajectory.FinishStop, Role: trajectory.RoleDiscarded, Incoming: &trajectory.Incoming{After: -1}}
	own := trajectory.Turn{Completion: block, FinishReason: trajectory.FinishStop, Incoming: &trajectory.Incoming{After: -1}}
	tr := input(nil, own, title, thrown).Trajectory
	tr.StopReason = trajectory.StopNoAction
	require.Equal(t, 0, tr.Last())
	require.Equal(t, block, finalResponse(tr))
	code, _ := trajectoryCode(tr)
	require.Equal(t, "pass\n", code)

	// Form and answer are those of the agent's own completions.
	tr.Turns[0].Completion, tr.Turns[1].Completion, tr.Turns[2].Completion = "<think>a</think><answer>b</answer>", "A title", "<answer>c</answer>"
	in := Input{Task: trajectory.Task{Fields: map[string]any{"answer": "b"}}, Trajectory: tr}
	require.Equal(t, 1.0, scored(t, made(t, "tags", nil), in).Value)
	require.Equal(t, 1.0, scored(t, made(t, "tags", map[string]any{"in": "every"}), in).Value)
	require.Equal(t, 1.0, scored(t, made(t, "pattern", map[string]any{"pattern": ".*b</answer>", "in": "completion"}), in).Value)
	s := scored(t, made(t, "search_r1", map[string]any{"field": "answer"}), in)
	require.Equal(t, []float64{1, 1}, []float64{s.Parts["em"], s.Parts["form"]})
	require.True(t, thinks(tr.Own()))
	tr.Turns[0].Completion = block

	tr.Turns[0].FinishReason, tr.StopReason = trajectory.FinishLength, trajectory.StopMaxTokens
	require.True(t, tr.Cut())
	require.Empty(t, finalResponse(tr))
	_, found := trajectoryCode(tr)
	require.False(t, found)

	tr.Turns = []trajectory.Turn{title, thrown}
	require.Equal(t, []trajectory.Turn{title}, tr.Own())
	require.Equal(t, 0, tr.Last(), "it has nothing else")
	tr.Turns = tr.Turns[1:]
	require.Equal(t, -1, tr.Last())
	require.Empty(t, tr.Own())
	tr.Turns = nil
	require.Equal(t, -1, tr.Last())
	require.False(t, tr.Cut())
}
