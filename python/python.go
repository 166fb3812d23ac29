// Package python runs functions of plain Python files that carry @tool, @reward or @agent (`from agentfly import tool, reward`), in a
// supervised pool of CPython workers or in gpython, which needs no Python on the machine. All methods are safe for concurrent use.
package python

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/agentfly/agentfly/sandbox"
)

// Runtimes.
const (
	Auto    = "auto"    // cpython where python3 exists, else gpython
	CPython = "cpython" // worker processes
	GPython = "gpython" // embedded, in a re-executed child
)

// Options of Load. Zero fields are defaults.
type Options struct {
	Runtime     string
	Interpreter string           // of cpython; "" is python3 on PATH
	Workers     int              // processes; 0 is the number of processors
	Sandbox     *sandbox.Sandbox // in which workers run; nil is none
	Timeout     time.Duration    // of a call of a function that states none; 0 is 30 s
	Memory      int64            // bytes of a worker; 0 is 2 GiB
}

// Function is a decorated function of a file.
type Function struct {
	Kind          string          // "tool", "reward" or "agent"
	Name          string          //
	Description   string          //
	Parameters    json.RawMessage // JSON schema of a tool's arguments
	Arguments     []string        // names of a reward's arguments
	Timeout       time.Duration   // 0: the job's
	MaxTokens     int             // 0: the job's
	Stateful      bool            // calls of a trajectory go to one worker
	Terminal      bool            // a call ends the trajectory
	Idempotent    bool
	Deterministic bool
	Warnings      []string // options that are accepted and mean something else here
}

// Module is a loaded file with its workers.
type Module struct{ functions []Function }

// Error is what the Python code raised. Text is its last traceback line, without host paths.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// BrokenError says that the worker, not the code's logic, failed: it crashed, hung beyond its deadline or ran out of memory.
type BrokenError struct{ Text string }

func (e *BrokenError) Error() string { return e.Text }

// Load starts the workers of a file and reads what it decorates. Errors name file, line and remedy.
func Load(ctx context.Context, file string, o Options) (*Module, error) {
	return nil, errors.New("python: not built")
}

// Functions are what the file decorates, in its order.
func (m *Module) Functions() []Function { return m.functions }

// Call runs a function. arguments is a JSON object of keyword arguments; trajectory selects the worker of a stateful function. The
// result is JSON: what the function returned. The error is *Error, *BrokenError, or ctx's.
func (m *Module) Call(ctx context.Context, name, trajectory string, arguments json.RawMessage) (json.RawMessage, error) {
	return nil, errors.New("python: not built")
}

// End forgets the state of a trajectory.
func (m *Module) End(trajectory string) {}

// Close ends the workers; calls that run fail.
func (m *Module) Close() error { return nil }
