package algorithms

import "math"

// grpoEpsilon is added to the standard deviation, as in the formula of the sheet.
const grpoEpsilon = 1e-6

func grpoSpec() EstimatorSpec {
	return EstimatorSpec{
		Name:    "grpo",
		Formula: "A = (r - mean) / (std + 1e-6) over the group, sample std (n - 1); normalize_std: false leaves the division out",
		Source:  "arXiv 2402.03300",
		Keys:    []Key{{"normalize_std", true, "divide by the group's standard deviation"}},
		New: func(s Settings) (Estimator, error) {
			return grpo(s.Bool("normalize_std")), nil
		},
	}
}

func grpo(normalize bool) Estimator {
	return perTrajectory(func(rewards []float64) []float64 {
		out := centred(rewards)
		if !normalize {
			return out
		}
		squares := 0.0
		for _, x := range out {
			squares += x * x
		}
		std := math.Sqrt(squares / float64(len(out)-1)) // the rewards differ, so there are two or more
		for i := range out {
			out[i] /= std + grpoEpsilon
		}
		return out
	})
}
