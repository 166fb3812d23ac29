package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/internal/panics"
)

// Record is what an estimator knows of one trajectory. Token slices run over its response tokens in order, over all its
// samples, so that splitting a trajectory into samples changes nothing. What stands below Tokens is filled in only where
// the algorithm reads it.
type Record struct {
	Reward    float64   // sits on the last response token; an estimator that does not read turns finds their rewards in it
	Failed    bool      // left out of the group's statistics, of the batch count and of the loss
	Tokens    int       // L response tokens that are trained; a trajectory with 0 is left out like a failed one
	Old       []float64 // [L] old logprobs; for kl in the reward
	Reference []float64 // [L] logprobs of the reference policy; for kl in the reward

	Turn        []int      // [L] index of the token's turn, from 0 and never falling; nil: all of them are turn 0
	TurnRewards []*float64 // [K] each sits on the last token of its turn; a nil entry: none; nil: no turn has one
	Anchors     []string   // [K] name the state before each turn; equal names are the same state
	Shared      []string   // [L] tokens of the group's trajectories with the same name were sampled once; "" or nil: the own token
	Greedy      *float64   // reward of the task's greedy rollout by the same policy version
	Values      []float64  // [L] the critic's value of the state that predicts the token
	Bootstrap   float64    // value of the state after the last token where the trajectory was truncated, 0 where it finished
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

// Critic is an Estimator that reads values of a critic, which is trained towards Returns [group][trajectory][token].
type Critic interface {
	Estimator
	Returns(groups []Group) ([][][]float64, error)
}

// TrajectoryError says which trajectory an estimator cannot take.
type TrajectoryError struct {
	Group, Trajectory int   // indices
	NonFinite         bool  // a reward, value or advantage of it is NaN or infinite
	Err               error // what is wrong
}

func (e *TrajectoryError) Error() string {
	return fmt.Sprintf("group %d, trajectory %d: %v", e.Group, e.Trajectory, e.Err)
}

func (e *TrajectoryError) Unwrap() error { return e.Err }

// ResolvedEstimator is an estimator with its settings, ready to compute.
type ResolvedEstimator struct {
	EstimatorSpec
	Settings Settings

	estimator Estimator
}

// estimator makes the estimator that the job names, DefaultAdvantage where it names none.
func (c Choice) estimator(r *Registry) (out ResolvedEstimator, err error) {
	c.Name = cmp.Or(c.Name, DefaultAdvantage)
	if out.EstimatorSpec, err = lookup("advantage", c.Name, r.estimators); err != nil {
		return out, err
	}
	if out.Settings.keys, err = resolveKeys("advantage", c, out.Keys); err != nil {
		return out, err
	}
	out.estimator, err = panics.Value("its New", func() (Estimator, error) { return out.New(out.Settings) })
	if err == nil && out.estimator == nil {
		err = errors.New("its New returned no estimator")
	}
	if err != nil {
		return out, refuse("advantage", "advantage %s: %w", c.Name, err)
	}
	if _, ok := out.estimator.(Critic); ok != out.Needs.Values {
		return out, refuse("advantage", "advantage %s: an estimator reads values if and only if it is a Critic", c.Name)
	}
	return out, nil
}

// ask calls the estimator, which may be somebody else's code: its error and its panic both name it.
func (e ResolvedEstimator) ask(f func(groups []Group) ([][][]float64, error), groups []Group) (values [][][]float64, err error) {
	err = panics.Guard("advantage "+e.Name, func() error {
		values, err = f(groups)
		if err != nil {
			err = fmt.Errorf("advantage %s: %w", e.Name, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("algorithms: %w", err)
	}
	return values, nil
}

// NeedsSiblings reports whether the estimator compares the trajectories of a group with each other alone, so that one without
// siblings has advantage 0 whatever its reward. It asks the estimator: two groups of one trajectory each differ in their
// rewards, tokens, values and turns. One that cannot say, by an error or a panic, is taken to need none.
func (e ResolvedEstimator) NeedsSiblings() bool {
	alone := func(reward float64) Group {
		return Group{{
			Reward: reward, Tokens: 3, Turn: []int{0, 1, 1}, TurnRewards: []*float64{nil, nil}, Anchors: []string{"", ""},
			Greedy: new(float64), Values: []float64{0, 0, 0},
		}}
	}
	advantages, err := e.ask(e.estimator.Advantages, []Group{alone(1), alone(2)})
	if err != nil {
		return false
	}
	for _, group := range advantages {
		for _, trajectory := range group {
			if slices.ContainsFunc(trajectory, func(x float64) bool { return x != 0 }) {
				return false
			}
		}
	}
	return true
}

// Advantages returns A [group][trajectory][L], nil for a trajectory that does not count. A number that is not finite, or a
// record that lacks what the estimator reads, is a TrajectoryError.
func (a *Algorithm) Advantages(groups []Group) ([][][]float64, error) {
	counted, err := a.counted(groups)
	if err != nil {
		return nil, err
	}
	values, err := a.Estimator.ask(a.Estimator.estimator.Advantages, counted)
	if err != nil {
		return nil, err
	}
	return spread(groups, counted, values)
}

// Returns are what the critic's values should have been, like Advantages [group][trajectory][L]; nil without a critic.
func (a *Algorithm) Returns(groups []Group) ([][][]float64, error) {
	critic, ok := a.Estimator.estimator.(Critic)
	if !ok {
		return nil, nil
	}
	counted, err := a.counted(groups)
	if err != nil {
		return nil, err
	}
	values, err := a.Estimator.ask(critic.Returns, counted)
	if err != nil {
		return nil, err
	}
	return spread(groups, counted, values)
}

// counted are the groups without what does not count, and without groups that are empty then, checked and with kl in the
// reward taken off.
func (a *Algorithm) counted(groups []Group) ([]Group, error) {
	var counted []Group
	for g, group := range groups {
		var in Group
		for i, r := range group {
			if !r.Counts() {
				continue
			}
			if !a.Estimator.Needs.Turns { // it is told what the whole trajectory was paid
				r.Reward, r.TurnRewards = r.total(), nil
			}
			if a.KL.inReward() {
				penalty, err := a.KL.sum(r)
				if err != nil {
					return nil, fmt.Errorf("algorithms: %w", &TrajectoryError{g, i, false, err})
				}
				r.Reward -= a.KL.Coefficient * penalty
			}
			if err := r.check(a.Estimator.Needs); err != nil {
				return nil, fmt.Errorf("algorithms: %w", &TrajectoryError{g, i, errors.Is(err, errNonFinite), err})
			}
			in = append(in, r)
		}
		if len(in) > 0 {
			counted = append(counted, in)
		}
	}
	return counted, nil
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
				return nil, fmt.Errorf("algorithms: %w", &TrajectoryError{g, i, false, fmt.Errorf("the estimator did not return its %d advantages", r.Tokens)})
			}
			for t, v := range values[next][n] {
				if !finite(v) {
					return nil, fmt.Errorf("algorithms: %w", &TrajectoryError{g, i, true, fmt.Errorf("the estimator gives %v for response token %d; its rewards are out of range", v, t)})
				}
			}
			out[g][i] = values[next][n]
			n++
		}
		next++
	}
	return out, nil
}

// RowError says which row of a micro-batch has a loss that is not finite.
type RowError struct {
	Row   int
	Value float64
}

func (e *RowError) Error() string { return fmt.Sprintf("the loss of row %d is %v", e.Row, e.Value) }
