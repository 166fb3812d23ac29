package algorithms

import (
	"fmt"
	"math"
)

// kl is one token's divergence from the reference: k1 = logprob - reference, k2 = k1²/2, k3 = exp(-k1) + k1 - 1
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
