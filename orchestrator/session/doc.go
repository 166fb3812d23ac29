// Package session owns what a run computes with, opened from a job and closed in one place: the policy and its thread, the engine with the way
// of weights to it, the renderer, the agent, the tools and rewards with what they share, and the sampler that joins them. It makes the trainer of
// its policy, which whoever asks for it closes.
//
// Check looks at a job before a model is opened; what it read for that is a Checked, which a session does not know.
//
// It does not own the data, the run folder, what is learned by (package objective) or the order in which anything acts: training, evaluation
// and sampling are package orchestrator's. A session is used by one goroutine; its sampler by many.
package session
