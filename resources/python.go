package resources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/agentfly/agentfly/python"
)

// PythonFile are the parameters of a Python file, in agent.tools and in rewards.
type PythonFile struct {
	Python      string   `json:"python"`      // the file
	Runtime     string   `json:"runtime"`     // auto, cpython or gpython
	Interpreter string   `json:"interpreter"` // of cpython; default python3
	Sandboxed   bool     `json:"sandboxed"`   // its workers run in the job's sandbox
	Show        []string `json:"show"`        // sandboxed: further files and folders that the file may read
	Workers     int      `json:"workers"`     // processes; default the number of processors
	Memory      int      `json:"memory"`      // MiB of a worker; default 2048
}

// Interpreter is the [Resources.Program] of an interpreter that the job names, which has to be there; "" names none.
func (r *Resources) Interpreter(name string) (string, error) {
	interpreter, err := r.Program(name)
	if err != nil || name == "" {
		return "", err
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		return "", fmt.Errorf("the interpreter %s is not found: %w", name, err)
	}
	return interpreter, nil
}

// LoadPython loads the file, once for all entries with the same parameters, and tells the user its warnings.
func (r *Resources) LoadPython(ctx context.Context, p PythonFile) (*python.Module, error) {
	switch {
	case p.Python == "":
		return nil, errors.New("python: the file is missing; write {python: FILE}")
	case p.Workers < 0 || p.Memory < 0:
		return nil, errors.New("workers and memory must be above 0; leave them out for the defaults")
	}
	if len(p.Show) > 0 && !p.Sandboxed {
		return nil, errors.New("show names what a sandbox shows; write sandboxed: true with it, or leave it out: outside a sandbox the file reads what it likes")
	}
	with := ""
	if p.Interpreter != "" {
		with = " with " + p.Interpreter
	}
	f, err := os.Open(r.Resolve(p.Python))
	if err != nil {
		return nil, fmt.Errorf("the file %s cannot be read: %w", p.Python, errors.Unwrap(err))
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	interpreter, err := r.Interpreter(p.Interpreter)
	if err != nil {
		return nil, err
	}
	if err := r.Run("the Python file " + p.Python + ", which is not imported" + with); err != nil {
		return nil, err
	}
	o := python.Options{Runtime: p.Runtime, Interpreter: interpreter, Workers: p.Workers, Memory: int64(p.Memory) << 20, Stderr: r.Log(filepath.Base(p.Python))}
	if p.Sandboxed {
		box, err := r.Sandbox(ctx)
		if err != nil {
			return nil, err
		}
		o.Sandbox = box
		for _, path := range p.Show {
			o.Show = append(o.Show, r.Resolve(path))
		}
	}
	m, err := r.Python(ctx, p.Python, o)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Functions() {
		for _, w := range f.Warnings {
			r.warnOnce(fmt.Sprintf("%s: %s: %s", filepath.Base(p.Python), f.Name, w))
		}
	}
	return m, nil
}

func (r *Resources) warnOnce(text string) {
	r.mu.Lock()
	said := r.said[text]
	r.said[text] = true
	r.mu.Unlock()
	if !said {
		r.Warn(text)
	}
}
