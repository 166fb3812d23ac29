package python

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python/protocol"
)

// agentFunctions are what an agent of a file consists of.
var agentFunctions = []string{"parse", "observe", "instructions", "stops"}

// declared is a function of a file with what this side makes of it.
type declared struct{ protocol.Declared }

// describe makes functions of what a worker declares. workers is how many of the calls that are not async run at once. The errors are
// lines "LINE: FUNCTION: what, what to do".
func describe(all []protocol.Declared, workers int) (functions []Function, errs []string) {
	for _, d := range all {
		f, err := declared{d}.function(workers)
		if err != nil {
			errs = append(errs, fmt.Sprintf("%d: %s: %v", d.Line, d.Name, err))
			continue
		}
		functions = append(functions, f)
	}
	return functions, errs
}

func (d declared) function(workers int) (Function, error) {
	o, doc := d.Options, parseDocstring(d.Doc)
	f := Function{
		Kind: d.Kind, Name: d.Name, Description: cmp.Or(o.Description, doc.text), Timeout: time.Duration(o.Timeout * float64(time.Second)), MaxTokens: o.MaxTokens,
		MaxLength: o.MaxLength, Stateful: d.Stateful, Terminal: o.Terminal || o.Status == "terminal", Idempotent: o.Idempotent,
		Deterministic: o.Deterministic, Context: slices.Contains(d.Injected, "context"), Environment: o.Environment, Warnings: d.warnings(doc),
	}
	if !d.Async {
		f.Concurrency = workers
	}
	switch {
	case !wording.ValidName(d.Name):
		return f, fmt.Errorf("a name has %s; write name= in the decorator", wording.NameRule)
	case o.Environment != "" && !slices.Contains(d.Injected, "environment"):
		return f, fmt.Errorf("environment=%q: the function has no argument environment, which is what it acts with; add one, or leave the option out", o.Environment)
	case o.Environment != "" && (o.Deterministic || o.Idempotent):
		return f, fmt.Errorf("environment=%q: what acts in an environment is neither deterministic nor idempotent: the same call does something else the next time; leave those out", o.Environment)
	case d.Kind == "agent" && !slices.Contains(agentFunctions, d.Name):
		return f, fmt.Errorf("a function with @agent is one of %s; rename it, or write name= in the decorator", strings.Join(agentFunctions, ", "))
	}
	for _, p := range d.Parameters {
		f.Arguments = append(f.Arguments, p.Name)
	}
	var err error
	f.Parameters, err = d.schema(doc)
	return f, err
}

// warnings say which of AgentFly's options mean something else here, and what of the docstring is not used.
func (d declared) warnings(doc docstring) (out []string) {
	add := func(is bool, text string) {
		if is {
			out = append(out, text)
		}
	}
	o := d.Options
	known := []string{"", "success", "continue", "terminal"}
	add(!slices.Contains(known, o.Status), fmt.Sprintf("status=%q has no meaning here; \"terminal\" ends the trajectory", o.Status))
	add(o.EnvClass, "env_cls: every trajectory makes an instance of its own at its first call, and closes it when it is over")
	add(o.PoolSize > 0, "pool_size is not used: instances are made when a trajectory needs one")
	add(o.ResourceSpec, "resource_spec is not used: there are no resources here; use env_cls, or a prebuilt tool of the job")
	add(o.Backend != "", "backend is not used: workers are processes of this machine")
	add(slices.Contains(d.Injected, "context"), "context has rollout_id, metadata and state; its acquire_resource raises NotImplementedError")
	for _, name := range slices.Sorted(maps.Keys(doc.arguments)) {
		add(d.Kind == "tool" && !d.takes(name), "the docstring describes an argument "+name+", which the function does not have")
	}
	return out
}

// schema is that of the arguments object.
func (d declared) schema(doc docstring) (json.RawMessage, error) {
	if len(d.Options.Schema) > 0 {
		return d.givenSchema()
	}
	properties := object{}
	required := []string{}
	for _, p := range d.Parameters {
		s, err := withDoc(p.Schema, doc.arguments[p.Name])
		if err != nil {
			return nil, fmt.Errorf("the argument %s: %w", p.Name, err)
		}
		properties = append(properties, member{p.Name, s})
		if p.Required {
			required = append(required, p.Name)
		}
	}
	var rest any = d.Open
	if text := string(d.Rest); text != "" && text != "null" && text != "{}" {
		s, err := withDoc(d.Rest, argDoc{})
		if err != nil {
			return nil, err
		}
		rest = s
	}
	return wording.JSON(struct {
		Type       string   `json:"type"`
		Properties object   `json:"properties"`
		Required   []string `json:"required"`
		Rest       any      `json:"additionalProperties"`
	}{"object", properties, required, rest})
}

func (d declared) takes(name string) bool {
	return d.Open || slices.Contains(d.Injected, name) || slices.ContainsFunc(d.Parameters, func(p protocol.Parameter) bool { return p.Name == name })
}

// givenSchema is the one that stands in the decorator, alone or within OpenAI's form of a function.
func (d declared) givenSchema() (json.RawMessage, error) {
	var s struct {
		Type     string `json:"type"`
		Function struct {
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal(d.Options.Schema, &s); err != nil || s.Type != "object" && s.Type != "function" {
		return nil, fmt.Errorf(`schema: it must be a JSON schema with "type": "object"`)
	}
	if s.Type == "function" {
		return s.Function.Parameters, nil
	}
	return d.Options.Schema, nil
}

// docTypes are the types that a docstring may name where the signature has no hint. Of list[str] the list counts.
var docTypes = map[string]string{
	"str": "string", "string": "string", "int": "integer", "integer": "integer", "float": "number", "number": "number",
	"bool": "boolean", "boolean": "boolean", "list": "array", "dict": "object",
}

// withDoc puts the description of an argument into its schema, after its type, and reads the docstrings of dataclasses in it.
func withDoc(schema json.RawMessage, doc argDoc) (json.RawMessage, error) {
	s, err := readObject(schema)
	if err != nil {
		return nil, err
	}
	kind := strings.ToLower(strings.TrimSuffix(doc.kind, ", optional"))
	if at := strings.IndexAny(kind, "[("); at >= 0 {
		kind = kind[:at]
	}
	if kind = docTypes[strings.TrimSpace(kind)]; kind != "" && !s.has("type") && !s.has("anyOf") && !s.has("enum") {
		s = append(object{{"type", json.RawMessage(`"` + kind + `"`)}}, s...)
	}
	if s, err = s.readDocs(); err != nil {
		return nil, err
	}
	if doc.text != "" {
		if err := s.describe(doc.text); err != nil {
			return nil, err
		}
	}
	return wording.JSON(s)
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

func (o object) has(name string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.name == name })
}

// describe sets the description: after the type, where a reader looks for it.
func (o *object) describe(text string) error {
	value, err := wording.JSON(text)
	if err != nil {
		return err
	}
	out := slices.DeleteFunc(slices.Clone(*o), func(m member) bool { return m.name == "description" })
	at := 0
	if len(out) > 0 && out[0].name == "type" {
		at = 1
	}
	*o = slices.Insert(out, at, member{"description", value})
	return nil
}

// readDocs replaces the raw docstrings of dataclasses, at any depth, by descriptions of the object and its properties.
func (o object) readDocs() (object, error) {
	var raw string
	out := object{}
	for _, m := range o {
		switch m.name {
		case "doc":
			if err := json.Unmarshal(m.value, &raw); err != nil {
				return nil, err
			}
			continue
		case "items", "additionalProperties":
			if bytes.HasPrefix(m.value, []byte("{")) {
				v, err := withDoc(m.value, argDoc{})
				if err != nil {
					return nil, err
				}
				m.value = v
			}
		case "anyOf":
			var members []json.RawMessage
			if err := json.Unmarshal(m.value, &members); err != nil {
				return nil, err
			}
			for i := range members {
				v, err := withDoc(members[i], argDoc{})
				if err != nil {
					return nil, err
				}
				members[i] = v
			}
			v, err := wording.JSON(members)
			if err != nil {
				return nil, err
			}
			m.value = v
		}
		out = append(out, m)
	}
	doc := parseDocstring(raw)
	for i, m := range out {
		if m.name != "properties" {
			continue
		}
		properties, err := readObject(m.value)
		if err != nil {
			return nil, err
		}
		for k, p := range properties {
			if properties[k].value, err = withDoc(p.value, doc.arguments[p.name]); err != nil {
				return nil, err
			}
		}
		if out[i].value, err = wording.JSON(properties); err != nil {
			return nil, err
		}
	}
	if doc.text == "" {
		return out, nil
	}
	err := out.describe(doc.text)
	return out, err
}

func readObject(data json.RawMessage) (object, error) {
	if len(data) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("a schema must be a JSON object")
	}
	var o object
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		o = append(o, m)
	}
	return o, nil
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := wording.JSON(m.name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
