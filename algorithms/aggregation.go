package algorithms

import (
	"fmt"
	"slices"
	"strings"
)

// The aggregations: how the losses of a mini-batch's tokens become one number.
const (
	TokenMean           = "token-mean"              // Σ loss / loss-mask tokens of the mini-batch
	SeqMeanTokenSum     = "seq-mean-token-sum"      // mean over trajectories of Σ_t loss
	SeqMeanTokenMean    = "seq-mean-token-mean"     // mean over trajectories of mean_t loss
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm" // Σ loss / (trajectories · max_tokens)
)

// Aggregations lists them in the order of the documentation.
var Aggregations = []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm}

// Aggregation is how the losses of a mini-batch's tokens become one number, resolved.
type Aggregation struct {
	Name      string
	MaxTokens int // of seq-mean-token-sum-norm; otherwise 0
}

// aggregation resolves the job's aggregation for a loss: the only one it allows, its default, or token-mean.
func (c Config) aggregation(loss LossSpec) (Aggregation, error) {
	a := Aggregation{c.Aggregation, c.MaxTokens}
	if a.Name == "" {
		a.Name = loss.Only
	}
	if a.Name == "" {
		a.Name = loss.Aggregation
	}
	if a.Name == "" {
		a.Name = TokenMean
	}
	if !slices.Contains(Aggregations, a.Name) {
		return a, refuse("aggregation", "aggregation %q is unknown; allowed are %s", a.Name, strings.Join(Aggregations, ", "))
	}
	if loss.Only != "" && a.Name != loss.Only {
		return a, refuse("aggregation", "loss %s is defined with aggregation %s only, not %s", loss.Name, loss.Only, a.Name)
	}
	if a.Name == SeqMeanTokenSumNorm && c.MaxTokens < 1 {
		return a, refuse("max_tokens", "aggregation %s divides by max_tokens; set it to 1 or more (it is %d)", a.Name, c.MaxTokens)
	}
	if a.Name != SeqMeanTokenSumNorm && c.MaxTokens != 0 {
		return a, refuse("max_tokens", "max_tokens is set, but aggregation %s does not use it; leave it out", a.Name)
	}
	return a, nil
}

// TokenWeights returns w [B], the weight of every token of trajectory i, so that the loss of the mini-batch is
// Σ_i w_i Σ_t loss_it. tokens [B] counts the loss-mask tokens of each trajectory over all its samples and ranks; one with
// 0 tokens gets weight 0 and does not count in B. Without any token all weights are 0. The denominators depend on tokens
// alone: no correction shrinks them, and micro-batches and packing do not enter.
func (a Aggregation) TokenWeights(tokens []int) ([]float64, error) {
	total, trajectories := 0, 0
	for i, n := range tokens {
		if n < 0 {
			return nil, fmt.Errorf("algorithms: trajectory %d has %d loss-mask tokens", i, n)
		}
		if n > 0 {
			total += n
			trajectories++
		}
	}
	weights := make([]float64, len(tokens))
	for i, n := range tokens {
		if n == 0 {
			continue
		}
		switch a.Name {
		case TokenMean:
			weights[i] = 1 / float64(total)
		case SeqMeanTokenSum:
			weights[i] = 1 / float64(trajectories)
		case SeqMeanTokenMean:
			weights[i] = 1 / (float64(trajectories) * float64(n))
		case SeqMeanTokenSumNorm:
			weights[i] = 1 / (float64(trajectories) * float64(a.MaxTokens))
		default:
			return nil, fmt.Errorf("algorithms: aggregation %q is unknown", a.Name)
		}
	}
	return weights, nil
}

// denominator says in words what TokenWeights divides by.
func (a Aggregation) denominator() string {
	switch a.Name {
	case SeqMeanTokenSum:
		return "loss = Σ_i Σ_t loss_it / B, B the mini-batch's trajectories with a trained token"
	case SeqMeanTokenMean:
		return "loss = Σ_i (Σ_t loss_it / L_i) / B, L_i the trajectory's loss-mask tokens over all its samples, B the mini-batch's trajectories with a trained token"
	case SeqMeanTokenSumNorm:
		return fmt.Sprintf("loss = Σ_i Σ_t loss_it / (B * %d), B the mini-batch's trajectories with a trained token", a.MaxTokens)
	}
	return "loss = Σ loss / N, N all loss-mask tokens of the mini-batch, over micro-batches and ranks"
}
