package openenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// defaultTexts are the fields that hold an observation's text where a job does not say which does: the first of them that is a string.
var defaultTexts = []string{"message", "text", "content", "result", "observation", "prompt"}

// texter makes what an agent sees of an observation, which is any object.
type texter struct {
	path     []string // to the text; nil: defaultTexts
	template *template.Template
	image    []string
}

// functions are what templates may call: json writes any value, and value a text that is JSON as it is, such as a number.
var functions = template.FuncMap{
	"json": func(v any) (string, error) {
		data, err := wording.JSON(v)
		return string(data), err
	},
	"value": func(text string) (string, error) {
		data, err := wording.JSON(valueOf(text))
		return string(data), err
	},
}

// valueOf is the value of a text that is JSON, and the text itself of any other.
func valueOf(text string) any {
	var v any
	if trimmed := []byte(strings.TrimSpace(text)); json.Valid(trimmed) && decode(trimmed, &v) == nil {
		return v
	}
	return text
}

func newTexter(text, image string) (t texter, err error) {
	switch {
	case strings.Contains(text, "{{"):
		if t.template, err = template.New("text").Funcs(functions).Option("missingkey=error").Parse(text); err != nil {
			return t, fmt.Errorf("text: %w", err)
		}
	case text != "":
		t.path = strings.Split(text, ".")
	}
	if image != "" {
		t.image = strings.Split(image, ".")
	}
	return t, nil
}

// observation reads one.
func (t texter) observation(raw json.RawMessage) (environments.Observation, error) {
	var v any
	if err := decode(raw, &v); err != nil {
		return nil, fmt.Errorf("the observation cannot be read: %w", err)
	}
	text, err := t.write(v)
	if err != nil {
		return nil, err
	}
	var out environments.Observation
	if text != "" {
		out = environments.Text(text)
	}
	images, err := t.images(v)
	return append(out, images...), err
}

func (t texter) write(v any) (string, error) {
	switch {
	case t.template != nil:
		var b strings.Builder
		if err := t.template.Execute(&b, v); err != nil {
			return "", fmt.Errorf("text: %w", err)
		}
		return b.String(), nil
	case t.path != nil:
		found, err := at(v, t.path)
		if err != nil {
			return "", fmt.Errorf("text: %w", err)
		}
		return plain(found)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return plain(v)
	}
	if result, ok := fields["result"].(map[string]any); ok { // of an MCP tool
		if text, ok := mcpText(result); ok {
			return text, nil
		}
	}
	for _, name := range defaultTexts {
		if text, ok := fields[name].(string); ok {
			return text, nil
		}
	}
	fields = maps.Clone(fields)
	if empty, ok := fields["metadata"].(map[string]any); ok && len(empty) == 0 {
		delete(fields, "metadata")
	}
	return plain(fields)
}

// images are that of the job's path, and those of our own server and of MCP results.
func (t texter) images(v any) (out environments.Observation, err error) {
	if t.image != nil {
		found, err := at(v, t.image)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		text, ok := found.(string)
		if !ok {
			return nil, fmt.Errorf("image: %s is no string", strings.Join(t.image, "."))
		}
		return environments.Observation{{Type: "image", Image: imageURL(text, "")}}, nil
	}
	fields, _ := v.(map[string]any)
	list, _ := fields["images"].([]any)
	for _, e := range list {
		if text, ok := e.(string); ok && isURL(text) {
			out = append(out, trajectory.Part{Type: "image", Image: text})
		}
	}
	result, _ := fields["result"].(map[string]any)
	items, _ := result["content"].([]any)
	for _, e := range items {
		item, _ := e.(map[string]any)
		if data, ok := item["data"].(string); ok && item["type"] == "image" {
			kind, _ := item["mimeType"].(string)
			out = append(out, trajectory.Part{Type: "image", Image: imageURL(data, kind)})
		}
	}
	return out, nil
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "data:") || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

func imageURL(text, kind string) string {
	if isURL(text) {
		return text
	}
	if kind == "" {
		kind = "image/png"
	}
	return "data:" + kind + ";base64," + text
}

// mcpText is the text of the result of an MCP tool.
func mcpText(result map[string]any) (string, bool) {
	items, ok := result["content"].([]any)
	if !ok {
		return "", false
	}
	var texts []string
	for _, e := range items {
		item, _ := e.(map[string]any)
		if text, ok := item["text"].(string); ok {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n"), true
}

// at follows a path of names and indexes.
func at(v any, path []string) (any, error) {
	for i, name := range path {
		switch here := v.(type) {
		case map[string]any:
			next, ok := here[name]
			if !ok {
				return nil, fmt.Errorf("the observation has no %q%s; there are %s", strings.Join(path[:i+1], "."), wording.DidYouMean(name, slices.Sorted(maps.Keys(here))),
					clip(strings.Join(slices.Sorted(maps.Keys(here)), ", ")))
			}
			v = next
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(here) {
				return nil, fmt.Errorf("the observation has no %q: %s is a list of %d", strings.Join(path[:i+1], "."), strings.Join(path[:i], "."), len(here))
			}
			v = here[n]
		default:
			return nil, fmt.Errorf("the observation has no %q: %s is neither an object nor a list", strings.Join(path[:i+1], "."), strings.Join(path[:i], "."))
		}
	}
	return v, nil
}

// plain is a string as it is, and JSON of anything else.
func plain(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	data, err := wording.JSON(v)
	return string(data), err
}

// decode keeps numbers as they were written.
func decode(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("null")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// actioner makes the action of a text, which is an object.
type actioner struct {
	field    string
	types    []string // of the field, where the server says them
	template *template.Template
	schema   json.RawMessage // of the whole object: the agent writes it as a call's arguments
	mcp      bool            // the action's schema is that of MCP's call_tool, or says nothing
}

func newActioner(c config, raw json.RawMessage) (a actioner, err error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return a, fmt.Errorf("the server's schema of an action cannot be read: %w", err)
		}
	}
	delete(s.Properties, "metadata") // of every action
	names := slices.Sorted(maps.Keys(s.Properties))
	a.mcp = slices.Contains(names, "tool_name") && slices.Contains(names, "arguments") || len(raw) > 0 && len(names) == 0
	switch {
	case strings.Contains(c.Action, "{{"):
		if a.template, err = template.New("action").Funcs(functions).Option("missingkey=error").Parse(c.Action); err != nil {
			return a, fmt.Errorf("action: %w", err)
		}
		_, err = a.write("a \"text\" \\ of\nlines") // what an agent writes must not break it
		return a, err
	case c.Action == everything || c.Action == "" && len(names) > 1 && !a.mcp:
		if len(raw) == 0 {
			return a, errors.New("action: the server has no schema of its actions; name the field that takes the agent's text, or write a template")
		}
		a.schema, err = arguments(raw)
		return a, err
	case c.Action == "" && len(names) == 1:
		a.field = names[0]
	case c.Action == "" && a.mcp: // the tools are the actions
		return a, nil
	case c.Action == "":
		return a, errors.New("action: the server has no schema of its actions; name the field that takes the agent's text, or write a template")
	default:
		a.field = c.Action
		if len(raw) > 0 && !slices.Contains(names, c.Action) {
			return a, fmt.Errorf("action: the server's actions have no field %q%s; there are %s", clip(c.Action), wording.DidYouMean(c.Action, names), clip(strings.Join(names, ", ")))
		}
		for _, name := range s.Required {
			if name != c.Action && name != "metadata" {
				return a, fmt.Errorf("action: the server's actions need the field %q too; write a template such as {\"%s\": {{json .}}, \"%s\": …}, or %q for the whole object", name, clip(c.Action), name, everything)
			}
		}
	}
	a.types = typesOf(s.Properties[a.field])
	return a, nil
}

// arguments is the schema of an action as that of a tool's arguments, without the metadata that every action may have.
func arguments(raw json.RawMessage) (json.RawMessage, error) {
	var v map[string]any
	if err := decode(raw, &v); err != nil {
		return nil, err
	}
	if properties, ok := v["properties"].(map[string]any); ok {
		delete(properties, "metadata")
	}
	delete(v, "title")
	data, err := wording.JSON(v)
	if err == nil {
		_, err = tools.ParseSchema(data)
	}
	return data, err
}

// typesOf are the types of JSON that a schema allows.
func typesOf(raw json.RawMessage) []string {
	var s struct {
		Type  any               `json:"type"`
		AnyOf []json.RawMessage `json:"anyOf"`
	}
	_ = json.Unmarshal(raw, &s) // the server checks its actions itself
	var out []string
	switch t := s.Type.(type) {
	case string:
		out = append(out, t)
	case []any:
		for _, e := range t {
			if name, ok := e.(string); ok {
				out = append(out, name)
			}
		}
	}
	for _, sub := range s.AnyOf {
		out = append(out, typesOf(sub)...)
	}
	return out
}

// write makes an action. A text that is no value of the field's type is sent as it is: the server says what it expects.
func (a actioner) write(text string) (json.RawMessage, error) {
	if a.template != nil {
		var b strings.Builder
		if err := a.template.Execute(&b, text); err != nil {
			return nil, fmt.Errorf("action: %w", err)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(b.String()), &object); err != nil {
			return nil, fmt.Errorf("action: the template made no JSON object (%w): %s; write the text as {{json .}}, or as {{value .}} where it may be a number", err, clip(b.String()))
		}
		return json.RawMessage(b.String()), nil
	}
	var value any = text
	if len(a.types) > 0 && !slices.Contains(a.types, "string") {
		value = valueOf(text)
	}
	return wording.JSON(map[string]any{a.field: value})
}
