package openenv

import (
	"encoding/json"
	"fmt"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/tools"
)

// owner labels what the environments of servers leave outside of this process.
const owner = "openenv"

// offer is what a server has for its clients: a source's environments, with deadlines, and the tools of these.
type offer struct {
	name  string
	bound environments.Source
	spec  environments.Spec
	calls map[string]*tools.Schema // of the source's own tools
	note  func(text string)
}

func newOffer(s environments.Source, o ServerOptions) (*offer, error) {
	out := &offer{name: o.Name, spec: s.Spec(), calls: map[string]*tools.Schema{}, note: o.Note}
	out.bound = environments.Bound(s, environments.Options{Kind: o.Name, Owner: owner, Note: o.Note, ResetTimeout: o.Reset, StepTimeout: o.Step, MaxText: o.MaxText})
	for _, t := range out.spec.Tools {
		schema, err := tools.ParseSchema(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("openenv: the tool %s: %w", t.Name, err)
		}
		out.calls[t.Name] = schema
	}
	return out, nil
}

// checkCall says what is wrong with a call, and what kind of error that is in OpenEnv's words.
func (o *offer) checkCall(name string, arguments json.RawMessage) (kind, text string) {
	schema := o.calls[name]
	if schema == nil {
		return "tool_not_found", fmt.Sprintf("Unknown tool: '%s'", clip(name))
	}
	if err := schema.Check(arguments); err != nil {
		return "invalid_args", err.Error()
	}
	return "", ""
}

// toolList lists the source's tools. OpenEnv's actions and MCP name the schema differently.
func (o *offer) toolList(schema string) []map[string]any {
	out := make([]map[string]any, len(o.spec.Tools))
	for i, t := range o.spec.Tools {
		out[i] = map[string]any{"name": t.Name, "description": t.Description, schema: t.Parameters}
	}
	return out
}
