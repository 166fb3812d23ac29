// Package trainer makes the masked policy-gradient update: it plans a step from groups of trajectories (advantages, masks,
// mini-batches), packs their token sequences without padding and with shared prefixes computed once, runs the model forward
// and backward in micro-batches, and lets the optimizer write the parameters. It also computes logprobs of sequences, saves and loads the
// optimizer, and spreads a step over ranks.
//
// It does not read model files (package policy), sample (engines), or decide what a step trains on (orchestrator); the
// formulas are package algorithms'. A Trainer's methods are called by one goroutine at a time. Without the build tag torch
// every method returns cgo.ErrUnavailable.
package trainer
