// Package recovery reads what the log of a run holds beyond its checkpoint: batches that are trained again as recorded, groups that go
// on, steps and evaluations that were done, and the lines of metrics.jsonl. It also knows the rules under which programs recorded: what
// an older one recorded may have to begin anew.
//
// It does not read checkpoints (package checkpoint), and it does not decide what is sampled next (package schedule).
package recovery
