// Package algorithms computes what an update optimises: advantages in plain Go, in float64, per trajectory; the weights
// with which an aggregation sums token losses; corrections for the mismatch of engine and trainer; and the losses, in Go
// on gotorch tensors.
//
//	Config ──Resolve──► Algorithm ──Advantages──► A_t            (before packing)
//	                        │──────TokenWeights──► w_t            (denominators of the whole mini-batch)
//	                        └──────Objective─────► Σ_t w_t·loss_t (per micro-batch, build tag torch)
//
// Denominators are plain Go and known before the first micro-batch, so micro-batches, packing and the number of ranks do
// not change the result. Each estimator and each loss is one small file: a specification (name, formula, source, own
// keys) and the formula. A binary without libtorch has the same losses, which it checks and describes, and cannot compute.
//
// Nothing here keeps state; an Algorithm may be shared by goroutines once it is resolved. Formulas and sources:
// docs/algorithms.md.
//
// It does not run a model forward or backward (package trainer does), and it does not make batches (package
// orchestrator/schedule does).
package algorithms
