package cli

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

func TestTreesAreDrawn(t *testing.T) {
	leaf := func(index int, b trajectory.Branch, forked int, names ...string) store.Record {
		place := trajectory.Place{Phase: "train", Step: 2, Group: 5, Index: index, Branch: b}
		tr := &trajectory.Trajectory{ID: place.ID(), TaskID: "q\x1b[2J", Index: index, Branch: b, Forked: forked, StopReason: trajectory.StopAnswer, Reward: float64(forked) / 2}
		for _, name := range names {
			tr.Turns = append(tr.Turns, trajectory.Turn{Shared: name, Entropy: 1.5})
		}
		return store.Record{Phase: "train", Trajectory: tr}
	}
	got := drawGroup([]store.Record{
		leaf(0, "", 0, "a0", "a1", "a2"), leaf(0, "0", 1, "a0", "b1"), leaf(0, "0.0", 1, "a0", "c1", "c2"), leaf(0, "0.1", 2, "a0", "b1", "d2"), leaf(0, "1", 2, "a0", "a1", "e2"),
		leaf(1, "", 0, "f0"), leaf(2, "", 0),
	})
	require.Equal(t, `== train-2-5  task q\x1b[2J  7 trajectories of 3 roots  9 turns sampled, 15 with what is shared
0                        turns 1 to 3     reward 0.000  answer  entropy 1.50
├ 0.0                    turn 2           reward 0.500  answer  entropy 1.50
│ ├ 0.0.0                turns 2 to 3     reward 0.500  answer  entropy 1.50
│ └ 0.0.1                turn 3           reward 1.000  answer  entropy 1.50
└ 0.1                    turn 3           reward 1.000  answer  entropy 1.50
1                        turn 1           reward 0.000  answer  entropy 1.50
2                        no turn of its own reward 0.000  answer
`, got)
	within := leaf(0, "0", 1, "a0", "b1")
	within.Trajectory.ForkedAt = 7
	require.Contains(t, drawGroup([]store.Record{leaf(0, "", 0, "a0", "a1"), within}), "\n└ 0.0                    turn 2           reward 0.500  answer  from token 8 on")
	require.Empty(t, drawGroup([]store.Record{leaf(0, "", 0, "a"), leaf(1, "", 0, "b")}))
	require.Equal(t, "train-2-5", groupOf("train-2-5-0.1.2"))
	require.Empty(t, groupOf("x"))
}

func TestTreesThatThereAreNot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	overviewtest.Run{Train: []overviewtest.Sampled{{Reward: 1}}}.Write(t, dir)
	out, _, err := command(t, "inspect", "tree", "--run", dir, "--id", "train-0-0-0")
	require.NoError(t, err)
	require.Equal(t, "none of these trajectories branches; a job's rollout.tree makes them branch\n", out)
	for _, id := range []string{"train-9-0-0", "nonsense"} {
		out, _, err = command(t, "inspect", "tree", "--run", dir, "--id", id)
		require.EqualError(t, err, fmt.Sprintf("store: there is no trajectory %q", id))
		require.Empty(t, out)
	}
	_, _, err = command(t, "inspect", "tree", "--run", dir, "--limit", "-3")
	var usage *UsageError
	require.ErrorAs(t, err, &usage)
	require.EqualError(t, err, "--limit is -3; it is 0 (all) or more")
}
