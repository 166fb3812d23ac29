// Package checkpoint owns the checkpoints of a run: what run.json holds of its state, the files and their checksums, the links last and
// best, and which checkpoints stay.
//
// It does not compute weights (package policy writes them) and does not read the log behind a checkpoint (package recovery does).
package checkpoint
