package view

import (
	"math"
	"slices"
)

// band is a metric of several runs: at each step the mean of those that have it, and the lowest and the highest of them.
type band struct {
	Mean column `json:"mean"`
	Low  column `json:"low"`
	High column `json:"high"`
}

// table is metrics of a run: a value for each of its steps, NaN where the step has none.
type table struct {
	steps   []int // in order
	columns map[string][]float64
}

// table copies some metrics of a run.
func (r *run) table(keys []string) table {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := table{slices.Clone(r.steps), map[string][]float64{}}
	for _, key := range keys {
		if c := r.columns[key]; c != nil {
			out.columns[key] = slices.Clone(c)
		}
	}
	return out
}

// bands puts runs together at each step that one of them has. They have to be whole: a thinned curve has other steps than one of another length, and
// values that stand for a stretch.
func bands(runs []table, keys []string) (steps []int, out map[string]band) {
	for _, r := range runs {
		steps = append(steps, r.steps...)
	}
	slices.Sort(steps)
	steps = slices.Compact(steps)
	out = map[string]band{}
	for _, key := range keys {
		b, counts := band{filled(len(steps), 0), filled(len(steps), math.NaN()), filled(len(steps), math.NaN())}, make([]float64, len(steps))
		some := false
		for _, r := range runs {
			at := 0
			for i, v := range r.columns[key] {
				if !finite(v) {
					continue
				}
				for steps[at] < r.steps[i] {
					at++
				}
				if counts[at] == 0 {
					b.Low[at], b.High[at] = v, v
				}
				b.Mean[at], b.Low[at], b.High[at] = b.Mean[at]+v, min(b.Low[at], v), max(b.High[at], v)
				counts[at]++
				some = true
			}
		}
		for at := range steps {
			b.Mean[at] /= counts[at] // NaN where no run has it
		}
		if some {
			out[key] = b
		}
	}
	return steps, out
}

func filled(n int, v float64) column { return slices.Repeat(column{v}, n) }

// thin keeps the peaks of the mean, and the lowest and the highest value of each stretch.
func (b band) thin(points int) band {
	return band{thin(b.Mean, points), bound(b.Low, points, math.Min), bound(b.High, points, math.Max)}
}

// bound is the lowest or the highest value of each stretch of a thinned curve, at each of its points; NaN where a stretch has none.
func bound(values []float64, points int, of func(a, b float64) float64) []float64 {
	out := make([]float64, 0, points+1)
	stretches(len(values), points, func(from, to int) {
		most := math.NaN()
		for _, v := range values[from:to] {
			if math.IsNaN(most) {
				most = v
			} else if finite(v) {
				most = of(most, v)
			}
		}
		if out = append(out, most); to-from > 1 {
			out = append(out, most)
		}
	})
	return append(out, values[len(values)-1])
}
