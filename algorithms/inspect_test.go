package algorithms

import (
	"context"
	"encoding/json"
	"math"
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

// advantagesOf answers one line and returns its advantages.
func advantagesOf(t *testing.T, line string) [][]float64 {
	t.Helper()
	got, err := inspectLines(t, strings.ReplaceAll(line, "\n", " "))
	require.NoError(t, err)
	var out inspectResult
	require.NoError(t, json.Unmarshal([]byte(got[0]), &out))
	return out.Advantages
}

func TestInspectOptionalFields(t *testing.T) {
	// The first case of TestGAEByHand, with an observation between the second and the third token, whose value is never read.
	std := math.Sqrt(183.0/2304 + 1e-8)
	want := [][]float64{{0, -14 / 48.0 / std, 13 / 48.0 / std, 0, 1 / 48.0 / std}}
	for _, observed := range []string{"null", "1e9"} {
		got := advantagesOf(t, `{"algorithm": {"advantage": {"name": "gae", "gamma": 0.5, "lambda": 0.5}}, "trajectories": [
			{"group": 0, "reward": 1, "response_mask": [0, 1, 1, 0, 1], "values": [null, 0.5, 0.25, `+observed+`, 1]}]}`)
		inDelta(t, want, got, 1e-12)
	}
	// The second: truncated with 4 after the end. Â = 2.0915, 2.87, 2.6; the same without the last entry carries on the value 3,
	// which takes 0.9 off Â_2, 0.45 times that off Â_1 and so on.
	line := `{"algorithm": {"advantage": {"name": "gae", "gamma": 0.9, "lambda": 0.5}}, "trajectories": [
		{"group": 0, "reward": 2, "response_mask": [1, 1, 1], "turn": [0, 0, 1], "turn_rewards": [1, null], "truncated": true, "values": [1, 2, 3, 4]}]}`
	whitened := func(v ...float64) [][]float64 {
		out := [][][]float64{{v}}
		whiten(out)
		return out[0]
	}
	inDelta(t, whitened(2.0915, 2.87, 2.6), advantagesOf(t, line), 1e-12)
	inDelta(t, whitened(2.0915-0.2025*0.9, 2.87-0.45*0.9, 2.6-0.9), advantagesOf(t, strings.Replace(line, "3, 4]", "3]", 1)), 1e-12)
	inDelta(t, whitened(1.3625, 1.25, -1), advantagesOf(t, strings.Replace(line, "true", "false", 1)), 1e-12)

	// remax
	require.Equal(t, [][]float64{{0, 0.75}}, advantagesOf(t, `{"algorithm": {"advantage": "remax"}, "trajectories": [{"group": 0, "reward": 1, "response_mask": [0, 1], "greedy_reward": 0.25}]}`))
	// Turns are the runs of the mask where none are given.
	line = `{"algorithm": {"advantage": {"name": "turn", "mode": "discounted", "gamma": 0.5}}, "trajectories": [{"group": 0, "reward": 4, "response_mask": [0, 1, 1, 0, 1, 0, 0, 1]}]}`
	require.Equal(t, [][]float64{{0, 1, 1, 0, 2, 0, 0, 4}}, advantagesOf(t, line))
	line = strings.Replace(line, `"group": 0,`, `"group": 0, "turn": [null, 0, 1, null, 1, null, null, 1],`, 1)
	require.Equal(t, [][]float64{{0, 2, 4, 0, 4, 0, 0, 4}}, advantagesOf(t, line))
	require.Equal(t, [][]float64{{0, 0.5, 4, 0, 4, 0, 0, 4}}, advantagesOf(t, strings.NewReplacer("discounted", "first_occurrence", `"group": 0,`, `"group": 0, "turn_rewards": [0.5, null],`).Replace(line)))
	// gigpo: the numbers of TestGiGPO. An anchor is any scalar; 7 and 7.0 are the same, "7" is not.
	require.Equal(t, [][]float64{{3.5, 3.5, 0, 1.5}, {-3.5, 0, -1.5}}, advantagesOf(t, `{"algorithm": {"advantage": {"name": "gigpo", "gamma": 0.5, "omega": 2, "normalize": "mean"}}, "trajectories": [
		{"group": 0, "reward": 3, "response_mask": [1, 1, 0, 1], "turn_rewards": [1, null], "anchors": [7, "7"]},
		{"group": 0, "reward": 1, "response_mask": [1, 0, 1], "anchors": [7.0, null]}]}`))
	// arpo: a trunk of two leaves that are themselves among three. Rewards 1, 0, 0: a = 2, -1, -1 times sqrt(3)/3.
	x := math.Sqrt(3) / 3
	inDelta(t, [][]float64{{0, 0, 2 * x}, {0, 0, -x}, {0, 0, -x}}, advantagesOf(t, `{"algorithm": {"advantage": "arpo"}, "trajectories": [
		{"group": 0, "reward": 1, "response_mask": [0, 1, 1], "leaf_of": [null, [0, 1, 2], [0]]},
		{"group": 0, "reward": 0, "response_mask": [0, 1, 1], "leaf_of": [null, [2, 1, 0], [1, 2]]},
		{"group": 0, "reward": 0, "response_mask": [0, 1, 1], "leaf_of": [null, [0, 1, 2], [1, 2]]}]}`), 3e-6)
	// The same by names of nodes, with the third leaf grown from the root: its siblings share the trunk, (2 - 1)/2 = 1/2.
	inDelta(t, [][]float64{{x / 2, 2 * x}, {x / 2, -x}, {-x, -x}}, advantagesOf(t, `{"algorithm": {"advantage": "arpo"}, "trajectories": [
		{"group": 0, "reward": 1, "response_mask": [1, 1], "leaf_of": ["trunk", null]},
		{"group": 0, "reward": 0, "response_mask": [1, 1], "leaf_of": ["trunk", null]},
		{"group": 0, "reward": 0, "response_mask": [1, 1], "leaf_of": [null, null]}]}`), 3e-6)
}

func TestInspectRefuses(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{"trajectories": []}`, "the key algorithm is missing"},
		{`{"algorithm": {}, "trajectory": []}`, `json: unknown field "trajectory"`},
		{`{"algorithm": {}} {}`, "more than one JSON value on the line"},
		{`{"algorithm": {}} ]`, "more than one JSON value on the line"},
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
		{`{"algorithm": {"advantage": "gae"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1]}]}`, "trajectory 0: the key values is missing, but this algorithm needs it"},
		{`{"algorithm": {"advantage": "gae"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1, 0], "values": [1]}]}`, "trajectory 0: values has 1 values, response_mask 2"},
		{`{"algorithm": {"advantage": "gae"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1, 0], "values": [null, 1]}]}`, "trajectory 0: values[0] is null on the response mask"},
		{`{"algorithm": {"advantage": "gae"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "values": [1, null]}]}`, "trajectory 0: values[1], the value after the last token, is null"},
		{`{"algorithm": {"advantage": "gae"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "values": [1], "truncated": 1}]}`, "trajectory 0: truncated: json: cannot unmarshal number"},
		{`{"algorithm": {"advantage": "remax"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1]}]}`, "trajectory 0: the key greedy_reward is missing, but this algorithm needs it"},
		{`{"algorithm": {"advantage": "gigpo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1]}]}`, "trajectory 0: the key anchors is missing, but this algorithm needs it"},
		{`{"algorithm": {"advantage": "gigpo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "anchors": [[1]]}]}`, "trajectory 0: anchors[0] is a list or an object; it must be a scalar"},
		{`{"algorithm": {"advantage": "gigpo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1, 0, 1], "anchors": [1]}]}`, "algorithms: group 0, trajectory 0: 1 anchors for 2 turns; each turn needs one"},
		{`{"algorithm": {"advantage": "turn"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "turn": [0.5]}]}`, "trajectory 0: turn: json: cannot unmarshal number 0.5"},
		{`{"algorithm": {"advantage": "turn"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "turn": [0, 0]}]}`, "trajectory 0: turn has 2 values, response_mask 1"},
		{`{"algorithm": {"advantage": "arpo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "leaf_of": [0, 0]}]}`, "trajectory 0: leaf_of has 2 values, response_mask 1"},
		{`{"algorithm": {"advantage": "arpo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "leaf_of": [{}]}]}`, "trajectory 0: leaf_of[0] is a list or an object; it must be a scalar"},
		{`{"algorithm": {"loss": "dppo"}, "trajectories": [{"group": 1, "reward": 1, "response_mask": [1], "current": [-1], "old": [-1]}]}`, "trajectory 0: the key sampling is missing, but this algorithm needs it"},
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
