package view

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// Runs of other lengths are put together step by step, whatever the steps at which each of them alone would be thinned.
func TestBandOfRuns(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	for value, steps := range []int{150, 200} { // runs whose metric is 0, and 1
		require.NoError(t, os.MkdirAll(filepath.Join(x.dir, fmt.Sprint(value)), 0o755))
		db, err := store.Open(filepath.Join(x.dir, fmt.Sprint(value), store.File))
		require.NoError(t, err)
		for step := range steps {
			require.NoError(t, db.AddStep(t.Context(), step, map[string]float64{"a": float64(value)}, nil))
		}
		require.NoError(t, db.Close())
	}
	for _, points := range []int{0, 100, 7} {
		got := get[struct {
			Steps  []int
			Series map[string]struct{ Mean, Low, High []float64 }
		}](t, x, "/api/bands", url.Values{"run": {"0", "gone", "1"}, "key": {"a", "none"}, "points": {fmt.Sprint(points)}})
		require.Len(t, got.Series, 1)
		a := got.Series["a"]
		require.Equal(t, []int{len(got.Steps), len(got.Steps), len(got.Steps)}, []int{len(a.Mean), len(a.Low), len(a.High)})
		if points > 0 {
			require.LessOrEqual(t, len(got.Steps), points+1)
		}
		require.Equal(t, 199, got.Steps[len(got.Steps)-1])
		for i, step := range got.Steps {
			want := 0.5
			if step >= 150 {
				want = 1
			}
			require.Equal(t, want, a.Mean[i], "step %d of %d points", step, points)
			require.Equal(t, 1.0, a.High[i])
		}
		require.Equal(t, 0.0, a.Low[0])
		require.Equal(t, 1.0, a.Low[len(a.Low)-1])
	}
}

// A stretch of a thinned band reaches as far as its steps do, and the mean lies in it; what no run has is a gap.
func TestBandIsThinned(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	steps, got := bands([]table{
		{[]int{0, 1, 2, 3, 4}, map[string][]float64{"a": {1, 9, 2, nan, 5}}},
		{[]int{1, 2, 3, 7}, map[string][]float64{"a": {3, math.Inf(1), nan, 7}, "b": {nan, nan, nan, nan}}},
	}, []string{"a", "b"})
	require.Equal(t, []int{0, 1, 2, 3, 4, 7}, steps)
	require.Len(t, got, 1)
	require.Equal(t, "{[1 6 2 NaN 5 7] [1 3 2 NaN 5 7] [1 9 2 NaN 5 7]}", fmt.Sprint(got["a"]))
	require.Equal(t, "{[1 6 2 5 7] [1 1 2 2 7] [9 9 5 5 7]}", fmt.Sprint(got["a"].thin(4)))
	require.Equal(t, []int{0, 1, 2, 4, 7}, thinSteps(steps, 4))
}
