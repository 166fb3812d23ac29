// Package python runs functions of plain Python files that carry @tool, @reward or @agent (`from agentfly import tool, reward`), in a
// supervised pool of CPython workers or in gpython, which needs no Python on the machine. All methods are safe for concurrent use.
//
// It does not know what the functions are for: packages tools, rewards and agents make tools, rewards and formats of them.
// The messages are package protocol's.
package python

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentfly/agentfly/python/protocol"
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
	Timeout     time.Duration    // of a call of a function that states none, where ctx has no deadline; 0 is 30 s
	Memory      int64            // bytes of a worker; 0 is 2 GiB, negative is no limit
	Show        []string         // files and folders that workers in a sandbox may read, beside the file, the modules of its folder that it imports and the interpreter's packages
	environment bool             // the worker is an environment's
	container   bool             // it runs in a container
	Stderr      io.Writer        // gets what workers write for people, one write at a time; nil: nobody. The last part stands in errors all the same
}

const (
	defaultTimeout = 30 * time.Second
	defaultMemory  = 2 << 30
	loadTimeout    = 2 * time.Minute // large imports are slow on a busy machine
)

// Function is a decorated function of a file.
type Function struct {
	Kind          string          // "tool", "reward" or "agent"
	Name          string          //
	Description   string          //
	Parameters    json.RawMessage // JSON schema of the arguments; a reward's has {} where a hint says nothing
	Arguments     []string        // names of the arguments
	Timeout       time.Duration   // 0: the job's
	MaxTokens     int             // 0: the job's
	MaxLength     int             // characters of an observation that are kept; 0: all
	Concurrency   int             // calls that run at once; 0: any number
	Stateful      bool            // calls of a trajectory go to one worker
	Terminal      bool            // a call ends the trajectory
	Idempotent    bool
	Deterministic bool
	Context       bool     // it takes AgentFly's argument context, whose metadata Call.Metadata is
	Environment   string   // kind of the environment that a tool acts in, by the option environment: it asks Call.Environment; "": none
	Warnings      []string // options that are accepted and mean something else here
}

// Module is a loaded file with its workers.
type Module struct {
	file      string
	options   Options
	functions []Function
	tests     []string
	pool      *pool
	calls     map[string]callable
}

// callable says how a name is called.
type callable struct {
	timeout         time.Duration
	async, stateful bool
}

// Error is what the Python code raised. Text is its last traceback line; it may name paths of this machine, which a model must not read.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// BrokenError says that the worker, not the code's logic, failed: it crashed, hung beyond its deadline or ran out of memory. Text names no
// host path; Detail is for people: how the process ended and the last that it wrote.
type BrokenError struct{ Text, Detail string }

func (e *BrokenError) Error() string { return e.Text }

// Load starts the first worker of a file and reads what it decorates. Errors name file, line and remedy, one line each.
func Load(ctx context.Context, file string, o Options) (*Module, error) {
	source, err := readSource(file)
	if err != nil {
		return nil, fmt.Errorf("python: %w", err)
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil, fmt.Errorf("python: %w", err)
	}
	o.Workers = cmp.Or(o.Workers, runtime.NumCPU())
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Memory = max(cmp.Or(o.Memory, defaultMemory), 0)
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	l, err := newLaunch(ctx, file, o)
	if err != nil {
		return nil, err
	}
	m := &Module{file: file, options: o, pool: newPool(l, protocol.Request{ID: 1, Op: "load", File: file, Source: string(source)}, o), calls: map[string]callable{}}
	first, err := m.pool.first(ctx)
	var broken *BrokenError
	switch {
	case errors.As(err, &broken):
		err = fmt.Errorf("python: %s: %s: %s", file, broken.Text, broken.Detail)
	case err == nil:
		err = m.learn(first)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// readSource is the text of a file, which is UTF-8 with or without a byte order mark.
func readSource(file string) ([]byte, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	source = bytes.TrimPrefix(source, []byte("\uFEFF"))
	for n, line := range bytes.Split(source, []byte("\n")) {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("%s:%d: the line is not UTF-8; save the file as UTF-8", file, n+1)
		}
	}
	return source, nil
}

// learn takes over what the first worker says of the file.
func (m *Module) learn(r protocol.Reply) error {
	functions, errs := describe(r.Functions, m.options.Workers)
	if errs = append(errs, r.Errors...); len(errs) > 0 {
		slices.SortStableFunc(errs, func(a, b string) int { return cmp.Compare(lineOf(a), lineOf(b)) })
		return loadError(m.file, errs)
	}
	m.functions, m.tests = functions, r.Tests
	for i, f := range functions {
		m.calls[f.Name] = callable{f.Timeout, r.Functions[i].Async, f.Stateful}
	}
	for _, name := range r.Tests {
		m.calls[testPrefix+name] = callable{}
	}
	return nil
}

const testPrefix = "test:"

// lineOf is the number before the first colon.
func lineOf(text string) int {
	number, _, _ := strings.Cut(text, ":")
	n, _ := strconv.Atoi(number) // 0 where there is none
	return n
}

// loadError puts the file before each line.
func loadError(file string, lines []string) error {
	errs := make([]error, len(lines))
	for i, line := range lines {
		errs[i] = fmt.Errorf("%s:%s", file, line) // as compilers write it
	}
	return errors.Join(errs...)
}

// Functions are what the file decorates, in its order.
func (m *Module) Functions() []Function { return slices.Clone(m.functions) }

// Tests are the file's functions test_NAME, in its order. RunTest runs one.
func (m *Module) Tests() []string { return slices.Clone(m.tests) }

// RunTest runs a test function: nil, or what it raised.
func (m *Module) RunTest(ctx context.Context, name string) error {
	_, err := m.Call(ctx, testPrefix+name, "", nil)
	return err
}

// Call runs a function. arguments is a JSON object of keyword arguments; trajectory selects the worker of a stateful function. The
// result is JSON: what the function returned. It is ended at the deadline of ctx, or, where ctx has none, after its own timeout, or after
// that of the options. The error is *Error, *BrokenError, or ctx's.
func (m *Module) Call(ctx context.Context, name, trajectory string, arguments json.RawMessage) (json.RawMessage, error) {
	return m.Do(ctx, Call{Name: name, Trajectory: trajectory, Arguments: arguments})
}

// Environs answers what a function asks the environment of its trajectory, as a JSON value: op is that of protocol.Ask. It honours ctx, which is done
// with the call.
type Environs func(ctx context.Context, op string, arguments json.RawMessage) (json.RawMessage, error)

// Call says what a function is called with.
type Call struct {
	Name, Trajectory string
	Arguments        json.RawMessage
	Metadata         json.RawMessage // of a function that takes AgentFly's context; a JSON object
	Environment      Environs        // the argument environment of the function; nil: the trajectory has none
}

// Do is Call with all that a function may be called with.
func (m *Module) Do(ctx context.Context, call Call) (json.RawMessage, error) {
	name := call.Name
	c, ok := m.calls[name]
	if !ok {
		return nil, fmt.Errorf("python: %s: there is no function %q", filepath.Base(m.file), name)
	}
	own := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		own, cancel = context.WithTimeout(ctx, cmp.Or(c.timeout, m.options.Timeout))
		defer cancel()
	}
	r, err := m.pool.call(own, c, protocol.Request{Op: "call", Name: name, Trajectory: call.Trajectory, Arguments: call.Arguments, Metadata: call.Metadata}, call.Environment)
	shown := strings.TrimPrefix(name, testPrefix)
	switch broken := (*BrokenError)(nil); {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && own.Err() != nil:
		return nil, &BrokenError{Text: fmt.Sprintf("%s took longer than %s; ask it for less work", shown, cmp.Or(c.timeout, m.options.Timeout))}
	case errors.As(err, &broken):
		return nil, &BrokenError{shown + " broke: " + broken.Text, broken.Detail}
	case err != nil:
		return nil, err
	case r.Broken:
		return nil, &BrokenError{Text: shown + " broke: " + r.Error}
	case r.Error != "":
		return nil, &Error{r.Error}
	}
	return r.Result, nil
}

// Keeps tells whether a worker keeps state of a trajectory.
func (m *Module) Keeps(trajectory string) bool { return m.pool.keeps(trajectory) }

// End forgets the state of a trajectory.
func (m *Module) End(trajectory string) { m.pool.end(trajectory) }

// Close ends the workers; calls that run fail. It returns when their processes are gone, and may be called twice.
func (m *Module) Close() error {
	m.pool.close()
	return nil
}
