package job

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/algorithms"
)

// decodeCustom reads the values that are more than a struct, a list or a scalar, and reports whether v is one.
func decodeCustom(d *decoder, n *yaml.Node, v any, path string) bool {
	switch v := v.(type) {
	case *Reward:
		decodeReward(d, n, v, path)
	case *Tool:
		decodeTool(d, n, v, path)
	case *Sources:
		decodeSources(d, n, v, path)
	case *Report:
		decodeReport(d, n, v, path)
	case *algorithms.Choice:
		decodeChoice(d, n, v, path)
	default:
		return false
	}
	return true
}

func decodeReward(d *decoder, n *yaml.Node, r *Reward, path string) {
	*r = Reward{Weight: 1}
	if n.Kind == yaml.ScalarNode {
		r.Name = d.scalars.text(n, path)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.found.fail(n, "%s: %s, allowed is a name, or {name: NAME, weight: 1, parameter: value}", path, kindName(n))
		return
	}
	named := false
	d.mapping(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		switch key.Value {
		case "name":
			r.Name, named = d.scalars.text(value, at), true
		case "weight":
			r.Weight = d.scalars.number(value, at, limits{})
		default:
			if r.Params == nil {
				r.Params = map[string]any{}
			}
			r.Params[key.Value] = d.any(value, at, 0)
		}
	})
	if !named {
		d.found.fail(n, "%s: the key name is missing; write a name, or {name: NAME, weight: 1, parameter: value}", path)
	}
}

// decodeChoice reads an estimator or a loss: a name, or {name: NAME, key: value}. Package algorithms knows the keys.
func decodeChoice(d *decoder, n *yaml.Node, c *algorithms.Choice, path string) {
	before := len(d.found.problems)
	v := d.any(n, path, 0)
	if len(d.found.problems) > before || v == nil {
		return
	}
	data, err := json.Marshal(v)
	if err == nil {
		err = c.UnmarshalJSON(data)
	}
	if err != nil {
		d.found.fail(n, "%s: %s", path, strings.TrimPrefix(err.Error(), "algorithms: "))
	}
}

// Label is what the reward is called in metrics: its parameter as, or its name.
func (r Reward) Label() string {
	if as, ok := r.Params["as"].(string); ok {
		return as
	}
	return r.Name
}

func (r *Reward) encode() map[string]any {
	out := map[string]any{"name": r.Name, "weight": r.Weight}
	for k, v := range r.Params {
		out[k] = v
	}
	return out
}

// MarshalJSON writes the form that the job file has.
func (r Reward) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode()) }

// customSchema is the JSON schema of the same values.
func customSchema(v any) (map[string]any, bool) {
	key := func(kind any, doc string) map[string]any { return map[string]any{"type": kind, "description": doc} }
	named := map[string]any{"type": "object", "required": []any{"name"}, "properties": map[string]any{
		"name": key("string", "an estimator or a loss: docs/algorithms.md has them, with the further keys that each takes"),
	}}
	oneOf := map[string]any{"oneOf": []any{map[string]any{"type": "string"}, named}}
	switch v.(type) {
	case *Reward:
		weight := key("number", "its share of the sum of all rewards")
		weight["default"] = 1
		named["properties"] = map[string]any{
			"name": key("string", "a reward of docs/rewards.md, or a function of the file that python names; further keys are its own parameters"), "weight": weight,
			"as": key("string", "another name in metrics, which a reward that is given twice needs"), "python": key("string", "a Python file whose function name carries @reward"),
		}
		return oneOf, true
	case *Tool:
		return map[string]any{"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "object", "properties": map[string]any{
			"name":   key("string", "a tool of the program: agentfly tools list names them; further keys are its own parameters. This, python, mcp or http"),
			"python": key("string", "a Python file whose functions carry @tool"), "mcp": key("object", "an MCP server: {command: […]} or {url: …}, see docs/tools-mcp.md"),
			"http": key("object", "an HTTP service: {url: …} or {openapi: …}, see docs/tools-http.md"), "only": key("array", "of python, mcp and http: names of the tools that are taken; left out: all"),
			"timeout": key("number", "longest time of a call (s); left out: rollout.tool_timeout"), "max_tokens": key("integer", "longest observation (tokens); left out: rollout.tool_tokens"),
			"concurrency": key("integer", "calls at once; 0: any number"), "rate": key("number", "calls a second; 0: any number"),
			"retries": key("integer", "further attempts of a call that broke, of a tool that says that it is idempotent"), "cache": key("boolean", "results are kept for the same arguments, of a tool that says that it is deterministic"),
			"stateful":      key("boolean", "of mcp and http: whether later calls depend on earlier ones; left out: as readOnlyHint or the method says, see docs/trees.md"),
			"deterministic": key("boolean", "of mcp and http: the same arguments give the same result; of stateful tools, the same calls in the same order do"),
		}}}}, true
	case *Sources:
		return sourcesSchema(), true
	case *Report:
		return reportSchema(), true
	case *algorithms.Choice:
		return oneOf, true
	}
	return nil, false
}
