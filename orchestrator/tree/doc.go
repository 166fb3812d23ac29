// Package tree decides where the trajectories of a task branch: which of them fork off which turn of which other one, and when.
//
// A [Plan] grows the trees of one task in rounds. The first begins the roots; each later one begins what a [Rule] asks for among the
// leaves that ended, until the task has as many leaves as its group has trajectories. What a rule did not use becomes roots too, so that no leaf is
// a copy of another. The rules are those of ARPO (arXiv 2507.19849) with AEPO's penalty (2510.14545), of Tree-GRPO (2509.21240) and of TreeRL
// (2506.11902).
//
// The package is pure: no clock, no engine, no goroutine. A plan follows from the settings, the seed and the leaves that ended, so that a run that
// is resumed makes the same one.
//
// It does not sample, which package orchestrator/rollout does, and it gives no credit: package algorithms does.
package tree
