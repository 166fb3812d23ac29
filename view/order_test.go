package view

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lists are in the order that comparing all entries gives, whatever was added, replaced and forgotten before.
func TestSortedAsByComparing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	rewards := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 1e300, -1e300, 5e-324, math.Inf(1), math.Inf(-1), math.NaN()}
	x := &index{}
	add := func(n int) {
		for range n {
			e := &entry{
				Phase: []string{"train", "eval-step-3"}[r.IntN(2)], Step: r.IntN(40) - 1, Group: r.IntN(5), Index: r.IntN(4), Task: fmt.Sprint("task-", r.IntN(9)),
				Reward: rewards[r.IntN(len(rewards))], Stop: []string{"answer", "error", ""}[r.IntN(3)], Turns: r.IntN(3), Tokens: r.IntN(700), Seconds: r.Float64(), Staleness: r.IntN(4) - 1,
				Origin: []string{"", "", "engine"}[r.IntN(3)],
			}
			e.ID = fmt.Sprint(e.Phase, "-", e.Step, "-", e.Group, "-", e.Index)
			if r.IntN(9) == 0 {
				e.ID = fmt.Sprint("of-others-", r.IntN(5)) // the same id elsewhere in the order
			}
			e.Calls = make([]call, r.IntN(3))
			x.put(e, []byte("said"))
		}
	}
	check := func() {
		for by := range sorts {
			for _, up := range []bool{true, false} {
				f := filter{From: -1 << 30, Group: -1, Sort: by, Ascending: up}
				if r.IntN(2) == 0 {
					f.Stop = "error"
				}
				var want []*entry
				for _, e := range x.entries {
					if f.keeps(e) {
						want = append(want, e)
					}
				}
				slices.SortFunc(want, f.order())
				found := x.find(f, nil)
				require.Len(t, found, len(want))
				for i := range want {
					require.Same(t, want[i], found[i], "%s up %v, row %d", by, up, i)
				}
			}
		}
	}
	check()
	for range 12 {
		add(r.IntN(60))
		check()
		if r.IntN(4) == 0 {
			x.forget(r.IntN(40))
			check()
			kept := map[string]bool{}
			for _, e := range x.entries {
				kept[e.Stop] = true
			}
			delete(kept, "")
			require.Equal(t, sorted(kept), x.choices()["stop"], "what was forgotten is no choice")
		}
	}
	require.Greater(t, len(x.entries), 20)
}

func FuzzThin(f *testing.F) {
	f.Add(10, 4, uint64(1))
	f.Add(10000, 1000, uint64(2))
	f.Add(1, 1, uint64(3))
	f.Add(7, 3, uint64(4))
	f.Fuzz(func(t *testing.T, n, points int, seed uint64) {
		if n < 1 || n > 20000 || points < 1 || points > 20000 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		steps, values := make([]int, n), make([]float64, n)
		low, high := math.Inf(1), math.Inf(-1)
		for i := range n {
			steps[i], values[i] = 3*i, r.NormFloat64()
			switch r.IntN(20) {
			case 0:
				values[i] = math.NaN()
			case 1:
				values[i] = math.Inf(1)
			default:
				low, high = min(low, values[i]), max(high, values[i])
			}
		}
		at, some := thinSteps(steps, points), thin(values, points)
		require.Len(t, some, len(at))
		require.LessOrEqual(t, len(at), max(points, 2)+1)
		require.True(t, slices.IsSorted(at))
		require.Len(t, slices.Compact(slices.Clone(at)), len(at), "no step twice")
		require.Equal(t, steps[n-1], at[len(at)-1])
		gotLow, gotHigh := math.Inf(1), math.Inf(-1)
		for _, v := range some {
			if finite(v) {
				gotLow, gotHigh = min(gotLow, v), max(gotHigh, v)
			}
		}
		require.Equal(t, low, gotLow)
		require.Equal(t, high, gotHigh)
	})
}

// An evaluation after a step stands behind what was sampled for it, and before what was sampled for the next one.
func TestEvaluationsStandBetweenSteps(t *testing.T) {
	t.Parallel()
	x := &index{}
	for _, e := range []entry{{Phase: "train", Step: 12}, {Phase: "eval-step-12", Step: 12}, {Phase: "train", Step: 0}, {Phase: "train", Step: 11}, {Phase: "eval-before", Step: 0}, {Phase: "eval-after", Step: 13}} {
		e.ID = fmt.Sprint(e.Phase, " ", e.Step)
		x.put(&e, nil)
	}
	want := []string{"eval-before 0", "train 0", "train 11", "eval-step-12 12", "train 12", "eval-after 13"}
	for _, up := range []bool{true, false} {
		var got []string
		for _, e := range x.find(filter{From: -1 << 30, Group: -1, Sort: "step", Ascending: up}, nil) {
			got = append(got, e.ID)
		}
		require.Equal(t, want, got)
		slices.Reverse(want)
	}
}
