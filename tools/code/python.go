// Package code holds the tools that run what the model wrote: python and shell. Programs run in the job's sandbox, in the workspace of
// their trajectory.
//
// It does not confine the programs (package sandbox does) or own their folders (package tools/workspace does).
package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/workspace"
)

// ahead is how many workspaces with a started interpreter wait for the trajectories that begin next.
const ahead = 4

// Add adds the tools to a catalog.
func Add(c *tools.Catalog) error {
	return errors.Join(
		c.Add("python", "Runs Python code in a sandbox. mode: session (variables stay, the default) or once.", NewPython),
		c.Add("shell", "Runs a bash script in a sandbox.", NewShell),
	)
}

// base is what the tools of this package have in common.
type base struct {
	box    *sandbox.Sandbox
	spaces *workspace.Workspaces
	spec   tools.Spec
}

func (b *base) Spec() tools.Spec { return b.spec }

// End removes the trajectory's workspace with all its processes.
func (b *base) End(trajectory string) { b.spaces.End(trajectory) }

func open(ctx context.Context, r *resources.Resources) (*base, error) {
	box, err := r.Sandbox(ctx)
	if err != nil {
		return nil, err
	}
	spaces, err := workspace.Of(r)
	if err != nil {
		return nil, err
	}
	return &base{box: box, spaces: spaces}, nil
}

// hide leaves the folder's path on the host out of a text.
func (b *base) hide(text string, w *workspace.Workspace) string {
	if b.box.Kind() == sandbox.Bubblewrap { // it is /workspace inside
		return text
	}
	return strings.ReplaceAll(text, w.Dir(), ".")
}

// within leaves time to say what happened before the deadline of the call itself.
func within(ctx context.Context) (context.Context, context.CancelFunc, time.Duration) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}, 0
	}
	left := time.Until(deadline)
	left -= min(500*time.Millisecond, left/10)
	own, cancel := context.WithTimeout(ctx, left)
	return own, cancel, left
}

// failure is the error of a program that was stopped or ended; lost says what was lost with it.
func failure(ctx context.Context, err error, left time.Duration, lost string) error {
	var broken *tools.BrokenError
	switch {
	case errors.As(err, &broken), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the code ran longer than %s and was stopped%s", left.Round(100*time.Millisecond), lost)
	default:
		return fmt.Errorf("the code was stopped: %w%s", err, lost)
	}
}

type pythonParams struct {
	Mode string `json:"mode"` // session (default): variables live as long as the trajectory; once: every call begins anew
}

type python struct {
	base
	once bool
}

// interpreters are those of one trajectory.
type interpreters struct {
	*ready[*session]
	turn chan struct{} // of a persistent session, which runs one call at a time
}

// NewPython makes the tool python.
func NewPython(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	p := pythonParams{Mode: "session"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Mode != "session" && p.Mode != "once" {
		return nil, fmt.Errorf("the parameter mode is %q; allowed is session or once", p.Mode)
	}
	b, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	t := &python{base: *b, once: p.Mode == "once"}
	how := "Variables stay for the next call."
	if t.once {
		how = "Every call starts a new interpreter; files stay."
	}
	t.spec = tools.Spec{
		Name: "python", Stateful: true, Replays: true,
		Description: "Runs Python code and returns what it prints and the value of its last expression. " + how,
		Parameters:  json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","description":"Python code"}},"required":["code"],"additionalProperties":false}`),
	}
	t.spaces.Ahead(ahead, func(ctx context.Context, w *workspace.Workspace) error {
		i, err := t.interpreters(w)
		if err != nil {
			return err
		}
		return i.fill(ctx)
	})
	return []tools.Tool{t}, nil
}

func (t *python) interpreters(w *workspace.Workspace) (*interpreters, error) {
	c, err := w.Attach("python", func() (io.Closer, error) {
		cpu := sessionCPU
		if t.once {
			cpu = callCPU
		}
		return &interpreters{newReady(func(ctx context.Context) (*session, error) {
			return startSession(ctx, t.box, w.Dir(), cpu)
		}), make(chan struct{}, 1)}, nil
	})
	if err != nil {
		return nil, err
	}
	return c.(*interpreters), nil
}

func (t *python) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var args struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return tools.Observation{}, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	w, err := t.spaces.Get(c.Trajectory)
	if err != nil {
		return tools.Observation{}, &tools.BrokenError{Text: "there is no workspace"}
	}
	i, err := t.interpreters(w)
	if err != nil {
		return tools.Observation{}, err
	}
	ctx, cancel, left := within(ctx)
	defer cancel()
	if !t.once {
		select {
		case i.turn <- struct{}{}:
			defer func() { <-i.turn }()
		case <-ctx.Done():
			return tools.Observation{}, &tools.BrokenError{Text: "another call of this turn kept the interpreter busy"}
		}
	}
	s, err := i.take(ctx)
	if err != nil {
		if errors.Is(err, errOver) || ctx.Err() != nil {
			return tools.Observation{}, err
		}
		return tools.Observation{}, &tools.BrokenError{Text: t.hide(err.Error(), w)}
	}
	a, err := s.run(ctx, args.Code)
	switch {
	case err != nil:
		i.drop(s)
		lost := ""
		if !t.once {
			lost = "; its variables are lost, files are kept"
		}
		return tools.Observation{}, failure(ctx, err, left, lost)
	case t.once:
		i.drop(s)
	default:
		i.give(s)
	}
	return observe(t.hide(a.Output, w), t.hide(a.Error, w))
}

// observe writes what the model reads of a call.
func observe(output, failed string) (tools.Observation, error) {
	output = strings.TrimRight(output, "\n")
	if failed != "" {
		if output != "" {
			failed += "\nIt had printed:\n" + output
		}
		return tools.Observation{}, &tools.TextError{Text: failed}
	}
	if output == "" {
		output = "(no output)"
	}
	return tools.Observation{Text: output}, nil
}
