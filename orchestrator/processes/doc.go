// Package processes owns the processes of a run: how many train together, which of them this one is, how the others are started and
// ended, and their share of the machine. They are started by torchrun, or by rank 0 itself on one machine.
//
// It does not train: rank 0 is the run, and the others follow its trainer.
package processes
