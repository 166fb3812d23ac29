// Package report owns the numbers that a run tells of itself: the record of a step, the result of an evaluation, the run's totals
// and its summary, the lines of progress that people read, and the page docs/metrics.md, which is written from the types.
//
// It computes and lays out; it does not sample, score with a model, store or print, and it keeps no pointer to a run.
package report

//go:generate go test -run TestMetricsPage . -update
