package httptool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

// document is an OpenAPI document of version 3.0 or 3.1. What a request needs is read: servers, paths, parameters, JSON bodies, and
// references within the document. Security schemes are not: the job gives headers.
type document struct{ root map[string]any }

func parseDocument(data []byte) (*document, error) {
	v, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("the document is neither JSON nor YAML: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the document is neither JSON nor YAML: what stands there is no object")
	}
	version := fmt.Sprint(root["openapi"])
	if !strings.HasPrefix(version, "3.") {
		return nil, fmt.Errorf("the document's key openapi is %q; versions 3.0 and 3.1 can be read", version)
	}
	return &document{root}, nil
}

// server is the URL of the first server, with the defaults of its variables.
func (d *document) server() string {
	servers, _ := d.root["servers"].([]any)
	if len(servers) == 0 {
		return "/"
	}
	first := object(servers[0])
	text := str(first["url"])
	for name, v := range object(first["variables"]) {
		text = strings.ReplaceAll(text, "{"+name+"}", str(object(v)["default"]))
	}
	return text
}

// tools are the document's operations, by path and method. What is not supported is the tool's error, so that a job can leave it out.
// given tells which parameters the job itself gives.
func (d *document) tools(given func(in, name string) bool) ([]*tool, error) {
	var made []*tool
	paths := object(d.root["paths"])
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item, err := d.follow(paths[path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, method := range methods {
			op := object(item[strings.ToLower(method)])
			if op == nil {
				continue
			}
			t := &tool{spec: tools.Spec{Name: operationName(op, method, path), Description: description(op)}, method: method, path: path}
			if t.err = d.operation(t, item, op, given); t.err != nil {
				t.err = fmt.Errorf("openapi: %s %s: %w", method, path, t.err)
			}
			if slices.ContainsFunc(made, func(other *tool) bool { return other.spec.Name == t.spec.Name }) {
				return nil, fmt.Errorf("two operations are named %q; give one another operationId", t.spec.Name)
			}
			made = append(made, t)
		}
	}
	if len(made) == 0 {
		return nil, errors.New("the document has no operations")
	}
	return made, nil
}

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

func operationName(op map[string]any, method, path string) string {
	clean := func(name string) string { return strings.Trim(notInName.ReplaceAllString(name, "_"), "_") }
	return wording.AsName(cmp.Or(clean(str(op["operationId"])), clean(strings.ToLower(method)+path)))
}

func description(op map[string]any) string {
	parts := []string{strings.TrimSpace(str(op["summary"])), strings.TrimSpace(str(op["description"]))}
	if parts[0] == parts[1] {
		parts = parts[:1]
	}
	if parts[0] != "" && !strings.HasSuffix(parts[0], ".") {
		parts[0] += "."
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// operation reads parameters and body into one schema.
func (d *document) operation(t *tool, item, op map[string]any, given func(in, name string) bool) error {
	if op["servers"] != nil || item["servers"] != nil {
		return errors.New("servers of its own are not supported")
	}
	properties, required := map[string]any{}, []string{}
	parameters, err := d.parameters(item, op)
	if err != nil {
		return err
	}
	for _, p := range parameters {
		name, in := str(p["name"]), str(p["in"])
		if in == "header" && slices.Contains([]string{"accept", "content-type", "authorization"}, strings.ToLower(name)) || given(in, name) {
			continue // OpenAPI says that such headers are ignored
		}
		if properties[name] != nil {
			return fmt.Errorf("two parameters are named %q, which is not supported", name)
		}
		a, schema, err := d.parameter(p)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
		t.arguments, properties[name] = append(t.arguments, a), schema
		if p["required"] == true || in == "path" {
			required = append(required, name)
		}
	}
	for _, name := range placeholders(t.path) {
		if !t.takes(name) {
			return fmt.Errorf("the path has {%s}, and no parameter of this name", name)
		}
	}
	if required, err = d.body(t, op, properties, required); err != nil {
		return err
	}
	slices.Sort(required)
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	t.spec.Parameters, err = json.Marshal(schema)
	return err
}

// parameters are those of the operation, then those of its path that it does not say anew.
func (d *document) parameters(item, op map[string]any) ([]map[string]any, error) {
	var out []map[string]any
	for _, from := range []any{op["parameters"], item["parameters"]} {
		list, _ := from.([]any)
		for _, v := range list {
			p, err := d.follow(v)
			if err != nil {
				return nil, err
			}
			same := func(q map[string]any) bool { return q["name"] == p["name"] && q["in"] == p["in"] }
			if !slices.ContainsFunc(out, same) {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// styles are the ways of writing parameters that are supported: the defaults of OpenAPI.
var styles = map[string]string{"path": "simple", "query": "form", "header": "simple"}

func (d *document) parameter(p map[string]any) (argument, map[string]any, error) {
	in := str(p["in"])
	style := styles[in]
	switch {
	case style == "":
		return argument{}, nil, fmt.Errorf("its place %q is not supported; path, query and header are", in)
	case p["content"] != nil:
		return argument{}, nil, errors.New("content in a parameter is not supported; schema is")
	case p["style"] != nil && p["style"] != style:
		return argument{}, nil, fmt.Errorf("style %v in %s is not supported; %s is", p["style"], in, style)
	}
	schema, err := d.schema(p["schema"])
	if err != nil {
		return argument{}, nil, err
	}
	if schema["type"] == "object" || schema["properties"] != nil {
		return argument{}, nil, errors.New("an object outside the body is not supported")
	}
	if text := str(p["description"]); text != "" {
		schema["description"] = text
	}
	return argument{name: str(p["name"]), in: in, explode: p["explode"] != false}, schema, nil
}

// body adds the JSON body to the arguments: its members where it is required, an object of these members alone, and no parameter has
// their names, else as one argument "body".
func (d *document) body(t *tool, op, properties map[string]any, required []string) ([]string, error) {
	if op["requestBody"] == nil {
		return required, nil
	}
	body, err := d.follow(op["requestBody"])
	if err != nil {
		return nil, err
	}
	content := object(body["content"])
	kinds := slices.Sorted(maps.Keys(content))
	media := func(kind string) string { return strings.TrimSpace(strings.Split(kind, ";")[0]) }
	at := slices.IndexFunc(kinds, func(k string) bool { return media(k) == "application/json" })
	if at < 0 {
		at = slices.IndexFunc(kinds, func(k string) bool { return strings.HasSuffix(media(k), "+json") })
	}
	if at < 0 {
		if body["required"] != true {
			return required, nil
		}
		return nil, fmt.Errorf("a body of type %s is not supported; application/json is", strings.Join(kinds, ", "))
	}
	if t.kind = kinds[at]; strings.Contains(t.kind, "*") { // application/*+json is a range of types
		t.kind = "application/json"
	}
	schema, err := d.schema(object(content[kinds[at]])["schema"])
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	members, _ := schema["properties"].(map[string]any)
	clash := slices.ContainsFunc(slices.Collect(maps.Keys(members)), func(name string) bool { return properties[name] != nil })
	open := schema["additionalProperties"] != nil && schema["additionalProperties"] != false
	if t.members = len(members) > 0 && !clash && !open && body["required"] == true; t.members {
		maps.Copy(properties, members)
		names, _ := schema["required"].([]any)
		for _, name := range names {
			required = append(required, str(name))
		}
		return required, nil
	}
	if t.body = "body"; properties[t.body] != nil {
		return nil, errors.New(`a parameter "body" beside a body that is no object is not supported`)
	}
	properties[t.body] = schema
	if body["required"] == true {
		required = append(required, t.body)
	}
	return required, nil
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func str(v any) string {
	s, _ := v.(string)
	return s
}
