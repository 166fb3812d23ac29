// Package rollout samples trajectories: turn after turn, it asks the engine for a completion, parses its calls, runs the tools,
// appends the observation token by token, and at the end asks for the reward. A failure is data of the trajectory, with the part
// that caused it.
//
// It does not know of steps, batches or weights (package schedule and the objectives do), and it does not store what it samples:
// the caller's Record and done do.
package rollout
