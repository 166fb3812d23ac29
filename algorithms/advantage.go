package algorithms

import (
	"fmt"
	"math"
	"slices"
)

// Record is what an estimator knows of one trajectory. Token slices run over its response tokens in order, over all its
// samples, so that splitting a trajectory into samples changes nothing.
type Record struct {
	Reward    float64
	Failed    bool      // left out of the group's statistics, of the batch count and of the loss
	Tokens    int       // L response tokens that are trained; a trajectory with 0 is left out like a failed one
	Old       []float64 // [L] old logprobs; only for kl in the reward
	Reference []float64 // [L] logprobs of the reference policy; only for kl in the reward
}

// Counts reports whether the trajectory takes part in the update.
func (r Record) Counts() bool { return !r.Failed && r.Tokens > 0 }

// Group is the records of one task's trajectories.
type Group []Record

// Estimator turns rewards into advantages. All trajectories that it gets count, their rewards are finite, and no group is
// empty. It returns [group][trajectory][token] and does not keep its argument. It is safe for concurrent use.
type Estimator interface {
	Advantages(groups []Group) ([][][]float64, error)
}

// Advantages returns A [group][trajectory][L], nil for a trajectory that does not count. A reward that is not finite is an
// error that names group and trajectory by index.
func (a *Algorithm) Advantages(groups []Group) ([][][]float64, error) {
	var counted []Group
	for g, group := range groups {
		var in Group
		for i, r := range group {
			if !r.Counts() {
				continue
			}
			if a.KL.Coefficient > 0 && a.KL.In == "reward" {
				penalty, err := a.KL.sum(r)
				if err != nil {
					return nil, fmt.Errorf("algorithms: group %d, trajectory %d: %w", g, i, err)
				}
				r.Reward -= a.KL.Coefficient * penalty
			}
			if math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0) {
				return nil, fmt.Errorf("algorithms: group %d, trajectory %d: reward is %v; a reward must be finite", g, i, r.Reward)
			}
			in = append(in, r)
		}
		if len(in) > 0 {
			counted = append(counted, in)
		}
	}
	values, err := a.estimator.Advantages(counted)
	if err != nil {
		return nil, fmt.Errorf("algorithms: advantage %s: %w", a.Estimator.Name, err)
	}
	return spread(groups, counted, values)
}

// spread puts the estimator's values, which exist for counted trajectories only, in the places of groups.
func spread(groups, counted []Group, values [][][]float64) ([][][]float64, error) {
	if len(values) != len(counted) {
		return nil, fmt.Errorf("algorithms: the estimator returned %d groups for %d", len(values), len(counted))
	}
	out := make([][][]float64, len(groups))
	next := 0
	for g, group := range groups {
		out[g] = make([][]float64, len(group))
		if !slices.ContainsFunc(group, Record.Counts) {
			continue
		}
		n := 0
		for i, r := range group {
			if !r.Counts() {
				continue
			}
			if n >= len(values[next]) || len(values[next][n]) != r.Tokens {
				return nil, fmt.Errorf("algorithms: group %d, trajectory %d: the estimator did not return its %d advantages", g, i, r.Tokens)
			}
			out[g][i] = values[next][n]
			n++
		}
		next++
	}
	return out, nil
}

// perTrajectory is an estimator that gives all tokens of a trajectory the same advantage, from the rewards of the group
// alone. It is exactly 0 where all rewards of a group are equal, which includes a group of one: a mean in floating point
// can miss the common value by a rounding error, and a division by a tiny standard deviation would then blow that up.
type perTrajectory func(rewards []float64) []float64

func (f perTrajectory) Advantages(groups []Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		rewards := make([]float64, len(group))
		for i, r := range group {
			rewards[i] = r.Reward
		}
		values := make([]float64, len(group))
		if slices.Max(rewards) != slices.Min(rewards) {
			values = f(rewards)
		}
		for i, r := range group {
			out[g] = append(out[g], slices.Repeat([]float64{values[i]}, r.Tokens))
		}
	}
	return out, nil
}

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

// RowError says which row of a micro-batch has a loss that is not finite.
type RowError struct {
	Row   int
	Value float64
}

func (e *RowError) Error() string { return fmt.Sprintf("the loss of row %d is %v", e.Row, e.Value) }
