package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A state is named by what came back before the turn, whoever recorded it and however: not by the ids of calls, which differ between trajectories.
func TestStatesAreNamedByWhatCameBack(t *testing.T) {
	name := func(turns ...trajectory.Turn) string {
		name, ok := observed(&trajectory.Trajectory{Turns: turns}, len(turns)-1)
		if !ok {
			return ""
		}
		require.NotEmpty(t, name)
		return name
	}
	results := func(texts ...string) string {
		var turn trajectory.Turn
		for _, text := range texts {
			turn.Results = append(turn.Results, trajectory.ToolResult{Observation: text})
		}
		return name(turn, trajectory.Turn{})
	}
	require.Equal(t, results("a", "b"), results("a", "b"))
	require.NotEqual(t, results("a", "b"), results("ab"))
	require.NotEqual(t, results("a", "b"), results("b", "a"))
	require.Empty(t, results())
	require.Empty(t, name(trajectory.Turn{}), "the first turn")

	asked := func(after int, messages string) string {
		return name(trajectory.Turn{Results: []trajectory.ToolResult{{Observation: "of the turn before, which may be another agent's"}}},
			trajectory.Turn{Incoming: &trajectory.Incoming{After: after, Messages: []byte(messages)}})
	}
	fresh := asked(0, `[{"role":"tool","content":"3","tool_call_id":"call_1"}]`)
	require.NotEmpty(t, fresh)
	require.Equal(t, fresh, asked(0, `[{"role":"user","content":"q"},{"role":"assistant","content":"other"},{"role":"tool","content":"3","tool_call_id":"call_2"}]`),
		"the whole conversation, which the template writes otherwise now")
	require.NotEqual(t, fresh, asked(0, `[{"role":"user","content":"3"}]`))
	require.NotEqual(t, fresh, asked(0, `[{"role":"tool","content":"4"}]`))
	require.Empty(t, asked(-1, `[{"role":"user","content":"q"}]`), "it begins a conversation")
	require.Empty(t, asked(0, `[{"role":"assistant","content":"and"}]`))
	require.Empty(t, asked(0, ``))
}
