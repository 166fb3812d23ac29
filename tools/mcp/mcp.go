// Package mcp joins tools with the Model Context Protocol: Source makes tools of what a server offers, over stdio or streamable HTTP, and
// Server offers our tools to other programs.
//
// A server over stdio is a process of the job. It is started again when it ends by itself or answers nothing any more; only the calls that
// it was carrying out then fail. It and all that it started are gone when the job's resources are closed. All methods are safe for
// concurrent use; calls of one server run at once.
//
// It does not limit, repeat or cache calls: package tools does, as for every tool.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Source is the factory of {mcp: {…}}: the tools of a server, or of a recording of one.
func Source(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	c, declared, err := parseConfig(r, params)
	if err != nil {
		return nil, err
	}
	if c.Replay != "" {
		from, offers, err := readRecording(c.Replay)
		if err != nil {
			return nil, err
		}
		return makeTools(c, declared, from, offers)
	}
	what := "the MCP server " + c.name() + ", which is not asked"
	if len(c.Command) > 0 { // whole: who agrees must see it
		what = fmt.Sprintf("the MCP server %q, which is not started", c.Command)
	}
	if err := r.Run(what); err != nil {
		return nil, err
	}
	s, err := open(ctx, c, usual, r.Warn)
	if err != nil {
		return nil, err
	}
	r.OnClose(s.Close)
	var to caller = s
	if c.Record != "" {
		recorder, err := newRecorder(c.Record, s, s.first, r.Warn)
		if err != nil {
			return nil, err
		}
		r.OnClose(recorder.Close)
		to = recorder
	}
	return makeTools(c, declared, to, s.first)
}

// tool is one of a server.
type tool struct {
	spec   tools.Spec
	server caller
	name   string // at the server
}

func (t *tool) Spec() tools.Spec { return t.spec }

func (t *tool) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	return t.server.call(ctx, t.name, c.Arguments)
}

func makeTools(c config, d tools.Declared, to caller, offers []offer) ([]tools.Tool, error) {
	if len(offers) == 0 {
		return nil, fmt.Errorf("%s: the server offers no tools", c.name())
	}
	named := map[string]string{}
	out := make([]tools.Tool, 0, len(offers))
	for _, o := range offers {
		name := wording.AsName(c.Prefix + o.Name)
		if other, taken := named[name]; taken {
			return nil, fmt.Errorf("%s: its tools %q and %q would both be called %s; a name has %s", c.name(), other, o.Name, name, wording.NameRule)
		}
		named[name] = o.Name
		spec := tools.Spec{Name: name, Description: o.Description, Parameters: o.Parameters, Idempotent: o.Idempotent, Writes: !o.ReadOnly}
		out = append(out, &tool{d.Of(spec), to, o.Name})
	}
	return out, nil
}

// describe keeps what a server says of a tool. The schema goes to the model with its members in the order of their names, which is what the
// library leaves of it. Two things are mended: the type that every tool's arguments have is filled in where a server leaves it out, and
// properties that are an empty list, as servers in PHP write an empty object, become one.
func describe(t *sdk.Tool) (offer, error) {
	o := offer{Name: t.Name, Description: t.Description}
	if o.Description == "" {
		o.Description = t.Title
	}
	if a := t.Annotations; a != nil {
		o.Idempotent, o.ReadOnly = a.IdempotentHint || a.ReadOnlyHint, a.ReadOnlyHint
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return o, fmt.Errorf("tool %q: its schema cannot be read: %w", t.Name, err)
	}
	schema = bytes.ReplaceAll(schema, []byte(`"properties":[]`), []byte(`"properties":{}`)) // within a text the quotes are escaped
	var members map[string]json.RawMessage
	if err := json.Unmarshal(schema, &members); err != nil {
		return o, fmt.Errorf("tool %q: its schema is no JSON object", t.Name)
	}
	if _, typed := members["type"]; !typed {
		rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(schema)), "{"))
		if rest == "}" || members == nil {
			schema = []byte(`{"type":"object"}`)
		} else {
			schema = []byte(`{"type":"object",` + rest)
		}
	}
	o.Parameters = schema
	return o, nil
}

// jsonObject is a call's arguments, an empty object for none.
func jsonObject(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 {
		return json.RawMessage("{}")
	}
	return arguments
}

var errNoTools = errors.New("mcp: there is no tool to serve")
