// Package objective holds what a run learns from and by: reinforcement learning on the rewards of rollouts, supervised fine-tuning on
// recorded conversations, and distillation from a teacher. An Objective hands out the batch of each step, reports it and evaluates.
//
// It does not compute the update (package trainer) or move weights (package weights); the run that asks it does.
package objective
