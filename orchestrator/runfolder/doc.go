// Package runfolder owns the files of a run folder: the lock that keeps other processes out, the name of the run, job.yaml with the
// jobs of before, metrics.jsonl, and the store.
//
// It does not own what is in the store (package store) or in checkpoints (package checkpoint).
package runfolder
