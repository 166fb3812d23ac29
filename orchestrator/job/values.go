package job

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/algorithms"
)

// decodeCustom reads the values that are more than a struct, a list or a scalar, and reports whether v is one.
func (d *decoder) decodeCustom(n *yaml.Node, v any, path string) bool {
	switch v := v.(type) {
	case *Reward:
		d.reward(n, v, path)
	case *Tool:
		d.tool(n, v, path)
	case *Sources:
		d.sources(n, v, path)
	case *algorithms.Choice:
		d.choice(n, v, path)
	default:
		return false
	}
	return true
}

func (d *decoder) reward(n *yaml.Node, r *Reward, path string) {
	*r = Reward{Weight: 1}
	if n.Kind == yaml.ScalarNode {
		r.Name = d.text(n, path)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s: %s, allowed is a name, or {name: NAME, weight: 1, parameter: value}", path, kindName(n))
		return
	}
	named := false
	d.mapping(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		switch key.Value {
		case "name":
			r.Name, named = d.text(value, at), true
		case "weight":
			r.Weight = d.number(value, at, limits{})
		default:
			if r.Params == nil {
				r.Params = map[string]any{}
			}
			r.Params[key.Value] = d.any(value, at, 0)
		}
	})
	if !named {
		d.fail(n, "%s: the key name is missing; write a name, or {name: NAME, weight: 1, parameter: value}", path)
	}
}

// choice reads an estimator or a loss: a name, or {name: NAME, key: value}. Package algorithms knows the keys.
func (d *decoder) choice(n *yaml.Node, c *algorithms.Choice, path string) {
	before := len(d.problems)
	v := d.any(n, path, 0)
	if len(d.problems) > before || v == nil {
		return
	}
	data, err := json.Marshal(v)
	if err == nil {
		err = c.UnmarshalJSON(data)
	}
	if err != nil {
		d.fail(n, "%s: %s", path, strings.TrimPrefix(err.Error(), "algorithms: "))
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
	named := map[string]any{"type": "object", "required": []any{"name"}, "properties": map[string]any{"name": map[string]any{"type": "string"}}}
	oneOf := map[string]any{"oneOf": []any{map[string]any{"type": "string"}, named}}
	switch v.(type) {
	case *Reward:
		named["properties"] = map[string]any{"name": map[string]any{"type": "string"}, "weight": map[string]any{"type": "number", "default": 1}}
		return oneOf, true
	case *Tool:
		return map[string]any{"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "object"}}}, true
	case *Sources:
		return sourcesSchema(), true
	case *algorithms.Choice:
		return oneOf, true
	}
	return nil, false
}
