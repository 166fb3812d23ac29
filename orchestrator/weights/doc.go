// Package weights is the way from the trainer to the engine that samples: it opens the engine that a job names, moves each version of the
// policy's weights to it with a proof that it computes with them, and closes it.
//
// It owns the copy of the weights that the local engine reads beside a trainer on another device, the process groups that broadcast weights
// to servers, and the folder of the checkpoints that servers load. It does not own the protocols of the engines (package engines and those
// below it), nor when a run updates, rests or samples: the run says so.
package weights
