// Package schedule decides when groups are sampled and which of them a step trains: the pipeline is the plan without goroutines,
// the feed carries it out, and a batch is what it hands to a step. It keeps the bound on staleness, replaces groups that nobody
// can learn from, and goes on where a log ends.
//
// It does not sample (its Work does), and it knows nothing of the update but the versions that one adds.
package schedule
