// Package rewards defines the contract of a reward function, its registry and the prebuilt rewards.
//
// It does not make advantages of rewards (package algorithms does), and it does not decide which trajectory is rewarded,
// or when (package orchestrator does).
package rewards

import (
	"context"
	"encoding/json"

	"github.com/agentfly/agentfly/trajectory"
)

// Input is what a reward function sees. It must not modify it nor keep it.
type Input struct {
	Task       trajectory.Task
	Trajectory *trajectory.Trajectory
	Episode    Episode  // the trajectory's in its environment, which still runs; nil without one
	Posted     *float64 // what an agent that is a program of its own posted for the trajectory; nil: nothing

	within bool // it is scored as a part of another reward
}

// Episode is what a reward may ask of an environment.
type Episode interface {
	// Score is the environment's own reward for the whole episode; false: it has none, and its steps' rewards count.
	Score(ctx context.Context) (float64, bool, error)
}

// Answerer is an Episode that answers what a reward in Python asks of its argument environment: op and arguments are those of tools.Call.Environment,
// but for "step", because a reward does not act.
type Answerer interface {
	Episode
	Ask(ctx context.Context, op string, arguments json.RawMessage) (json.RawMessage, error)
}

// Score is a value with named parts. Parts are reported as metrics and do not enter the value again.
type Score struct {
	Value float64
	Parts map[string]float64
}

// Shown is the name of the part that is reported for the reward itself in place of its value: of a reward of which turns were paid some, the whole.
const Shown = ""

// Reward scores a finished trajectory. Score is safe for concurrent use, is called once per trajectory, and honours
// ctx. An error marks the trajectory as failed (origin "reward"), never the step. A NaN or infinite value is an error.
type Reward interface {
	Name() string
	Score(ctx context.Context, in Input) (Score, error)
}
