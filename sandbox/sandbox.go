// Package sandbox runs programs that nobody trusts: without network, in a file system of their own, as an unprivileged user, within
// limits of time, memory, processes and output. All methods are safe for concurrent use.
//
// It does not know what the programs are for, and it does not keep what they leave: packages tools/workspace and
// tools/code do.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Limits of one process tree. Zero fields take the value of Defaults.
type Limits struct {
	CPU       time.Duration // processor time of each process, rounded up to seconds
	Wall      time.Duration // until the whole tree is killed; of Run only, a Process lives as long as its ctx
	Memory    int64         // bytes of address space of each process, and of memory of the tree, which is looked at ten times a second
	Processes int           // of the tree, threads included
	Output    int64         // bytes of each of standard output and error that Run keeps; the rest is dropped and counted
	Disk      int64         // bytes of the private file system; of a workspace of the host too, which is looked at while the program runs
	OpenFiles int           // of each process
	Reserved  int64         // bytes of address space of each process, for runtimes that reserve much more than they use, such as Node.js; 0: Memory
}

// Defaults are the limits of a call of a prebuilt tool.
var Defaults = Limits{CPU: 10 * time.Second, Wall: 20 * time.Second, Memory: 1 << 30, Processes: 32, Output: 1 << 20, Disk: 64 << 20, OpenFiles: 128}

// or are the limits with those of below where l says nothing.
func (l Limits) or(below Limits) Limits {
	return Limits{
		CPU: cmp.Or(l.CPU, below.CPU), Wall: cmp.Or(l.Wall, below.Wall), Memory: cmp.Or(l.Memory, below.Memory),
		Processes: cmp.Or(l.Processes, below.Processes), Output: cmp.Or(l.Output, below.Output),
		Disk: cmp.Or(l.Disk, below.Disk), OpenFiles: cmp.Or(l.OpenFiles, below.OpenFiles),
		Reserved: cmp.Or(l.Reserved, below.Reserved),
	}
}

// Kinds of a sandbox.
const (
	Auto       = "auto"       // bubblewrap, else landlock, else an error
	Bubblewrap = "bubblewrap" // bwrap, seccomp and rlimits
	Landlock   = "landlock"   // landlock, seccomp and rlimits
	None       = "none"       // no confinement but limits; only where the job says so
)

// Path is PATH of a program that brings none of its own.
const Path = "/usr/local/bin:/usr/bin:/bin"

// Sandbox starts confined programs.
type Sandbox struct {
	kind     string
	command  func(p Program, l Limits) (*launch, error) // of the kind
	starter  starter
	overfull overfull
}

// Program is what runs.
type Program struct {
	Args      []string // Args[0] is a path inside, or a name on PATH inside
	Env       []string // NAME=value; beside these there are PATH, HOME and LANG, and nothing of the host's
	Stdin     []byte   // of Run
	Workspace string   // a folder of the host that is the working folder, writable (/workspace inside); "": a private empty one
	ReadOnly  []string // further folders and files of the host that are readable inside under the same path
	Mounts    []Mount  // folders of the host under other paths; Bubblewrap alone has them
	Limits    Limits
	// Serve answers what the program asks on 127.0.0.1:Port, the one address that it reaches, from before it begins. It returns when the listener is
	// closed, which is so when the tree is gone; Process.Kill joins it. Bubblewrap alone has it; nil: there is nobody.
	Serve func(l net.Listener)
	Port  int
}

// Mount shows a folder of the host inside under a path of its own. What a program does to a writable one stays; it counts to Limits.Disk.
type Mount struct {
	Host     string
	Inside   string // absolute, and not below a folder of the system, such as /usr
	Writable bool
}

// Result of Run.
type Result struct {
	Stdout, Stderr  []byte
	Dropped         int64 // bytes of output beyond the limit
	Exit            int   // -1 when a signal ended it
	Signal          string
	TimedOut        bool   // Limits.Wall passed
	Exceeded        string // "memory", "disk" or Unwatched when the tree was killed for it; "": none of them
	Wall, Processor time.Duration
}

// Process is a running program. Kill ends its whole tree, returns when that is gone, closes the pipes and may be called more than once;
// call it always, also after Wait.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader
	Wait() error
	Kill() error
}

// ErrUnavailable is wrapped by the error of Open when this machine cannot confine programs; its text says why and what to install.
var ErrUnavailable = errors.New("sandbox: unavailable")

// ExitError is returned by Process.Wait of a program that did not end well.
type ExitError struct {
	Exit     int    // -1 when a signal ended it
	Signal   string // SIGKILL and so on
	Exceeded string // "memory", "disk", Unwatched or ""
	Cause    error  // of Unwatched
}

// Unwatched is what a tree exceeds of which this process cannot see what it uses: it has no descriptor left, or the program hid itself.
const Unwatched = "unwatched"

// Blind tells whether the tree was killed because this process, or the machine, had no descriptor left to watch it with. That is no doing of the
// program, and nothing is known of what it would have done.
func (e *ExitError) Blind() bool {
	return e.Exceeded == Unwatched && (errors.Is(e.Cause, syscall.EMFILE) || errors.Is(e.Cause, syscall.ENFILE))
}

func (e *ExitError) Error() string {
	switch {
	case e.Blind():
		return "sandbox: killed because its memory and disk could not be watched: this process has no descriptor left; allow it more open files (ulimit -n)"
	case e.Exceeded == Unwatched:
		return fmt.Sprintf("sandbox: killed because its memory and disk could not be watched: %v", e.Cause)
	case e.Exceeded != "":
		return "sandbox: killed beyond the limit of " + e.Exceeded
	case e.Signal != "":
		return "sandbox: ended by " + e.Signal
	default:
		return fmt.Sprintf("sandbox: ended with status %d", e.Exit)
	}
}

// Open removes what killed processes left of their sandboxes, finds out what this machine can do, and proves it with a program that tries to get out.
func Open(ctx context.Context, kind string) (*Sandbox, error) {
	RemoveStale()
	switch kind {
	case Auto:
		box, err := openBubblewrap(ctx)
		if err == nil {
			return box, nil
		}
		box, second := openLandlock(ctx)
		if second == nil {
			return box, nil
		}
		return nil, fmt.Errorf("%w: bubblewrap: %v; landlock: %v; install bubblewrap, or let the job say `sandbox: none`", ErrUnavailable, err, second)
	case Bubblewrap:
		box, err := openBubblewrap(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: bubblewrap: %v", ErrUnavailable, err)
		}
		return box, nil
	case Landlock:
		box, err := openLandlock(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: landlock: %v", ErrUnavailable, err)
		}
		return box, nil
	case None:
		return openNone()
	}
	return nil, fmt.Errorf("sandbox: there is no kind %q; the kinds are auto, bubblewrap, landlock, none", kind)
}

// Kind is Bubblewrap, Landlock or None.
func (s *Sandbox) Kind() string { return s.kind }

// Run runs a program to its end. An error is the sandbox's own, as that of a tree that ended blind; what the program did wrong is in the result.
func (s *Sandbox) Run(ctx context.Context, p Program) (Result, error) {
	limits := p.Limits.or(Defaults)
	own, cancel := context.WithTimeout(ctx, limits.Wall)
	defer cancel()
	start := time.Now()
	r, err := s.start(own, p)
	if err != nil {
		return Result{}, err
	}
	out, errs := &bounded{limit: limits.Output}, &bounded{limit: limits.Output}
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = r.stdin.Write(p.Stdin) // the program may not read it
		_ = r.stdin.Close()
	})
	all.Go(func() { _, _ = io.Copy(out, r.stdout) })
	all.Go(func() { _, _ = io.Copy(errs, r.stderr) })
	all.Wait() // the pipes end with the tree
	waited := r.Wait()
	_ = r.Kill()
	result := Result{
		Stdout: out.kept, Stderr: errs.kept, Dropped: out.dropped + errs.dropped,
		Wall: time.Since(start), Processor: r.processor(),
	}
	var exit *ExitError
	switch {
	case ctx.Err() != nil:
		return result, ctx.Err()
	case waited == nil:
	case errors.As(waited, &exit):
		result.Exit, result.Signal, result.Exceeded = exit.Exit, exit.Signal, exit.Exceeded
		if exit.Blind() {
			return result, exit
		}
	case own.Err() == nil:
		return result, fmt.Errorf("%w: %s", waited, lastLine(errs.kept))
	}
	if own.Err() != nil && waited != nil && result.Exceeded == "" {
		result.TimedOut, result.Exit, result.Signal = true, -1, "SIGKILL"
	}
	return result, nil
}

// Start starts a program that lives until Kill, its own end, or the end of ctx.
func (s *Sandbox) Start(ctx context.Context, p Program) (Process, error) {
	r, err := s.start(ctx, p)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// bounded keeps the first bytes that are written to it and counts the others.
type bounded struct {
	limit, dropped int64
	kept           []byte
}

func (b *bounded) Write(data []byte) (int, error) {
	n := min(int64(len(data)), b.limit-int64(len(b.kept)))
	b.kept = append(b.kept, data[:n]...)
	b.dropped += int64(len(data)) - n
	return len(data), nil
}
