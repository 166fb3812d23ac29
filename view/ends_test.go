package view

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// What ends add to the change of the mean reward adds up to it, whatever the trajectories of the steps before were.
func TestEndsAddUpToTheChange(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		x := index{}
		var sum [2]float64
		var n [2]int
		for i := range 200 {
			e := &entry{ID: fmt.Sprint(i), Phase: store.Train, Step: 40 + r.IntN(40), Reward: r.Float64(), Stop: []string{"answer", "max_turns", "no_action"}[r.IntN(3)]}
			if r.IntN(4) == 0 {
				e.Origin = "engine"
			}
			if r.IntN(3) == 0 {
				e.Calls = []call{{Tool: "search"}, {Tool: []string{"search", ""}[r.IntN(2)], Cause: "broken"}}
			}
			if r.IntN(9) == 0 {
				e.Phase = "eval-step-50"
			}
			x.put(e, nil)
			k := -1
			switch {
			case e.Origin != "" || e.Phase != store.Train || e.Step < 70-20 || e.Step > 70:
			case e.Step == 70:
				k = 1
			default:
				k = 0
			}
			if k >= 0 {
				sum[k] += e.Reward
				n[k]++
			}
		}
		got := x.ends(70, 20)
		if n[1] == 0 {
			require.Empty(t, got.Ends)
			continue
		}
		change := sum[1]/float64(n[1]) - sum[0]/float64(n[0])
		require.InDelta(t, change, float64(got.Mean-got.Before), 1e-12)
		var effects, shares, before float64
		for i, e := range got.Ends {
			shares += float64(e.Share)
			before += float64(e.Before)
			if e.Origin != "" {
				require.True(t, math.IsNaN(float64(e.Effect)))
				continue
			}
			effects += float64(e.Effect)
			if i > 0 && got.Ends[i-1].Origin == "" {
				require.LessOrEqual(t, math.Abs(float64(e.Effect)), math.Abs(float64(got.Ends[i-1].Effect)))
			}
		}
		require.InDelta(t, change, effects, 1e-12)
		require.InDelta(t, 1, shares, 1e-12)
		require.InDelta(t, 1, before, 1e-12)
	}
}

// An end says which call failed first; that of a trajectory which failed itself is its error.
func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	x := index{}
	put := func(step int, reward float64, stop, origin string, calls ...call) {
		x.put(&entry{ID: fmt.Sprint(len(x.entries)), Phase: store.Train, Step: step, Reward: reward, Stop: stop, Origin: origin, Calls: calls}, nil)
	}
	put(0, 1, "answer", "")
	put(0, 1, "answer", "", call{Tool: "calculator"})
	put(1, 1, "answer", "")
	put(1, 0, "answer", "", call{Tool: "calculator"}, call{Tool: "search", Cause: "broken"}, call{Tool: "calculator", Cause: "raised"})
	put(1, 0, "error", "engine", call{Tool: "search", Cause: "broken"})
	got := x.ends(1, 20)
	require.Equal(t, endSums{1, 0.5, 1, 0.5, got.Ends}, got)
	require.Len(t, got.Ends, 3)
	require.True(t, math.IsNaN(float64(got.Ends[0].Was)))
	got.Ends[0].Was = 0
	require.Equal(t, endSum{end{"answer", "", "search", "broken"}, 1, num(1.0 / 3), 0, 0, 0, -0.5}, got.Ends[0])
	require.Equal(t, endSum{end{Stop: "answer"}, 1, num(1.0 / 3), 1, 1, 1, 0}, got.Ends[1])
	require.Equal(t, end{Stop: "error", Origin: "engine"}, got.Ends[2].end)
	require.Empty(t, x.ends(0, 20).Ends, "no step is before it")
	require.Equal(t, 0, x.ends(0, 20).Steps)
}

// A tool that begins to fail is told with the step, and one that fails as it always did is not.
func TestToolsTurn(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	x := index{}
	for step := range 60 {
		for k := range 8 {
			e := &entry{ID: fmt.Sprint(step, "-", k), Phase: store.Train, Step: step}
			for _, o := range []struct {
				tool  string
				share float64
			}{{"steady", 0.3}, {"turns", map[bool]float64{true: 0.6, false: 0.05}[step >= 37]}, {"never", 0}, {"always", 1}} {
				c := call{Tool: o.tool}
				if r.Float64() < o.share {
					c.Cause = "broken"
				}
				e.Calls = append(e.Calls, c)
			}
			x.put(e, nil)
		}
	}
	tools := toolsOf(x.entries)
	x.trends(tools)
	for _, s := range tools {
		require.Len(t, s.Trend, mostTrend)
		if s.Tool != "turns" {
			require.Nil(t, s.Turned, s.Tool)
			continue
		}
		require.InDelta(t, 37, s.Turned.Step, 1)
		require.InDelta(t, 0.05, float64(s.Turned.Before), 0.05)
		require.InDelta(t, 0.6, float64(s.Turned.After), 0.1)
	}
	chance := 0
	for range 300 { // where nothing turns, it is hardly ever told
		each := make([]failures, 100)
		for i := range each {
			each[i].calls = 8
			for range 8 {
				if r.Float64() < 0.2 {
					each[i].failed++
				}
			}
		}
		if turned(each) != nil {
			chance++
		}
	}
	require.LessOrEqual(t, chance, 3)
	require.Nil(t, turned(nil))
	x = index{}
	tools = []toolSum{{Tool: "of evaluations"}}
	x.trends(tools)
	require.Nil(t, tools[0].Turned)
}
