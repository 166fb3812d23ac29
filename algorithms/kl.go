package algorithms

import (
	"fmt"
	"math"
	"slices"
)

// resolve fills in defaults and checks the block.
func (k KL) resolve() (KL, error) {
	if k.Estimator == "" {
		k.Estimator = "k3"
	}
	if k.In == "" {
		k.In = "loss"
	}
	switch {
	case !(k.Coefficient >= 0) || math.IsInf(k.Coefficient, 0):
		return k, refuse("kl.coefficient", "kl.coefficient is %v; allowed is 0 or more", k.Coefficient)
	case !slices.Contains([]string{"k1", "k2", "k3"}, k.Estimator):
		return k, refuse("kl.estimator", "kl.estimator %q is unknown; allowed are k1, k2, k3", k.Estimator)
	case k.In != "loss" && k.In != "reward":
		return k, refuse("kl.in", "kl.in is %q; allowed are loss, reward", k.In)
	case k.In == "loss" && k.Estimator == "k1":
		return k, refuse("kl", "kl: k1 in the loss has zero expected gradient on-policy, so it would do nothing; use k2 or k3, or put it in the reward")
	}
	return k, nil
}

// inReward tells whether the penalty is taken off the reward.
func (k KL) inReward() bool { return k.Coefficient > 0 && k.In == "reward" }

// token is one token's divergence from the reference: k1 = logprob - reference, k2 = k1²/2, k3 = exp(-k1) + k1 - 1
// (Schulman, "Approximating KL Divergence").
func (k KL) token(logprob, reference float64) float64 {
	d := logprob - reference
	switch k.Estimator {
	case "k1":
		return d
	case "k2":
		return d * d / 2
	}
	return math.Exp(-d) + d - 1
}

// sum is Σ_t k of a record with old in place of current: the penalty of kl in the reward.
func (k KL) sum(r Record) (float64, error) {
	if len(r.Old) != r.Tokens || len(r.Reference) != r.Tokens {
		return 0, fmt.Errorf("kl in the reward needs old and reference logprobs of all %d tokens, got %d and %d", r.Tokens, len(r.Old), len(r.Reference))
	}
	total := 0.0
	for t := range r.Old {
		total += k.token(r.Old[t], r.Reference[t])
	}
	return total, nil
}

// Mean is the mean of k over tokens, [N] each; 0 for none.
func (k KL) Mean(logprobs, reference []float64) float64 {
	total := 0.0
	for t := range logprobs {
		total += k.token(logprobs[t], reference[t])
	}
	return total / float64(max(len(logprobs), 1))
}

// formula says in words what is computed.
func (k KL) formula() string {
	formula := map[string]string{"k1": "k1 = x - reference", "k2": "k2 = (x - reference)²/2", "k3": "k3 = exp(reference - x) + x - reference - 1"}[k.Estimator]
	if k.In == "reward" {
		return formula + ", x = old; summed over the trajectory and subtracted from its reward before the estimator"
	}
	return formula + ", x = current; added per token with the aggregation's weights"
}
