package environments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// What an environment was asked when it failed, as Failure.What and Stats.Failures name it.
const (
	AskedLease   = "lease" // a lease of its pool, the making of the environment included
	AskedReset   = "reset"
	AskedStep    = "step"
	AskedState   = "state"
	AskedRestore = "restore"
	AskedScore   = "score"
	AskedActions = "actions"
	AskedSolve   = "solution"
	AskedCall    = "call"
	AskedFork    = "fork"
)

// Failure is an environment that failed: the infrastructure's doing, so that its trajectory fails with [trajectory.OriginEnvironment] and has no
// reward. Err is the cause; that of a call that its caller gave up is the context's (errors.Is with context.Canceled or DeadlineExceeded).
type Failure struct {
	Kind string // of environment
	What string // it was asked: AskedReset, AskedStep, …
	Err  error

	givenUp bool // by the caller
	task    bool // it is the task's fault: a TaskError of a reset
}

// mostText is how long the text of a failure is at most, in characters: it stands in one line of a log and in the record of the trajectory.
const mostText = 600

// Error is one line.
func (f *Failure) Error() string {
	return fmt.Sprintf("environments: %s: %s: %s", f.Kind, f.What, oneLine(f.Err.Error()))
}

func (f *Failure) Unwrap() error { return f.Err }

// TaskError is what a Reset returns where its task is wrong: a field that the environment does not know, a level that there is not, a position without
// a solution. That is the task's fault and not the environment's, which can be reset for the next task: it stays in its pool and says nothing against
// it, and the same task fails again wherever it is tried. Text says what is wrong with the task and need not name it: the [Failure] does, in which
// errors.As finds the TaskError.
type TaskError struct{ Text string }

func (e *TaskError) Error() string { return e.Text }

// WrongTask makes a TaskError.
func WrongTask(format string, args ...any) error { return &TaskError{fmt.Sprintf(format, args...)} }

// blame says of an error of a reset whose fault it is, where that is the task's.
func blame(t trajectory.Task, err error) error {
	if wrong := (*TaskError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("the task %q is at fault, not the environment: %w", wording.Clip(t.ID, 64), err)
	}
	return err
}

func oneLine(text string) string {
	if len(text) > 64<<10 {
		text = text[:64<<10]
	}
	return wording.Clip(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "), mostText)
}

// Why a call did not return what was asked.
var (
	errEnded = errors.New("the episode was ended meanwhile")
	errOver  = errors.New("the episode has ended: its lease is given back; begin another one")
)

// causeOf says why a context is done; errors.Is finds the context's own error too.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w (%w)", cause, ctx.Err())
	}
	return ctx.Err()
}

// givenUp tells whether a failure is its caller's doing and no fault of the environment: the trajectory was cancelled or its time was up, or the
// episode was ended in the middle of the call.
func givenUp(ctx context.Context, err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, errOver) || ctx.Err() != nil && errors.Is(err, ctx.Err())
}
