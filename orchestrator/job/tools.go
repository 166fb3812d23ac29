package job

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// toolSources are the keys that say where several tools come from.
var toolSources = []string{"http", "mcp", "python"}

const toolForm = "allowed is a name, {name: NAME, parameter: value}, {python: FILE}, {mcp: …} or {http: …}"

func decodeTool(d *decoder, n *yaml.Node, t *Tool, path string) {
	*t = Tool{}
	switch n.Kind {
	case yaml.ScalarNode:
		t.Name = d.scalars.text(n, path)
		return
	case yaml.MappingNode:
	default:
		d.found.fail(n, "%s: %s, %s", path, kindName(n), toolForm)
		return
	}
	d.mapping(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		d.found.at[at] = value
		switch key.Value {
		case "name":
			t.Name = d.scalars.text(value, at)
		case "only":
			t.Only = decodeNames(d, value, at)
		case "timeout":
			t.Limits.Timeout = time.Duration(d.scalars.number(value, at, limits{min: 0, max: 100000, hasMin: true, hasMax: true}) * float64(time.Second))
		case "max_tokens":
			t.Limits.MaxTokens = d.scalars.count(value, at, 1<<20)
		case "concurrency":
			t.Limits.Concurrency = d.scalars.count(value, at, 1<<20)
		case "rate":
			t.Limits.Rate = d.scalars.number(value, at, limits{min: 0, max: 1e6, hasMin: true, hasMax: true})
		case "retries":
			t.Limits.Retries = d.scalars.count(value, at, 100)
		case "cache":
			if b := d.any(value, at, 0); b == true || b == false {
				t.Cache = b == true
			} else {
				d.found.fail(value, "%s: allowed is true or false", at)
			}
		default:
			if slices.Contains(toolSources, key.Value) {
				if t.Source != "" {
					d.found.fail(key, "%s: %s and %s in one entry; make two of it", path, t.Source, key.Value)
				}
				t.Source = key.Value
			}
			if t.Params == nil {
				t.Params = map[string]any{}
			}
			t.Params[key.Value] = d.any(value, at, 0)
		}
	})
	if t.Name != "" && t.Only != nil {
		d.found.fail(n, "%s.only: it chooses among the tools of python, mcp or http; a name is one tool, leave it out", path)
	}
	if (t.Name == "") == (t.Source == "") {
		d.found.fail(n, "%s: exactly one of name, %s says which tool; %s", path, "python, mcp and http", toolForm)
	}
}

func decodeNames(d *decoder, n *yaml.Node, path string) (names []string) {
	switch {
	case n.Kind != yaml.SequenceNode:
		d.found.fail(n, "%s: %s, allowed is a list of names", path, kindName(n))
	case len(n.Content) == 0:
		d.found.fail(n, "%s: the list is empty; name the tools that are taken, or leave it out", path)
	default:
		for i, item := range n.Content {
			names = append(names, d.scalars.text(d.follow(item), path+"."+strconv.Itoa(i)))
		}
	}
	return names
}

// encodeTool is the form that the job file has: a name alone where nothing more is said.
func encodeTool(t Tool) any {
	out := maps.Clone(t.Params)
	if out == nil {
		out = map[string]any{}
	}
	set := func(key string, v any, is bool) {
		if is {
			out[key] = v
		}
	}
	only := make([]any, len(t.Only))
	for i, name := range t.Only {
		only[i] = name
	}
	set("only", only, t.Only != nil)
	set("timeout", t.Limits.Timeout.Seconds(), t.Limits.Timeout > 0)
	set("max_tokens", t.Limits.MaxTokens, t.Limits.MaxTokens > 0)
	set("concurrency", t.Limits.Concurrency, t.Limits.Concurrency > 0)
	set("rate", t.Limits.Rate, t.Limits.Rate > 0)
	set("retries", t.Limits.Retries, t.Limits.Retries > 0)
	set("cache", true, t.Cache)
	if t.Source == "" {
		if len(out) == 0 {
			return t.Name
		}
		out["name"] = t.Name
	}
	return out
}
