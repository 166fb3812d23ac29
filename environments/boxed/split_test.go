package boxed

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

func TestTasksOfASplit(t *testing.T) {
	for all, held := range map[int]int{0: 0, 1: 0, 2: 1, 9: 1, 10: 2} {
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}[:all]
		eval, err := Split("harbor", 3, slices.Clone(names), environments.Eval)
		require.NoError(t, err)
		require.Len(t, eval, held)
		slices.Reverse(names)
		train, err := Split("harbor", 3, slices.Clone(names), environments.Train)
		require.NoError(t, err)
		require.ElementsMatch(t, names, append(slices.Clone(train), eval...), "in whatever order they come, each is in one split")
	}
	_, err := Split("harbor", 3, []string{"a"}, "test")
	require.EqualError(t, err, `harbor: there is no split "test"; the splits are train and eval`)

	made, err := Tasks("harbor", "task", "/tasks", environments.Eval, []string{"b", "a", "c"}, 2)
	require.NoError(t, err)
	require.Equal(t, []trajectory.Task{{ID: "harbor-b", Fields: map[string]any{"task": "b"}}, {ID: "harbor-a", Fields: map[string]any{"task": "a"}}}, made)
	for _, n := range []int{-1, 4} {
		_, err = Tasks("harbor", "task", "/tasks", environments.Eval, []string{"b", "a", "c"}, n)
		require.ErrorContains(t, err, " tasks are asked for, and the split eval of /tasks has 3; say environment.tasks: {eval: 3}")
	}
}
