package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// source makes environments of servers.
type source struct {
	config  config
	warn    func(string)
	client  *http.Client
	header  http.Header
	timeout time.Duration
	hosts   *hosts
	text    texter
	action  actioner
	reset   resetSchema
	tools   map[string]string // of an MCP environment: our names of its tools → theirs; nil: it is none
	spec    environments.Spec
	warned  sync.Once
}

// resetSchema is what a server may say of the data of a reset.
type resetSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Additional any                        `json:"additionalProperties"`
}

// closed tells whether keys beyond the properties are wrong.
func (r resetSchema) closed() bool { return r.Additional == false }

func (s *source) Spec() environments.Spec { return s.spec }

// Close implements environments.Source.
func (s *source) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// New opens a session on the host that has the fewest of ours, and waits while all of them are full.
func (s *source) New(ctx context.Context, _ string) (environments.Environment, error) {
	l, h, err := s.hosts.open(ctx)
	if err != nil {
		return nil, err
	}
	return &environment{source: s, link: l, host: h}, nil
}

// actions finds out what the agent can do: call the environment's own tools, call one tool whose arguments are the action, or write a text.
func (s *source) actions(ctx context.Context, c config) error {
	wanted := c.MCP == true || c.MCP == "true"
	if wanted || s.action.mcp && c.Action == "" && c.MCP != false && c.MCP != "false" {
		listed, err := s.list(ctx)
		switch {
		case codeOf(err) == codeValidation && wanted:
			return fmt.Errorf("mcp is true, and the server lists no tools: %w", err)
		case err != nil && codeOf(err) != codeValidation:
			return fmt.Errorf("its tools: %w", err)
		case err == nil && len(listed) > 0:
			s.tools, s.spec.Tools = map[string]string{}, nil
			for _, t := range listed {
				name := wording.AsName(t.Name)
				if _, taken := s.tools[name]; taken || name == "" {
					return fmt.Errorf("its tools %q and %q would both be named %q here", s.tools[name], t.Name, name)
				}
				schema := t.Schema
				if len(schema) == 0 || string(schema) == "null" {
					schema = t.Camel
				}
				if len(schema) == 0 || string(schema) == "null" {
					schema = json.RawMessage(`{"type":"object","properties":{}}`)
				}
				if _, err := tools.ParseSchema(schema); err != nil {
					return fmt.Errorf("its tool %q: %w", t.Name, err)
				}
				s.tools[name] = t.Name
				s.spec.Tools = append(s.spec.Tools, tools.Spec{Name: name, Description: t.Description, Parameters: schema, Stateful: true})
			}
			return nil
		case wanted:
			return errors.New("mcp is true, and the server lists no tools")
		}
	}
	if s.action.schema != nil {
		act := environments.Act()
		act.Parameters = s.action.schema
		s.spec.Tools = []tools.Spec{act}
		return nil
	}
	if s.action.field == "" && s.action.template == nil {
		return errors.New("action: the server's actions have no field but metadata, and it lists no tools; write a template over the agent's text, such as {\"metadata\": {\"text\": {{json .}}}}")
	}
	return nil
}

// listed is a tool of an MCP environment.
type listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Camel       json.RawMessage `json:"inputSchema"` // as MCP names it
}

// list asks a session for its tools, which needs no reset.
func (s *source) list(ctx context.Context) ([]listed, error) {
	opening, cancel := context.WithTimeout(ctx, s.timeout) // a job does not wait at its start until a server has room
	made, err := s.New(opening, "")
	cancel()
	if err != nil {
		return nil, err
	}
	e := made.(*environment)
	defer e.Close()
	o, err := e.observe(ctx, message{"step", json.RawMessage(`{"type":"` + listTools + `"}`)})
	if err != nil {
		return nil, err
	}
	var found struct {
		Tools    []listed `json:"tools"`
		Metadata struct {
			Error any `json:"error"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(o.Observation, &found); err != nil {
		return nil, fmt.Errorf("the server's list of tools cannot be read: %w", err)
	}
	if found.Metadata.Error != nil {
		return nil, fmt.Errorf("the server cannot list its tools: %s", clip(fmt.Sprint(found.Metadata.Error)))
	}
	return found.Tools, nil
}

// environment is one session.
type environment struct {
	source *source
	link   *link
	host   *host
	total  float64 // of the episode's rewards
}

var (
	_ environments.Checker = (*environment)(nil)
	_ environments.Caller  = (*environment)(nil)
	_ environments.Tasker  = (*source)(nil)
)

// ask sends a message within the time for one, and names the host in what goes wrong.
func (e *environment) ask(ctx context.Context, m message, want string) (message, error) {
	timed, cancel := context.WithTimeout(ctx, e.source.timeout)
	defer cancel()
	answer, err := e.link.ask(timed, m)
	switch {
	case err == nil && answer.Type != want:
		err = fmt.Errorf("it answered %q to %q", answer.Type, m.Type)
		e.link.cut(err)
	case err != nil && timed.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("it did not answer %q within %v (timeout_s)", m.Type, e.source.timeout)
	}
	if err != nil {
		return answer, fmt.Errorf("%s: %w", e.host.url, err)
	}
	return answer, nil
}

// observe sends a message that an observation answers.
func (e *environment) observe(ctx context.Context, m message) (o observed, err error) {
	answer, err := e.ask(ctx, m, "observation")
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(answer.Data, &o); err != nil {
		err = fmt.Errorf("%s: its observation cannot be read (%w): %s", e.host.url, err, clip(string(answer.Data)))
		e.link.cut(err)
		return o, err
	}
	return o, nil
}

// Reset implements environments.Environment.
func (e *environment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	data := e.dataOf(s)
	if err := e.source.checkReset(data); err != nil {
		return nil, err
	}
	data["seed"] = s.Seed
	raw, err := wording.JSON(data)
	if err != nil {
		return nil, environments.WrongTask("the task's fields cannot be sent: %v", err)
	}
	e.total = 0
	o, err := e.observe(ctx, message{"reset", raw})
	if codeOf(err) == codeValidation { // the server refuses the data, and its session goes on
		return nil, &environments.TaskError{Text: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	if o.Done {
		return nil, fmt.Errorf("%s: the episode is over with its reset: done is true", e.host.url)
	}
	text, err := e.source.text.observation(o.Observation)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.host.url, err)
	}
	return text, nil
}

// dataOf are the data of a reset: the job's own, and the task's fields. One that belongs to rewards and data is sent where the server's reset names
// it, and one that the job reads unless the reset says that it takes others alone.
func (e *environment) dataOf(s environments.Start) map[string]any {
	data := maps.Clone(e.source.config.Reset)
	if data == nil {
		data = map[string]any{}
	}
	reset := e.source.reset
	for key, v := range s.Task.Fields {
		if key == "seed" { // Reset's own
			continue
		}
		_, named := reset.Properties[key]
		if named || !s.Spare(key) || !s.Reserves(key) && !reset.closed() {
			data[key] = v
		}
	}
	return data
}

// checkReset refuses keys that the server says it does not know. Where it says nothing, it may drop them in silence: that is said once.
func (s *source) checkReset(data map[string]any) error {
	if s.reset.closed() {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if _, ok := s.reset.Properties[key]; !ok {
				known := slices.Sorted(maps.Keys(s.reset.Properties))
				return environments.WrongTask("the environment's reset has no %q%s; it takes %s", key, wording.DidYouMean(key, known), strings.Join(known, ", "))
			}
		}
		return nil
	}
	if len(data) > 0 && s.warn != nil {
		s.warned.Do(func() {
			s.warn(fmt.Sprintf("environment openenv: resets send %s; an OpenEnv server drops what its reset does not take, and does not say so", strings.Join(slices.Sorted(maps.Keys(data)), ", ")))
		})
	}
	return nil
}

// Step implements environments.Environment.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	data, err := e.source.data(a)
	if err != nil {
		return environments.Result{}, err
	}
	o, err := e.observe(ctx, message{"step", data})
	var said *serverError
	if errors.As(err, &said) && (said.Code == codeValidation || said.Code == codeExecution && e.source.config.Raised == policy) {
		return environments.Result{Observation: environments.Text("Error: " + said.text()), Failure: trajectory.FailurePolicy}, nil
	}
	if err != nil {
		return environments.Result{}, err
	}
	r, err := e.source.result(o)
	if err != nil {
		return environments.Result{}, fmt.Errorf("%s: %w", e.host.url, err)
	}
	e.total += r.Reward
	if least := e.source.config.Success; least != nil {
		r.Success = r.Over() && e.total >= *least-1e-9 // of a sum of floats
	}
	return r, nil
}

// data is the action as the server wants it.
func (s *source) data(a environments.Action) (json.RawMessage, error) {
	arguments := a.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	switch {
	case s.tools != nil:
		name, ok := s.tools[a.Name]
		if !ok {
			return nil, fmt.Errorf("the environment has no tool %q", a.Name)
		}
		return wording.JSON(map[string]any{"type": callTool, "tool_name": name, "arguments": arguments})
	case s.action.schema != nil:
		return arguments, nil
	}
	return s.action.write(a.Text)
}

// result reads what a step gave.
func (s *source) result(o observed) (r environments.Result, err error) {
	if r.Reward, err = reward(o.Reward); err != nil {
		return r, err
	}
	var metadata map[string]any
	if err := decode(o.Metadata, &metadata); err != nil {
		return r, fmt.Errorf("the metadata cannot be read: %w", err)
	}
	if inner := struct {
		Metadata map[string]any `json:"metadata"`
	}{}; metadata == nil && decode(o.Observation, &inner) == nil {
		metadata = inner.Metadata // where servers older than 0.10 have it
	}
	cut, _ := metadata["truncated"].(bool)
	if limit, ok := metadata["TimeLimit.truncated"].(bool); ok { // Gymnasium's
		cut = cut || limit
	}
	r.Terminated, r.Truncated = o.Done && !cut, o.Done && cut
	var said *bool
	if data, err := wording.JSON(metadata[ownMetadata]); err == nil {
		var ours own
		if json.Unmarshal(data, &ours) == nil {
			r.Anchor, said = ours.Anchor, ours.Success
			if ours.Failure == policy {
				r.Failure = trajectory.FailurePolicy
			}
		}
	}
	if s.tools != nil {
		if err := toolFailure(o.Observation, &r); err != nil {
			return r, err
		}
	}
	if r.Observation == nil {
		r.Observation, err = s.text.observation(o.Observation)
	}
	delete(metadata, ownMetadata)
	if len(metadata) > 0 {
		r.Info = metadata
	}
	if r.Success = environments.Succeeded(r); said != nil {
		r.Success = *said
	}
	return r, err
}

// reward reads a reward: null is none, and a boolean is 0 or 1. OpenEnv's servers write NaN as null too.
func reward(raw json.RawMessage) (float64, error) {
	switch string(raw) {
	case "", "null", "false":
		return 0, nil
	case "true":
		return 1, nil
	}
	var v float64
	if err := json.Unmarshal(raw, &v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("its reward is no finite number: %s", clip(string(raw)))
	}
	return v, nil
}

// toolFailure reads how a call of an MCP tool failed. What the agent can do better is its own failure; a call that did not reach the tool is not.
func toolFailure(raw json.RawMessage, r *environments.Result) error {
	var o struct {
		Error *struct {
			Type    string `json:"error_type"`
			Message string `json:"message"`
		} `json:"error"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("the observation of a call cannot be read: %w", err)
	}
	if o.Error != nil {
		switch o.Error.Type {
		case "transport_error", "timeout":
			return fmt.Errorf("the call did not get through on the server (%s): %s", o.Error.Type, clip(o.Error.Message))
		}
		r.Failure = trajectory.FailurePolicy
		r.Observation = environments.Text("Error: " + o.Error.Message)
		return nil
	}
	var result struct {
		IsError bool `json:"is_error"`
		Camel   bool `json:"isError"`
	}
	if json.Unmarshal(o.Result, &result) == nil && (result.IsError || result.Camel) {
		r.Failure = trajectory.FailurePolicy
	}
	return nil
}

// Check implements environments.Checker: a connection that broke while nobody used it is of no more use.
func (e *environment) Check(context.Context) error {
	if err := e.link.failed(); err != nil {
		return fmt.Errorf("%s: %w", e.host.url, err)
	}
	return nil
}

// Call implements environments.Caller. The one method is state, the server's own record of the episode.
func (e *environment) Call(ctx context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
	if method != "state" {
		return nil, &environments.CallError{Text: fmt.Sprintf("an OpenEnv environment answers the method state alone, not %q", clip(method))}
	}
	answer, err := e.ask(ctx, message{Type: "state"}, "state")
	return answer.Data, err
}

// Close ends the session.
func (e *environment) Close() error {
	e.link.close()
	e.source.hosts.left(e.host)
	return nil
}
