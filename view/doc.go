// Package view serves a page on which people see what a run does and what its agent learns: curves, trajectories, tokens. It reads run
// folders, and writes into them only what somebody with the key asks a run to do.
//
// A Run keeps in memory what lists and curves need, one entry a trajectory, and follows the run's log (store.Tail) with one goroutine. All
// open pages hear of changes from it. Whole trajectories are read from the store when somebody looks at them.
//
// The page is built from view/page, by `make view-page`, and embedded. It does not own what metrics mean: orchestrator/report does.
package view
