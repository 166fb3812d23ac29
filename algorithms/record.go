package algorithms

import (
	"errors"
	"fmt"
	"math"
)

// Needs are the fields of a Record, beyond reward and tokens, that an estimator reads.
type Needs struct {
	Turns   bool // Turn, and TurnRewards where there are some
	Anchors bool
	Shared  bool
	Greedy  bool
	Values  bool // and Bootstrap: the estimator has a critic
}

// turns is K, the number of turns.
func (r Record) turns() int {
	k := 1
	if len(r.Turn) > 0 {
		k = r.Turn[len(r.Turn)-1] + 1
	}
	return max(k, len(r.TurnRewards), len(r.Anchors))
}

// turnOf is the turn of token t.
func (r Record) turnOf(t int) int {
	if r.Turn == nil {
		return 0
	}
	return r.Turn[t]
}

// total is all that the trajectory was paid: its reward and the rewards of its turns.
func (r Record) total() float64 { return r.Reward + r.paidByTurn() }

// paidByTurn is the sum of the rewards of turns.
func (r Record) paidByTurn() float64 {
	sum := 0.0
	for _, reward := range r.TurnRewards {
		if reward != nil {
			sum += *reward
		}
	}
	return sum
}

// check verifies the fields that the estimator reads.
func (r Record) check(n Needs) error {
	if !finite(r.Reward) {
		return mustBeFinite("reward", "reward", r.Reward)
	}
	if n.Turns {
		if err := r.checkTurns(); err != nil {
			return err
		}
	}
	switch {
	case n.Anchors && len(r.Anchors) != r.turns():
		return fmt.Errorf("%d anchors for %d turns; each turn needs one", len(r.Anchors), r.turns())
	case n.Shared && r.Shared != nil && len(r.Shared) != r.Tokens:
		return fmt.Errorf("the tree names %d tokens of %d", len(r.Shared), r.Tokens)
	case n.Greedy && r.Greedy == nil:
		return fmt.Errorf("the reward of a greedy rollout of its task is missing")
	case n.Greedy && !finite(*r.Greedy):
		return mustBeFinite("the greedy rollout's reward", "reward", *r.Greedy)
	case n.Values && len(r.Values) != r.Tokens:
		return fmt.Errorf("%d values for %d tokens; each token needs one", len(r.Values), r.Tokens)
	case n.Values && !finite(r.Bootstrap):
		return mustBeFinite("the value after the last token", "value", r.Bootstrap)
	}
	if n.Values {
		for t, v := range r.Values {
			if !finite(v) {
				return mustBeFinite(fmt.Sprintf("the value at response token %d", t), "value", v)
			}
		}
	}
	return nil
}

// maxTurns bounds the turns of a record, for each of which an estimator makes numbers: a mistyped index must not take all memory.
const maxTurns = 1 << 20

func (r Record) checkTurns() error {
	if r.Turn != nil && len(r.Turn) != r.Tokens {
		return fmt.Errorf("%d turn indices for %d tokens; each token needs one", len(r.Turn), r.Tokens)
	}
	has, before := map[int]bool{}, 0
	for t := range r.Tokens {
		k := r.turnOf(t)
		if k < before {
			return fmt.Errorf("response token %d is of turn %d, the one before it of turn %d; turns begin at 0 and never fall", t, k, before)
		}
		if k >= maxTurns {
			return fmt.Errorf("response token %d is of turn %d; a trajectory has at most %d turns", t, k, maxTurns)
		}
		has[k], before = true, k
	}
	for k, reward := range r.TurnRewards {
		switch {
		case reward == nil:
		case !finite(*reward):
			return mustBeFinite(fmt.Sprintf("the reward of turn %d", k), "reward", *reward)
		case !has[k] && *reward != 0:
			return fmt.Errorf("turn %d has a reward, but no response token that it could sit on", k)
		}
	}
	return nil
}

// tokenRewards is r_t [L]: the trajectory's reward on the last token, turn rewards on the last tokens of their turns.
func (r Record) tokenRewards() []float64 {
	out := make([]float64, r.Tokens)
	for t := range out {
		k := r.turnOf(t)
		if t+1 < r.Tokens && r.turnOf(t+1) == k {
			continue
		}
		if k < len(r.TurnRewards) && r.TurnRewards[k] != nil {
			out[t] = *r.TurnRewards[k]
		}
	}
	out[r.Tokens-1] += r.Reward
	return out
}

// discounted returns G_t = r_t + gamma * G_{t+1}.
func discounted(rewards []float64, gamma float64) []float64 {
	out := make([]float64, len(rewards))
	next := 0.0
	for t := len(rewards) - 1; t >= 0; t-- {
		next = rewards[t] + gamma*next
		out[t] = next
	}
	return out
}

// errNonFinite marks the errors of numbers that are NaN or infinite.
var errNonFinite = errors.New("must be finite")

func mustBeFinite(what, kind string, v float64) error {
	return fmt.Errorf("%s is %v; a %s %w", what, v, kind, errNonFinite)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
