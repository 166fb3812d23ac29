package store

import (
	"cmp"
	"fmt"

	"github.com/agentfly/agentfly/trajectory"
)

// Admission says that the sampling of a group begins.
type Admission struct {
	Phase       string // "train", or another whose groups belong to those of the same step and number in "train"
	Step, Group int
	Task        trajectory.Task
	Size        int
	Version     int32     // of the policy then
	Stratum     int       // of the data
	Position    int       // of the task in what the stratum deals
	RetryOf     *GroupRef // the group that was given up, whose task is sampled once more, which is dropped by this; nil: none
}

func (a Admission) ref() GroupRef { return GroupRef{a.Step, a.Group} }

// GroupRef names a group of the phase "train".
type GroupRef struct {
	Step  int `json:"step"`
	Group int `json:"group"`
}

// RefOf is the place of a group.
func RefOf(g trajectory.Group) GroupRef {
	return GroupRef{Step: g.Trajectories[0].Step, Group: g.Trajectories[0].Group}
}

// Compare orders places by step, then by group.
func (r GroupRef) Compare(o GroupRef) int {
	return cmp.Or(cmp.Compare(r.Step, o.Step), cmp.Compare(r.Group, o.Group))
}

func (r GroupRef) String() string { return fmt.Sprintf("group %d of step %d", r.Group, r.Step+1) }

// Batch is what an optimizer step trains on.
type Batch struct {
	Step    int        `json:"-"`
	Version int32      `json:"version"`          // before the step
	Groups  []GroupRef `json:"groups"`           // in the order of training
	Others  []GroupRef `json:"others,omitempty"` // sampled for the step and not trained: they are dropped
	Dealt   []int      `json:"dealt,omitempty"`  // position in the data after it
	Refills int        `json:"refills,omitempty"`
	Seconds float64    `json:"seconds,omitempty"` // spent on sampling
	Running int        `json:"running,omitempty"` // trajectories that went on being sampled
	Stale   int        `json:"stale,omitempty"`   // groups that were given up because no step could have trained them in time
	Lost    []int      `json:"lost,omitempty"`    // sampled tokens of each trajectory of such groups that ended since the last batch
	Cut     []int      `json:"cut,omitempty"`     // of the trajectories of Groups, counted through: those that an earlier batch had left running
}

// Phases of trajectories, besides those of evaluations.
const (
	Train   = "train"   // the groups that batches name
	Greedy  = "greedy"  // baselines of a step at temperature 0, never trained on
	SFT     = "sft"     // what supervised fine-tuning learned at a step
	Gateway = "gateway" // what agents began by themselves at a gateway that trains nothing
)

// ID names trajectory index of a group.
func ID(phase string, step, group, index int) string {
	return trajectory.Place{Phase: phase, Step: step, Group: group, Index: index}.ID()
}

// The kinds of events.
const (
	kindAdmit = "admit"
	kindDrop  = "drop"
	kindBatch = "batch"
	// Those that recovery does not read: they are for who follows the log (Tail).
	kindStep   = "step"   // the step's metrics and updates are stored
	kindForget = "forget" // the step and later ones are forgotten (Truncate): the run makes them again
)

// admitted is the JSON of an admission.
type admitted struct {
	Task     string `json:"task"`
	Size     int    `json:"size"`
	Version  int32  `json:"version"`
	Stratum  int    `json:"stratum,omitempty"`
	Position int    `json:"position,omitempty"`
	Turn     int64  `json:"turn"` // first row of turns that can be the group's
}

// admission is what an event of that phase and group says. Of the task it has the id.
func (a admitted) admission(phase string, ref GroupRef) Admission {
	return Admission{phase, ref.Step, ref.Group, trajectory.Task{ID: a.Task}, a.Size, a.Version, a.Stratum, a.Position, nil}
}

type dropped struct {
	Reason string `json:"reason"`
}

// Fact is one thing that is true of the whole run.
type Fact struct{ Name, Value string }
