package environments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
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
}

// mostText is how long the text of a failure is at most, in characters: it stands in one line of a log and in the record of the trajectory.
const mostText = 600

// Error is one line.
func (f *Failure) Error() string {
	return fmt.Sprintf("environments: %s: %s: %s", f.Kind, f.What, oneLine(f.Err.Error()))
}

func (f *Failure) Unwrap() error { return f.Err }

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
