package overview

import (
	"math/rand/v2"
	"slices"
)

// resamples of a bootstrap.
const resamples = 10_000

// bootstrap is the mean of differences, and the 95% percentile interval of it: tasks are drawn with replacement, as often as there are tasks, and
// the differences of a task stay together because they are one number (Efron and Tibshirani 1993, chapter 13). The draws are the same each time. Of
// fewer than two differences low and high are the mean: nothing is known of how it varies.
func bootstrap(differences []float64) (mean, low, high float64) {
	n := len(differences)
	for _, d := range differences {
		mean += d / float64(n)
	}
	if n < 2 {
		return mean, mean, mean
	}
	draw := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // statistics
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range n {
			sum += differences[draw.IntN(n)]
		}
		means[i] = sum / float64(n)
	}
	slices.Sort(means)
	return mean, means[resamples*25/1000], means[resamples*975/1000]
}
