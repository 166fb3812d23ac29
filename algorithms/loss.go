package algorithms

// LossInput is what a loss sees of a micro-batch: one row for each loss-mask token, in the order of the packing. Tensors
// are float32 [N] on the model's device; only Current carries gradient.
type LossInput struct {
	*Ops
	Current   Tensor // log-probability under the policy that is trained
	Old       Tensor // under the policy before the batch's first step (the sampling logprobs with correction bypass)
	Sampling  Tensor // from the engine
	Advantage Tensor //
	Sequence  Tensor // exp(mean_t(current - old)) over the row's trajectory; only for losses with NeedsSequence
}

// Loss is the policy term of an update. PerToken returns the loss of every row, [N], from in's operations; the caller
// weighs and sums it, multiplies corrections, and adds KL and entropy. Rows must not mix: row i of the result depends on
// row i of the input alone. PerToken runs on the trainer's worker; it keeps nothing, and its error or panic fails the
// step. The tensors of in are freed after it.
type Loss interface {
	Name() string
	PerToken(in LossInput) (Tensor, error)
}
