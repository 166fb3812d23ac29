package pyenv

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/trajectory"
)

// environment is an object in a worker process.
type environment struct {
	name   string
	worker *python.Environment
	memory int64
	own    time.Duration // that the class itself took for the last request
}

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
	if err != nil && r.Task && op == "env_call" {
		return &environments.CallError{Text: err.Error()}
	}
	if err != nil && r.Task {
		return environments.WrongTask("%s: %v", e.name, err)
	}
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

// start are the arguments of env_reset.
type start struct {
	Seed   int64                `json:"seed"`
	Fields map[string]any       `json:"fields,omitempty"`
	Prompt []trajectory.Message `json:"prompt,omitempty"`
	Data   []string             `json:"data,omitempty"`
	Job    []string             `json:"job,omitempty"`
}

// seedOf is the task's own seed, where it has one that is a number: a task of Tasks is its seed.
func seedOf(s environments.Start) int64 {
	var n json.Number
	if b, err := json.Marshal(s.Task.Fields["seed"]); err == nil && json.Unmarshal(b, &n) == nil {
		if seed, err := strconv.ParseInt(n.String(), 10, 32); err == nil && seed >= 0 {
			return seed
		}
	}
	return s.Seed
}

func (e *environment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	var out struct {
		Observation environments.Observation `json:"observation"`
		Memory      int64                    `json:"memory"`
	}
	err := e.ask(ctx, "env_reset", start{seedOf(s), s.Task.Fields, s.Task.Prompt, s.Data, s.Job}, &out)
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
	Success     *bool                    `json:"success"` // by the parameter success; nil without it
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
	r := environments.Result{
		Observation: out.Observation, Reward: out.Reward, Terminated: out.Terminated, Truncated: out.Truncated, Anchor: out.Anchor, Info: out.Info, Failure: out.Failure,
	}
	if r.Success = environments.Succeeded(r); out.Success != nil {
		r.Success = *out.Success
	}
	return r, err
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

// Kill ends the worker's process at once, as a crash would.
func (e *environment) Kill() { e.worker.Kill() }

func (e *environment) Close() error {
	if err := e.worker.Close(); err != nil {
		return clear(e.name, "close", err)
	}
	return nil
}
