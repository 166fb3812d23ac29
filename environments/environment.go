// Package environments defines the contract of an environment, a world that an agent acts in, and the registry of kinds that job files can
// name. An [Environment] plays one episode at a time; a [Source] makes environments of one configuration, for a pool; an [Episode] is what a
// trajectory has of one: a lease, with deadlines, checks and the records of what came back.
//
// It does not sample, read completions or render observations (package orchestrator/rollout does), and holds no world: those lie in the folders
// below it.
package environments

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Start says which episode begins.
type Start struct {
	Task trajectory.Task // Fields that the environment does not know are an error, but for those that are Spare
	Seed int64           // of the episode, 0 to 2³¹-1: the same for all trajectories of a task, so that a group begins in the same state
	Data []string        // fields by which the job's data names a task and its answer: they are Reserved too
	Job  []string        // fields that the job reads, as eval.by and data.balance do, and that may be the environment's as well
}

// Reserved are the fields of tasks that rewards and data read. They reach an environment where its reset names them.
var Reserved = []string{"answer", "seed", "source"}

// Reserves tells whether a field belongs to rewards and data.
func (s Start) Reserves(field string) bool {
	return slices.Contains(Reserved, field) || slices.Contains(s.Data, field)
}

// Spare tells whether a field is no error where the environment does not know it, because others read it.
func (s Start) Spare(field string) bool { return s.Reserves(field) || slices.Contains(s.Job, field) }

// Action is what the agent does: a text, or the call of one of the environment's own tools.
type Action struct {
	Text      string          // of an environment without tools of its own; "" with Name
	Name      string          // of the tool
	Arguments json.RawMessage // a JSON object, checked against the tool's schema
}

// Observation is what the agent sees: texts and images, in their order.
type Observation []trajectory.Part

// Text is an observation of one text.
func Text(text string) Observation { return Observation{{Type: "text", Text: text}} }

// Result is what a step gives.
type Result struct {
	Observation Observation
	Reward      float64            // of this step alone; finite
	Terminated  bool               // the episode is over: the world's own end
	Truncated   bool               // the episode is over: a limit of the environment's, such as a number of steps
	Success     bool               // the goal of the task is reached
	Anchor      string             // names the state after the step, equal for equal states; "": its observation names it
	Info        map[string]any     // for rewards and the record, not for the agent; encodes as JSON
	Failure     trajectory.Failure // FailurePolicy: the action was not possible, and the observation says why; "": none
}

// Over tells whether the episode ended.
func (r Result) Over() bool { return r.Terminated || r.Truncated }

// successKeys are what the packages of others call it in their info.
var successKeys = []string{"success", "is_success", "won", "solved"}

// Succeeded tells of an environment by others, which does not know our Success, whether its goal is reached: its info says so in one of
// the usual keys, as a boolean or as 0 or 1. Rewards do not say it: a CartPole that falls is paid for its last step too.
func Succeeded(r Result) bool {
	for _, key := range successKeys {
		switch won := r.Info[key].(type) {
		case bool:
			return won
		case float64:
			return won == 1
		case json.Number:
			n, err := won.Float64()
			return err == nil && n == 1
		}
	}
	return false
}

// Environment is a world in which one episode is played at a time. Its methods are never called at once, honour ctx, and do not panic on any
// action: what an agent does wrong is a Result with FailurePolicy. An error of any method is the infrastructure's failure (a process that is
// gone, a broken file): the environment is closed and replaced, and the trajectory fails without a reward. The one exception is a task that is wrong.
type Environment interface {
	// Reset begins an episode, also in the middle of another one. The same start gives the same episode where the Spec says Deterministic. A task
	// that is wrong is a *TaskError, after which the environment can be reset for another one.
	Reset(ctx context.Context, s Start) (Observation, error)
	// Step acts. It is not called before Reset, nor after a Result that is Over.
	Step(ctx context.Context, a Action) (Result, error)
	// Close releases everything. It is called once, also where Reset failed, and returns soon.
	Close() error
}

// The optional powers of an Environment.
type (
	// Stater keeps an episode: State is a JSON value from which Restore, in another process too, goes on exactly there. Restore is called in place of
	// the steps, after the Reset of the same start.
	Stater interface {
		State(ctx context.Context) (json.RawMessage, error)
		Restore(ctx context.Context, state json.RawMessage) error
	}
	// Forker makes a second environment in the same state, which goes its own way and is closed on its own.
	Forker interface {
		Fork(ctx context.Context) (Environment, error)
	}
	// Scorer has a reward of its own for the whole episode, which counts in place of the sum of its steps' rewards.
	Scorer interface {
		Score(ctx context.Context) (float64, error)
	}
	// Chooser knows which actions are possible now, as texts. The order is the same for equal states.
	Chooser interface {
		Actions(ctx context.Context) ([]string, error)
	}
	// Solver knows actions that end the episode with full reward from its start, where Reset was the last that was called.
	Solver interface {
		Solution(ctx context.Context) ([]Action, error)
	}
	// Checker says whether the environment still works, between episodes. nil: it does.
	Checker interface {
		Check(ctx context.Context) error
	}
	// Caller answers calls that are no actions: what a Python tool or reward asks of its environment argument. method is a name of the
	// environment's own; a call that is wrong is a *CallError.
	Caller interface {
		Call(ctx context.Context, method string, arguments json.RawMessage) (json.RawMessage, error)
	}
)

// Spec describes the environments of a Source.
type Spec struct {
	Tools         []tools.Spec // its own, each call of which is an action; none: it takes texts, as the argument "action" of the tool "act"
	Instructions  string       // what the agent is told of the world, its actions and its goal, before the first observation; "" for none
	Deterministic bool         // the same start and actions give the same episode
	Once          bool         // an environment plays one episode only: it is closed after it, not reset
	InProcess     bool         // it runs in this process: there is no process to die, and a step is cheap
}

// Act is the tool of environments that take texts.
func Act() tools.Spec {
	return tools.Spec{
		Name: "act", Description: "Acts in the environment.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"action":{"type":"string","description":"the action, as the environment reads it"}},"required":["action"],"additionalProperties":false}`),
		Stateful:   true,
	}
}

// Actions are the tools whose calls are actions: its own, or Act.
func (s Spec) Actions() []tools.Spec {
	if len(s.Tools) == 0 {
		return []tools.Spec{Act()}
	}
	return s.Tools
}

// Source makes the environments of one job's configuration. All methods are safe for concurrent use.
type Source interface {
	Spec() Spec
	// New makes an environment that waits for Reset. owner labels whatever it leaves outside of this process, so that a later start finds it.
	New(ctx context.Context, owner string) (Environment, error)
	// Close releases what the environments share, after all of them are closed.
	Close() error
}

// The splits of a source's own tasks.
const (
	Train = "train"
	Eval  = "eval"
)

// Tasker is a Source with tasks of its own: the first n of a split, each with an id that names it in every run, and fields that Reset takes.
// No task of one split has the episode of a task of the other. Fewer than n is an error that says how many there are.
type Tasker interface {
	Tasks(split string, n int) ([]trajectory.Task, error)
}

// Sweeper is a Source that can leave something behind on another process or machine when this process is killed: Sweep removes what owners of that
// name left, and says what it removed.
type Sweeper interface {
	Sweep(ctx context.Context, owner string) (removed []string, err error)
}
