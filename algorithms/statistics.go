package algorithms

import (
	"math"
	"slices"
)

// perTrajectory is an estimator that gives all tokens of a trajectory the same advantage, from the rewards of the group
// alone. It is exactly 0 where all rewards of a group are equal, which includes a group of one: a mean in floating point
// can miss the common value by a rounding error, and a division by a tiny standard deviation would then blow that up.
type perTrajectory func(rewards []float64) []float64

func (f perTrajectory) Advantages(groups []Group) ([][][]float64, error) {
	return eachGroup(groups, func(g Group) []float64 { return f.of(rewardsOf(g)) }), nil
}

func (f perTrajectory) of(rewards []float64) []float64 {
	if allEqual(rewards) {
		return make([]float64, len(rewards))
	}
	return f(rewards)
}

// eachGroup gives all tokens of a trajectory the value that f has for it.
func eachGroup(groups []Group, f func(Group) []float64) [][][]float64 {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		values := f(group)
		for i, r := range group {
			out[g] = append(out[g], slices.Repeat([]float64{values[i]}, r.Tokens))
		}
	}
	return out
}

// eachTrajectory gives the tokens of a trajectory what f has for them.
func eachTrajectory(groups []Group, f func(Record) []float64) [][][]float64 {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		for _, r := range group {
			out[g] = append(out[g], f(r))
		}
	}
	return out
}

// rewardsOf is what each trajectory of the group was paid, its turns included.
func rewardsOf(g Group) []float64 {
	out := make([]float64, len(g))
	for i, r := range g {
		out[i] = r.total()
	}
	return out
}

func allEqual(v []float64) bool { return !Informative(v) }

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// centred returns v minus its mean.
func centred(v []float64) []float64 {
	m := mean(v)
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x - m
	}
	return out
}

// normalised is (v - mean) / (std + 1e-6), sample standard deviation. v holds two values or more.
func normalised(v []float64) []float64 {
	out := centred(v)
	squares := 0.0
	for _, x := range out {
		squares += x * x
	}
	std := math.Sqrt(inRange(squares) / float64(len(out)-1))
	for i := range out {
		out[i] /= std + stdEpsilon
	}
	return out
}

// inRange is a sum of squares, NaN where it overflowed: divided by infinity every advantage would be 0, and NaN fails the step.
func inRange(squares float64) float64 {
	if math.IsInf(squares, 1) {
		return math.NaN()
	}
	return squares
}

// stdEpsilon is added to a group's standard deviation, varianceEpsilon to a batch's variance, as in the formulas.
const (
	stdEpsilon      = 1e-6
	varianceEpsilon = 1e-8
)

// whiten replaces all tokens' values x of the batch by (x - mean) / sqrt(var + 1e-8), with Bessel's correction. Where all
// are equal, which includes a single token, it leaves exactly 0.
func whiten(values [][][]float64) {
	var all []float64
	for _, group := range values {
		for _, v := range group {
			all = append(all, v...)
		}
	}
	m, variance, equal := mean(all), 0.0, allEqual(all)
	for _, x := range all {
		variance += (x - m) * (x - m) / float64(max(len(all)-1, 1))
	}
	for _, group := range values {
		for _, v := range group {
			for t := range v {
				v[t] = (v[t] - m) / math.Sqrt(inRange(variance)+varianceEpsilon)
				if equal {
					v[t] = 0
				}
			}
		}
	}
}
