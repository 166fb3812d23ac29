// Package data reads what a run learns from and deals it out: files of tasks, several sources mixed by weight, conversations
// and recorded trajectories for supervised fine-tuning; the order of the tasks, the curriculum and its state.
//
// It does not sample, and it does not know when a step asks for a task: package schedule does.
package data
