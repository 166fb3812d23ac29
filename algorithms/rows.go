package algorithms

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
