// Package replay samples once more what a run recorded: its engine samples each token with the weights of the policy version that
// sampled it, and the first token, logprob or version that differs is an error which names it.
//
// It does not train: a Replay is a source of batches (objective.Source) for a run that does.
package replay
