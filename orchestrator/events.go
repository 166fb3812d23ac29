package orchestrator

import (
	"math"

	"github.com/agentfly/agentfly/orchestrator/report"
)

// Event is one thing that a run tells, for a program that reads it or a screen that shows it: what stands in its lines, in fields.
type Event struct {
	Kind       Kind               `json:"kind"`
	Text       string             `json:"text,omitempty"`       // as the line says it
	Job        string             `json:"job,omitempty"`        // of begin: its name
	Dir        string             `json:"dir,omitempty"`        // of begin: the run folder
	Step       int                `json:"step,omitempty"`       // of step, evaluation and end: steps done
	Steps      int                `json:"steps,omitempty"`      // of begin and step: of the whole run
	Metrics    map[string]float64 `json:"metrics,omitempty"`    // of step; a number that is not finite is left out
	Evaluation *report.Evaluation `json:"evaluation,omitempty"` // of evaluation
	Summary    *report.Summary    `json:"summary,omitempty"`    // of summary
	Done       int                `json:"done,omitempty"`       // of rollouts: trajectories that ended
	Of         int                `json:"of,omitempty"`         // of rollouts: all of them
}

// Kind is what an event is of.
type Kind string

// The kinds of events.
const (
	Begin      Kind = "begin"      // the first step, or the one that a run goes on with, is about to begin
	Doing      Kind = "doing"      // what the run does from now on
	StepDone   Kind = "step"       // a step is recorded
	Evaluated  Kind = "evaluation" // an evaluation is recorded
	Line       Kind = "line"       // a line that is of no other kind
	Note       Kind = "note"       // what the user should know
	Summarized Kind = "summary"    // the run is done
	Rollouts   Kind = "rollouts"   // a trajectory of an evaluation or a rollout ended
)

// finite is the numbers of a map that JSON can hold.
func finite(m map[string]float64) map[string]float64 {
	out := make(map[string]float64, len(m))
	for k, v := range m {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[k] = v
		}
	}
	return out
}
