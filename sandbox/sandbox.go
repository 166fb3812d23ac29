// Package sandbox runs programs that nobody trusts: without network, in a file system of their own, as an unprivileged user, within
// limits of time, memory, processes and output. All methods are safe for concurrent use.
package sandbox

import (
	"context"
	"errors"
	"io"
	"time"
)

// Limits of one process tree. Zero fields take the value of Defaults.
type Limits struct {
	CPU       time.Duration // processor time of each process
	Wall      time.Duration // until the whole tree is killed; of Run only, a Process lives as long as its ctx
	Memory    int64         // bytes of address space of each process
	Processes int           // of the tree
	Output    int64         // bytes of each of standard output and error that Run keeps; the rest is dropped and counted
	Disk      int64         // bytes of the private file system, workspace included where it is private
	OpenFiles int           // of each process
}

// Defaults are the limits of a call of a prebuilt tool.
var Defaults = Limits{CPU: 10 * time.Second, Wall: 20 * time.Second, Memory: 1 << 30, Processes: 32, Output: 1 << 20, Disk: 64 << 20, OpenFiles: 128}

// Kinds of a sandbox.
const (
	Auto       = "auto"       // bubblewrap, else landlock, else an error
	Bubblewrap = "bubblewrap" // bwrap, seccomp and rlimits
	Landlock   = "landlock"   // landlock, seccomp and rlimits
	None       = "none"       // no confinement but limits; only where the job says so
)

// Sandbox starts confined programs.
type Sandbox struct{ kind string }

// Program is what runs.
type Program struct {
	Args      []string // Args[0] is a path inside, or a name on PATH inside
	Env       []string // the whole environment; nothing of the host's is passed on
	Stdin     []byte   // of Run
	Workspace string   // a folder of the host that is /workspace inside, writable, and the working folder; "": a private empty one
	ReadOnly  []string // further folders and files of the host that are readable inside under the same path
	Limits    Limits
}

// Result of Run.
type Result struct {
	Stdout, Stderr  []byte
	Dropped         int64 // bytes of output beyond the limit
	Exit            int   // -1 when a signal ended it
	Signal          string
	TimedOut        bool // Limits.Wall passed
	Wall, Processor time.Duration
}

// Process is a running program. Kill ends its whole tree and may be called more than once.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() error
	Kill() error
}

// ErrUnavailable is wrapped by the error of Open when this machine cannot confine programs; its text says why and what to install.
var ErrUnavailable = errors.New("sandbox: unavailable")

// Open finds out what this machine can do, and proves it with a program that tries to get out.
func Open(ctx context.Context, kind string) (*Sandbox, error) { return nil, ErrUnavailable }

// Kind is Bubblewrap, Landlock or None.
func (s *Sandbox) Kind() string { return s.kind }

// Run runs a program to its end. An error is the sandbox's own; what the program did wrong is in the result.
func (s *Sandbox) Run(ctx context.Context, p Program) (Result, error) {
	return Result{}, ErrUnavailable
}

// Start starts a program that lives until Kill, its own end, or the end of ctx.
func (s *Sandbox) Start(ctx context.Context, p Program) (Process, error) {
	return nil, ErrUnavailable
}
