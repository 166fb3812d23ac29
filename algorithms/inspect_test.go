package algorithms

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inspectLines runs InspectLoss and returns its output lines and its error.
func inspectLines(t testing.TB, in string) ([]string, error) {
	t.Helper()
	var out strings.Builder
	err := InspectLoss(context.Background(), strings.NewReader(in), &out, NewRegistry())
	text := strings.TrimSuffix(out.String(), "\n")
	if text == "" {
		return nil, err
	}
	return strings.Split(text, "\n"), err
}

func TestInspectAdvantages(t *testing.T) {
	got, err := inspectLines(t, strings.ReplaceAll(`{"algorithm": {"advantage": "rloo"}, "trajectories": [
		{"group": "a", "reward": 6, "response_mask": [0, 1, 1]}, {"group": 1, "reward": 9, "response_mask": [1]},
		{"group": "a", "reward": 3, "response_mask": [1, 0]}, {"group": 1.0, "reward": 12, "response_mask": [0, 1]},
		{"group": "1", "reward": 1, "response_mask": [1]}, {"group": null, "reward": 5, "response_mask": [0]}]}`, "\n", " ")+"\n\n")
	require.NoError(t, err)
	require.Equal(t, []string{`{"advantages":[[0,3,3],[-3],[-3,0],[0,3],[0],[0]],"loss":null,"grad_current":null}`}, got)
}

func TestInspectRefuses(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{"trajectories": []}`, "the key algorithm is missing"},
		{`{"algorithm": {}, "trajectory": []}`, `json: unknown field "trajectory"`},
		{`{"algorithm": {}} {}`, "more than one JSON value on the line"},
		{`{"algorithm": {"clip": 1}}`, `algorithms: algorithm block: json: unknown field "clip"`},
		{`{"algorithm": {"loss": "cispo"}}`, "algorithms: loss cispo: it needs the key bound"},
		{`{"algorithm": {"entropy": 0.1}}`, "entropy: the bonus is no function of the logprobs of a line; set it to 0"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1}]}`, "trajectory 0: the key response_mask is missing"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "response_mask": [1]}]}`, "trajectory 0: the key reward is missing"},
		{`{"algorithm": {}, "trajectories": [{"reward": 1, "response_mask": [1]}]}`, "trajectory 0: the key group is missing"},
		{`{"algorithm": {}, "trajectories": [{"group": [1], "reward": 1, "response_mask": [1]}]}`, "trajectory 0: group is a list or an object; it must be a scalar"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [2]}]}`, `trajectory 0: response_mask[0] is "2"; masks are 0 or 1`},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [0.5]}]}`, `trajectory 0: response_mask[0] is "0.5"; masks are 0 or 1`},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1]}]}`, "trajectory 0: the key old is missing, but this algorithm needs it"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1], "old": [-1, -2]}]}`, "trajectory 0: old has 2 values, response_mask 1"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1], "old": [0.5]}]}`, "trajectory 0: old[0] is 0.5; a log-probability is at most 0"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [0, 1], "current": [-1, null], "old": [1, -1]}]}`, "trajectory 0: current[1] is null on the response mask"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "old": [-1]}, {"group": 1, "reward": 1, "response_mask": [1], "old": [-1], "current": [-1]}]}`, "trajectory 0: the key current is missing, but this algorithm needs it"},
		{`{"algorithm": {"correction": {"kind": "tis_token"}}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1], "old": [-1]}]}`, "trajectory 0: the key sampling is missing, but this algorithm needs it"},
		{`{"algorithm": {"kl": {"coefficient": 1}}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1], "old": [-1]}]}`, "trajectory 0: the key reference is missing, but this algorithm needs it"},
		{`{"algorithm": {}, "trajectories": [{"group": 1, "reward": 1e999, "response_mask": [1]}]}`, "json: cannot unmarshal number 1e999"},
		{`nonsense`, "invalid character 'o' in literal null (expecting 'u')"},
	} {
		got, err := inspectLines(t, c.line)
		require.ErrorContains(t, err, "algorithms: inspect loss: 1 of 1 lines failed; line 1: ", c.line)
		require.Len(t, got, 1)
		var reply map[string]string
		require.NoError(t, json.Unmarshal([]byte(got[0]), &reply))
		require.True(t, strings.HasPrefix(reply["error"], c.want), "%s: %s", c.line, reply["error"])
	}
	got, err := inspectLines(t, "{\n"+`{"algorithm": {}, "trajectories": []}`+"\n{}")
	require.ErrorContains(t, err, "2 of 3 lines failed; line 1: ")
	require.Len(t, got, 3)
	require.Equal(t, `{"advantages":[],"loss":null,"grad_current":null}`, got[1])
}
