package algorithms

import "fmt"

// The aggregations: how the losses of a mini-batch's tokens become one number.
const (
	TokenMean           = "token-mean"              // Σ loss / loss-mask tokens of the mini-batch
	SeqMeanTokenSum     = "seq-mean-token-sum"      // mean over trajectories of Σ_t loss
	SeqMeanTokenMean    = "seq-mean-token-mean"     // mean over trajectories of mean_t loss
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm" // Σ loss / (trajectories · max_tokens)
)

// Aggregations lists them in the order of the documentation.
var Aggregations = []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm}

// TokenWeights returns w [B], the weight of every token of trajectory i, so that the loss of the mini-batch is
// Σ_i w_i Σ_t loss_it. tokens [B] counts the loss-mask tokens of each trajectory over all its samples and ranks; one with
// 0 tokens gets weight 0 and does not count in B. Without any token all weights are 0. The denominators depend on tokens
// alone: no correction shrinks them, and micro-batches and packing do not enter.
func (a *Algorithm) TokenWeights(tokens []int) ([]float64, error) {
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
		switch a.Aggregation {
		case TokenMean:
			weights[i] = 1 / float64(total)
		case SeqMeanTokenSum:
			weights[i] = 1 / float64(trajectories)
		case SeqMeanTokenMean:
			weights[i] = 1 / (float64(trajectories) * float64(n))
		case SeqMeanTokenSumNorm:
			weights[i] = 1 / (float64(trajectories) * float64(a.MaxTokens))
		default:
			return nil, fmt.Errorf("algorithms: aggregation %q is unknown", a.Aggregation)
		}
	}
	return weights, nil
}

// denominator says in words what TokenWeights divides by.
func (a *Algorithm) denominator() string {
	switch a.Aggregation {
	case SeqMeanTokenSum:
		return "loss = Σ_i Σ_t loss_it / B, B the mini-batch's trajectories with a trained token"
	case SeqMeanTokenMean:
		return "loss = Σ_i (Σ_t loss_it / L_i) / B, L_i the trajectory's loss-mask tokens over all its samples, B the mini-batch's trajectories with a trained token"
	case SeqMeanTokenSumNorm:
		return fmt.Sprintf("loss = Σ_i Σ_t loss_it / (B * %d), B the mini-batch's trajectories with a trained token", a.MaxTokens)
	}
	return "loss = Σ loss / N, N all loss-mask tokens of the mini-batch, over micro-batches and ranks"
}

// Rows are the tokens of a micro-batch as plain numbers, parallel [N]. A row with weight 0 is off the loss mask: whatever
// it holds, NaN included, touches neither value nor gradient.
type Rows struct {
	Old       []float64
	Sampling  []float64
	Advantage []float64
	Weight    []float64 // of TokenWeights

	// What follows is nil unless the algorithm uses it.
	Reference  []float64 // kl in the loss
	Sequence   []float64 // SequenceRatio of the row's whole trajectory: losses with NeedsSequence
	Correction []float64 // of CorrectionSettings.Weights over the row's whole trajectory: an active correction
	OldValue   []float64 // the critic's values before the batch's first step
	Return     []float64 // what the values should have been

	ValueWeight float64 // of every token in the critic's loss: 1 / tokens of the whole mini-batch
}
