package python

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/python/protocol"
	"github.com/agentfly/agentfly/sandbox"
)

// EnvironmentOptions say which Python class an environment is, and how its workers run.
type EnvironmentOptions struct {
	Interpreter string           // "" is python3 on PATH
	Folder      string           // where modules that are named by import path are found, beside the installed ones; "": the working folder's
	File        string           // that holds the class; "": Config names an import path or an id
	Source      []byte           // the text of a file that is not on this machine; nil: read from File
	Config      map[string]any   // arguments of env_open, see package protocol
	Memory      int64            // bytes of a worker's address space; 0 is 2 GiB, negative is no limit
	Sandbox     *sandbox.Sandbox // in which workers run; nil is none
	Show        []string         // files and folders that workers in a sandbox may read
	Container   *Container       // in which workers run; nil is none. Interpreter is a program of its image then
	Variables   []string         // NAME=value, of the worker's process
	Stderr      io.Writer        // gets what workers write for people; nil: nobody
}

// Environments starts workers that hold one environment each.
type Environments struct {
	launch launch
	open   json.RawMessage
	stderr io.Writer
}

// Environment is a worker process that holds one environment. Its methods are called one at a time.
type Environment struct {
	protocol.Environment
	worker *worker
	ids    atomic.Int64
}

// NewEnvironments finds the interpreter. It starts no worker yet.
func NewEnvironments(ctx context.Context, o EnvironmentOptions) (*Environments, error) {
	config := map[string]any{}
	for k, v := range o.Config {
		config[k] = v
	}
	file := "" // on this machine
	switch {
	case o.Source != nil:
		config["file"], config["source"] = o.File, string(o.Source)
	case o.File != "":
		var err error
		if file, err = filepath.Abs(o.File); err != nil {
			return nil, fmt.Errorf("python: %w", err)
		}
		source, err := readSource(file)
		if err != nil {
			return nil, fmt.Errorf("python: %w", err)
		}
		config["file"], config["source"] = file, string(source)
	case o.Folder != "":
		config["folder"] = o.Folder
	}
	open, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("python: the parameters cannot be sent: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	po := Options{
		Interpreter: o.Interpreter, Sandbox: o.Sandbox, Show: o.Show, Memory: max(cmp.Or(o.Memory, defaultMemory), 0), environment: true, container: o.Container != nil,
	}
	var l launch
	if o.Container != nil {
		folder := ""
		if o.File == "" {
			folder = o.Folder
		}
		l, err = containerLaunch(ctx, *o.Container, folder, po)
	} else {
		l, err = cpython(ctx, file, po)
	}
	if err != nil {
		return nil, err
	}
	l.alone = true
	l.env = append([]string{"PYTHONHASHSEED=0"}, o.Variables...) // the order of sets is the same in every worker
	e := &Environments{launch: l, open: open}
	if o.Stderr != nil {
		e.stderr = newSaid(o.Stderr)
	}
	return e, nil
}

// Start starts a worker and makes its environment, until ctx is done. The error of a class or configuration that is wrong is *Error, that of a
// process that failed *BrokenError.
func (e *Environments) Start(ctx context.Context) (*Environment, error) {
	w, err := startWorker(context.WithoutCancel(ctx), e.launch, e.stderr, func(*worker) {})
	if err != nil {
		return nil, err
	}
	out := &Environment{worker: w}
	r, err := out.Ask(ctx, "env_open", e.open)
	if err == nil {
		err = json.Unmarshal(r.Result, &out.Environment)
	}
	if err != nil {
		w.kill(err)
		<-w.gone
		return nil, err
	}
	return out, nil
}

// Tools are what the environment declares as its own.
func (e *Environment) Tools() ([]Function, error) {
	functions, errs := describe(e.Environment.Tools, 1)
	if len(errs) > 0 {
		return nil, errors.New(strings.Join(errs, "; "))
	}
	return functions, nil
}

// Ask sends a request and waits for its reply. When ctx is done before, the worker is killed: in the midst of a method nobody knows its state.
// What the class raised is *Error, a process that ended *BrokenError.
func (e *Environment) Ask(ctx context.Context, op string, arguments json.RawMessage) (protocol.Reply, error) {
	r, ok, err := e.worker.converse(ctx, protocol.Request{ID: e.ids.Add(1), Op: op, Arguments: arguments})
	switch {
	case err != nil:
		return r, err
	case !ok:
		<-e.worker.gone
		return r, &BrokenError{Text: "its process ended", Detail: e.worker.detail}
	case r.Error != "":
		return r, &Error{r.Error}
	}
	return r, nil
}

const closeTime = 2 * time.Second // for the class to close what it holds

// Close lets the class close what it holds, and ends the process with everything that it started.
func (e *Environment) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	r, _, _ := e.worker.converse(ctx, protocol.Request{ID: e.ids.Add(1), Op: "env_close"}) // one that does not answer is ended
	var err error
	if r.Error != "" {
		err = &Error{r.Error}
	}
	e.worker.kill(errClosed)
	<-e.worker.gone
	return err
}

// Kill ends the process at once, with everything that it started. Close must follow.
func (e *Environment) Kill() { e.worker.kill(errors.New("it was killed")) }

// Gone is closed when the process has ended and nothing of it runs.
func (e *Environment) Gone() <-chan struct{} { return e.worker.gone }
