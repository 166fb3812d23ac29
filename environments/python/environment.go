package pyenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/trajectory"
)

// environment is an object in a worker process.
type environment struct {
	name   string
	worker *python.Environment
	powers []string
	memory int64
	own    time.Duration // that the class itself took for the last request
}

var _ interface {
	environments.Environment
	environments.Stater
	environments.Scorer
	environments.Chooser
	environments.Solver
	environments.Checker
	environments.Caller
} = (*environment)(nil)

// ask sends a request; what is what it is for, in errors.
func (e *environment) ask(ctx context.Context, op string, arguments, into any) error {
	var raw json.RawMessage
	if arguments != nil {
		var err error
		if raw, err = json.Marshal(arguments); err != nil {
			return fmt.Errorf("%s: %s: %w", e.name, op[len("env_"):], err)
		}
	}
	r, err := e.worker.Ask(ctx, op, raw)
	if err != nil {
		return clear(e.name, op[len("env_"):], err)
	}
	e.own = time.Duration(r.Own)
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(r.Result, into); err != nil {
		return fmt.Errorf("%s: %s: the worker's reply cannot be read: %w", e.name, op[len("env_"):], err)
	}
	return nil
}

// power is nil where the class has it.
func (e *environment) power(name string) error {
	if slices.Contains(e.powers, name) {
		return nil
	}
	return fmt.Errorf("%s: %s: the class does not offer it: %w", e.name, name, errors.ErrUnsupported)
}

// start are the arguments of env_reset.
type start struct {
	Seed   int64                `json:"seed"`
	Fields map[string]any       `json:"fields,omitempty"`
	Prompt []trajectory.Message `json:"prompt,omitempty"`
}

func (e *environment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	var out struct {
		Observation environments.Observation `json:"observation"`
		Memory      int64                    `json:"memory"`
	}
	err := e.ask(ctx, "env_reset", start{s.Seed, s.Task.Fields, s.Task.Prompt}, &out)
	e.memory = out.Memory
	return out.Observation, err
}

// result is what env_step gives.
type result struct {
	Observation environments.Observation `json:"observation"`
	Reward      float64                  `json:"reward"`
	Terminated  bool                     `json:"terminated"`
	Truncated   bool                     `json:"truncated"`
	Anchor      string                   `json:"anchor"`
	Info        map[string]any           `json:"info"`
	Failure     trajectory.Failure       `json:"failure"`
}

// action is an environments.Action in a request.
type action struct {
	Text      string          `json:"text,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	var out result
	err := e.ask(ctx, "env_step", action(a), &out)
	return environments.Result(out), err
}

func (e *environment) State(ctx context.Context) (json.RawMessage, error) {
	if err := e.power("state"); err != nil {
		return nil, err
	}
	var out json.RawMessage
	err := e.ask(ctx, "env_state", nil, &out)
	return out, err
}

func (e *environment) Restore(ctx context.Context, state json.RawMessage) error {
	if err := e.power("state"); err != nil {
		return err
	}
	return e.ask(ctx, "env_restore", map[string]json.RawMessage{"state": state}, nil)
}

func (e *environment) Score(ctx context.Context) (out float64, err error) {
	if err := e.power("score"); err != nil {
		return 0, err
	}
	err = e.ask(ctx, "env_score", nil, &out)
	return out, err
}

func (e *environment) Actions(ctx context.Context) (out []string, err error) {
	if err := e.power("actions"); err != nil {
		return nil, err
	}
	err = e.ask(ctx, "env_actions", nil, &out)
	return out, err
}

func (e *environment) Solution(ctx context.Context) ([]environments.Action, error) {
	if err := e.power("solution"); err != nil {
		return nil, err
	}
	var found []action
	err := e.ask(ctx, "env_solution", nil, &found)
	out := make([]environments.Action, len(found))
	for i, a := range found {
		out[i] = environments.Action(a)
	}
	return out, err
}

func (e *environment) Check(ctx context.Context) error {
	var out struct {
		Memory int64 `json:"memory"`
	}
	if err := e.ask(ctx, "env_check", nil, &out); err != nil {
		return err
	}
	e.memory = out.Memory
	return nil
}

func (e *environment) Call(ctx context.Context, method string, arguments json.RawMessage) (out json.RawMessage, err error) {
	err = e.ask(ctx, "env_call", action{Name: method, Arguments: arguments}, &out)
	return out, err
}

// Memory is what the worker and its children hold, in bytes, as of the last reset or check.
func (e *environment) Memory() int64 { return e.memory }

func (e *environment) Close() error {
	if err := e.worker.Close(); err != nil {
		return clear(e.name, "close", err)
	}
	return nil
}
