package rewards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// What a reward would fail every trajectory of a task with is known from the task alone, also through combinators and other names.
func TestRewardsSayWhatTasksLack(t *testing.T) {
	res := resources.New(resources.Options{})
	defer func() { require.NoError(t, res.Close()) }()
	b := Prebuilt().Builder(t.Context(), res)
	good := trajectory.Task{ID: "1", Fields: map[string]any{"answer": "4", "steps": []any{"2"}, "answers": []any{"oak"}, "leaderboard": []any{1.0}, "other": []any{1.0}, "start": "3"}}
	bad := trajectory.Task{ID: "2", Fields: map[string]any{"other": 1}}
	list := []any{"final_answer", "format"}
	for name, c := range map[string]struct {
		params map[string]any
		want   string
	}{
		"final_answer":  {map[string]any{"require_steps": true}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"right_call":    {nil, `task "2" has no field "answer"; add the column to the data or name another one`},
		"exact_match":   {map[string]any{"as": "em"}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"f1":            {nil, `task "2" has no field "answer"; add the column to the data or name another one`},
		"math_equal":    {nil, `task "2" has no field "answer"; add the column to the data or name another one`},
		"search_r1":     {nil, `task "2" has no field "answer"; add the column to the data or name another one`},
		"qa_f1_reward":  {nil, `task "2" has no field "answer"; add the column to the data or name another one`},
		"mask_recall":   {nil, `task "2": the field "answers" must be a list of masked texts that is not empty`},
		"mask_found":    {nil, `task "2": the field "answers" must be a list of masked texts that is not empty`},
		"sum":           {map[string]any{"of": list}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"min":           {map[string]any{"of": list}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"scale":         {map[string]any{"of": "f1", "by": 2}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"gate":          {map[string]any{"if": "f1", "then": 1}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"format":        {nil, ""},
		"cosine_length": {map[string]any{"if": "final_answer", "max_tokens": 9}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"best_delta":    {map[string]any{"of": "f1", "start": 0}, `task "2" has no field "answer"; add the column to the data or name another one`},
		"human_rank":    {map[string]any{"of": "f1", "field": "other"}, `task "2": the field "other" must be a list of scores that is not empty`},
		"judge": {
			map[string]any{"url": "http://127.0.0.1:1/v1", "model": "m", "prompt": "{question} {response} {answer}", "no_cache": true},
			`task "2" has no field "answer"; add the column to the data or name another one`,
		},
	} {
		w, err := b.Make(name, c.params)
		require.NoError(t, err, name)
		sum, err := NewSum(0, Weighted{Reward: w, Weight: 1})
		require.NoError(t, err)
		require.NoError(t, CheckTask(sum, good), name)
		if c.want == "" {
			require.NoError(t, CheckTask(sum, bad), name)
			continue
		}
		require.EqualError(t, CheckTask(sum, bad), c.want, name)
	}
}
