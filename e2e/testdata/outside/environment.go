package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

var newEnvironments = []agentfly.Option{
	agentfly.WithEnvironment(environments.Kind{Name: "steps", Description: "three steps to a door", New: newSteps}),
	agentfly.WithEnvironmentFactory("path", "a path of the job's length", newPath),
}

func newSteps(_ context.Context, _ *resources.Resources, params map[string]any) (environments.Source, error) {
	return environments.Simple(environments.Spec{Deterministic: true}, func() environments.Environment { return &path{length: 3} }), resources.Decode(params, &struct{}{})
}

// newPath makes the environments of a job that says environment: {kind: path, params: {length: 2}}.
func newPath(_ context.Context, _ *resources.Resources, params map[string]any) (environments.Source, error) {
	var p struct {
		Length int `json:"length"`
	}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Length < 1 {
		return nil, fmt.Errorf("length is %d; it must be at least 1", p.Length)
	}
	return environments.Simple(environments.Spec{Deterministic: true}, func() environments.Environment { return &path{length: p.Length} }), nil
}

// path is a world of one way: each action "on" goes a step, and the last step is paid.
type path struct{ at, length int }

func (p *path) Reset(context.Context, environments.Start) (environments.Observation, error) {
	p.at = 0
	return environments.Text("you stand at 0"), nil
}

func (p *path) Step(_ context.Context, a environments.Action) (environments.Result, error) {
	if strings.TrimSpace(a.Text) != "on" {
		return environments.Result{Observation: environments.Text("say on"), Failure: trajectory.FailurePolicy}, nil
	}
	p.at++
	r := environments.Result{Observation: environments.Text(fmt.Sprint("you stand at ", p.at))}
	if p.at == p.length {
		r.Reward, r.Terminated, r.Success = 1, true, true
	}
	return r, nil
}

func (p *path) Close() error { return nil }
