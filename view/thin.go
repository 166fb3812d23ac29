package view

import "math"

// A curve of more steps than a chart has room for is thinned: its steps are cut into as many stretches as half the points, of which each gives
// its lowest and its highest value in the order in which they came. So no peak is lost. The last step stands for itself at the end.

// stretches calls f for each stretch of n values, the last one left out.
func stretches(n, points int, f func(from, to int)) {
	parts := max(1, points/2)
	for p := range parts {
		if from, to := (n-1)*p/parts, (n-1)*(p+1)/parts; from < to {
			f(from, to)
		}
	}
}

// thinSteps are the steps of thinned curves: the first and the last one of each stretch.
func thinSteps(steps []int, points int) []int {
	out := make([]int, 0, points+1)
	stretches(len(steps), points, func(from, to int) {
		if out = append(out, steps[from]); to-from > 1 {
			out = append(out, steps[to-1])
		}
	})
	return append(out, steps[len(steps)-1])
}

// thin are the values of a thinned curve, one for each of thinSteps; NaN where a stretch has none.
func thin(values []float64, points int) []float64 {
	out := make([]float64, 0, points+1)
	stretches(len(values), points, func(from, to int) {
		low, high := -1, -1
		for i := from; i < to; i++ {
			if v := values[i]; finite(v) {
				if low < 0 || v < values[low] {
					low = i
				}
				if high < 0 || v > values[high] {
					high = i
				}
			}
		}
		a, b := math.NaN(), math.NaN()
		if low >= 0 {
			a, b = values[min(low, high)], values[max(low, high)]
		}
		if out = append(out, a); to-from > 1 {
			out = append(out, b)
		}
	})
	return append(out, values[len(values)-1])
}
