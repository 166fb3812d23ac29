package rewards

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// scoredEpisode is an episode whose environment has a score of its own.
type scoredEpisode float64

func (s scoredEpisode) Score(context.Context) (float64, bool, error) { return float64(s), true, nil }

// plainEpisode is an episode whose environment has none.
type plainEpisode struct{}

func (plainEpisode) Score(context.Context) (float64, bool, error) { return 0, false, nil }

// Whether its rewards are paid by turn or with the trajectory, an environment pays the same, and the part environment shows the whole.
func TestTheEnvironmentPaysTheSameByTurn(t *testing.T) {
	const weight = 2.0
	own, err := Prebuilt().Builder(t.Context(), nil).Make("environment", nil)
	require.NoError(t, err)
	sum, err := NewSum(time.Second, Weighted{own, weight})
	require.NoError(t, err)
	walk := func(byTurn ...bool) *trajectory.Trajectory {
		tr := &trajectory.Trajectory{}
		for k, paid := range byTurn { // the turns earn 0.5, 0.75, 1, …
			earned := 0.5 + 0.25*float64(k)
			turn := trajectory.Turn{Results: []trajectory.ToolResult{{Outcome: &trajectory.Outcome{Reward: earned}}, {}}}
			if earned *= weight; paid {
				turn.Reward = &earned
			}
			tr.Turns = append(tr.Turns, turn)
		}
		return tr
	}
	for _, c := range []struct {
		name    string
		episode Episode
		tr      *trajectory.Trajectory
		whole   float64
	}{
		{"own score", scoredEpisode(0.25), walk(false, false), 0.25},
		{"own score, paid by turn", scoredEpisode(0.25), walk(true, true), 0.25},
		{"own score, some turns are paid", scoredEpisode(0.25), walk(true, false), 0.25},
		{"no score", plainEpisode{}, walk(false, false), 1.25},
		{"no score, paid by turn", plainEpisode{}, walk(true, true), 1.25},
		{"no score, some turns are paid", plainEpisode{}, walk(true, false), 1.25},
		{"no episode, paid by turn", nil, walk(true, true), 1.25},
	} {
		s, err := sum.Score(t.Context(), Input{Trajectory: c.tr, Episode: c.episode})
		require.NoError(t, err, c.name)
		require.Equal(t, map[string]float64{"environment": c.whole}, s.Parts, c.name)
		c.tr.Reward = s.Value
		require.InDelta(t, weight*c.whole, c.tr.Return(), 1e-12, c.name)
	}
	// A reward that holds it against something sees all of it, whatever was paid by turn.
	gate := made(t, "gate", map[string]any{"if": "environment", "threshold": 1.0, "then": 1})
	for _, tr := range []*trajectory.Trajectory{walk(false, false), walk(true, true), walk(true, false)} {
		require.Equal(t, 1.0, scored(t, gate, Input{Trajectory: tr}).Value)
	}
}
