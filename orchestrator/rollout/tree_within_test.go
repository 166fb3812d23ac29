package rollout_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// planted is a sampler of EPTree's trees whose model calls the calculator and then answers. Token i of a text is as unlikely as nll says of its letter
// at that place.
func planted(t *testing.T, rule tree.TokenNLL, say func(q engines.Request, turn int, begun string) string, nll func(text string, at int) float32) (*rollout.Sampler, *sync.Map) {
	var asked sync.Map
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		asked.Store(q.ID, q)
		turn, begun := strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<result>"), begunText(q)
		c, err := rollouttest.Say(say(q, turn, begun))
		text := begun + rollouttest.Decode(c.TokenIDs) + "$"
		for i := range c.TokenIDs {
			c.Logprobs = append(c.Logprobs, -nll(text, len(begun)+i))
		}
		return c, err
	})
	r.Trees = &rollout.Trees{Roots: rule.Trees, Rule: rule, Within: true}
	return r, &asked
}

// The least likely tokens branch, of those that may: not the first of all, which nothing stands before, and none within a stop string. The child's turn
// begins with what stands before the token, which is nothing where it is the first of a later turn; its request has that in its prompt and may sample so
// many tokens less, and the call is that of the whole turn.
func TestTheLeastLikelyTokensBranch(t *testing.T) {
	say := func(_ engines.Request, turn int, begun string) string {
		switch {
		case turn > 0:
			return "<answer>5</answer>"[min(len(begun), len("<answer>")):]
		case begun == "":
			return "<calculator>12+3</calculator>"
		}
		return "0*4</calculator>"
	}
	unlikely := map[string]float32{ // by what stands before the token
		"": 9, "<calculator>12": 5, "<calculator>1": 6, "<calculator>12+3<": 8, "<calculator>12+3</calculat": 8, "<": 8, "<calculator>12+3": 4, "<answer>": 3,
	}
	r, asked := planted(t, tree.TokenNLL{Trees: 1, Tokens: 5, Branches: 1, Rounds: 1}, say, func(text string, at int) float32 { return unlikely[text[:at]] + 0.5 })
	task := rollouttest.Task("q", "1+1?", "5")
	group, err := r.Grow(t.Context(), rollout.Place{Phase: "train"}, task, 6, nil, nil)
	require.NoError(t, err)
	checkTrees(t, group, 6)
	type fork struct {
		turn, at   int
		completion string
	}
	var got []fork
	for _, tr := range group.Trajectories[1:] {
		require.Empty(t, tr.Err)
		got = append(got, fork{tr.Forked, tr.ForkedAt, tr.Turns[tr.Forked].Completion})
		value, _ := asked.Load(tr.ID + "-" + string(rune('0'+tr.Forked)))
		q := value.(engines.Request)
		parent := group.Trajectories[0]
		start := parent.Turns[tr.Forked].CompletionStart
		require.Equal(t, parent.Samples[0].TokenIDs[:start+tr.ForkedAt], q.Prompt)
		require.Equal(t, r.Sampling.MaxTokens-tr.ForkedAt, q.Sampling.MaxTokens)
		require.Equal(t, r.Sampling.Stop, q.Sampling.Stop)
	}
	require.Equal(t, []fork{
		{1, 0, "<answer>5</answer>"}, {0, 13, "<calculator>10*4</calculator>"}, {0, 14, "<calculator>120*4</calculator>"}, {0, 16, "<calculator>12+30*4</calculator>"}, {1, 8, "<answer>5</answer>"},
	}, got)
	var results []string
	for _, tr := range group.Trajectories {
		results = append(results, tr.Turns[0].Results[0].Observation)
	}
	require.Equal(t, []string{"15", "15", "40", "480", "132", "15"}, results, "a call runs as the whole turn says, and once")
	require.Equal(t, []trajectory.Begun{{Shared: "train-0-0-0:1", End: 8}}, group.Trajectories[5].Turns[1].Begun)
}

// No child begins within a character, which may have several tokens; behind it one does, whether there are stop strings or not.
func TestNoChildBeginsWithinACharacter(t *testing.T) {
	for _, stops := range []bool{true, false} {
		r, _ := planted(t, tree.TokenNLL{Trees: 1, Tokens: 2, Branches: 1, Rounds: 1}, func(_ engines.Request, _ int, begun string) string {
			return "<answer>\u00e9\u20ac7</answer>"[len(begun):]
		}, func(text string, at int) float32 {
			return map[int]float32{8: 2, 9: 9, 10: 4, 11: 8, 12: 7, 13: 3}[at]
		})
		if !stops {
			r.Sampling.Stop = nil
		}
		group, err := r.Grow(t.Context(), rollout.Place{Phase: "train"}, rollouttest.Task("q", "?", "5"), 3, nil, nil)
		require.NoError(t, err)
		require.Equal(t, []int{10, 13}, []int{group.Trajectories[1].ForkedAt, group.Trajectories[2].ForkedAt})
	}
}

// A child of a child within the same turn has what each of them sampled of it.
func TestATurnForksWithinWhatForked(t *testing.T) {
	say := func(q engines.Request, _ int, begun string) string {
		if begun == "" {
			return "<answer>aaaaaaaa</answer>"
		}
		return strings.Repeat(string(rune('b'+strings.Count(q.ID, "."))), 16-len(begun)) + "</answer>"
	}
	r, _ := planted(t, tree.TokenNLL{Trees: 1, Tokens: 1, Branches: 1, Rounds: 3}, say, func(text string, at int) float32 {
		if at == 10+2*strings.Count(text[:min(at, 12)], "c") && !strings.Contains(text[:at], "</") {
			return 5
		}
		return 0.5
	})
	group, err := r.Grow(t.Context(), rollout.Place{Phase: "train"}, rollouttest.Task("q", "?", "5"), 4, nil, nil)
	require.NoError(t, err)
	checkTrees(t, group, 4)
	require.Equal(t, 10, group.Trajectories[1].ForkedAt)
	deepest := 0
	for _, tr := range group.Trajectories {
		turn := tr.Turns[0]
		deepest = max(deepest, len(turn.Begun))
		text := turn.Completion[:len(turn.Completion)-len("</answer>")]
		at := 0
		for _, b := range turn.Begun { // each sampled letters of its own
			owner := find(group, strings.TrimSuffix(b.Shared, ":0"))
			require.Equal(t, owner.Turns[0].Completion[at:b.End], text[at:b.End])
			at = b.End
		}
	}
	require.Equal(t, 1, len(group.Trajectories[1].Turns[0].Begun))
	require.Greater(t, deepest, 1)
}

func find(group trajectory.Group, id string) *trajectory.Trajectory {
	for _, tr := range group.Trajectories {
		if tr.ID == id {
			return tr
		}
	}
	return nil
}

// An engine that takes text alone cannot go on within a turn: the leaf fails, as data, and says so.
func TestATurnForksWithinOnlyWithTokenIDs(t *testing.T) {
	r, _ := planted(t, tree.TokenNLL{Trees: 1, Tokens: 1, Branches: 1, Rounds: 1}, func(engines.Request, int, string) string { return "<answer>5</answer>" },
		func(string, int) float32 { return 0.5 })
	r.Engine = textOnly{r.Engine}
	group, err := r.Grow(context.Background(), rollout.Place{Phase: "train"}, rollouttest.Task("q", "?", "5"), 2, nil, nil)
	require.NoError(t, err)
	require.Empty(t, group.Trajectories[0].Err)
	require.Contains(t, group.Trajectories[1].Err, "this engine takes no token ids, so it cannot go on within a turn (rollout.tree.rule)")
}

type textOnly struct{ engines.Engine }

func (textOnly) Capabilities() engines.Capabilities { return engines.Capabilities{} }
