package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// Schema is the part of JSON Schema that describes tool arguments. Keywords beyond it, oneOf, allOf, $ref and const
// among them, are ignored when a schema is read, so that Check refuses no value for them; the text that the model sees
// is the tool's own (Spec.Parameters), never this reading of it.
type Schema struct {
	Types       []string   // object array string number integer boolean null; empty is any
	Description string     //
	Enum        []any      // as decoded from JSON; empty is no restriction
	Properties  []Property // of an object, in the order in which they were written
	Required    []string   //
	Closed      bool       // additionalProperties is false
	Values      *Schema    // additionalProperties is a schema: of the properties that are not listed
	Items       *Schema    // of an array; nil: its elements are not checked
	AnyOf       []*Schema  //
}

// Property is a named member of an object.
type Property struct {
	Name   string
	Schema *Schema
}

// maxSchemaDepth bounds the nesting of schemas and of checked values.
const maxSchemaDepth = 64

// ParseSchema reads a JSON schema.
func ParseSchema(data []byte) (*Schema, error) {
	s := new(Schema)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("tools: schema: %w", err)
	}
	return s, nil
}

type schemaJSON struct {
	Type                 json.RawMessage `json:"type,omitempty"`
	Description          string          `json:"description,omitempty"`
	Enum                 []any           `json:"enum,omitempty"`
	Properties           json.RawMessage `json:"properties,omitempty"`
	Required             []string        `json:"required,omitempty"`
	AdditionalProperties json.RawMessage `json:"additionalProperties,omitempty"`
	Items                json.RawMessage `json:"items,omitempty"`
	AnyOf                []*Schema       `json:"anyOf,omitempty"`
}

// UnmarshalJSON keeps the order of the properties. The schema true allows any value.
func (s *Schema) UnmarshalJSON(data []byte) error {
	switch b := bytes.TrimSpace(data); {
	case string(b) == "true":
		*s = Schema{}
		return nil
	case len(b) == 0 || b[0] != '{':
		return fmt.Errorf("a schema must be a JSON object, got %s", wording.Clip(string(data), 40))
	}
	var in schemaJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = Schema{Description: in.Description, Enum: in.Enum, Required: in.Required, AnyOf: in.AnyOf}
	if len(in.Type) > 0 {
		if in.Type[0] != '[' {
			in.Type = slices.Concat([]byte("["), in.Type, []byte("]"))
		}
		if err := json.Unmarshal(in.Type, &s.Types); err != nil {
			return fmt.Errorf("type must be a name or a list of names: %w", err)
		}
	}
	switch extra := string(bytes.TrimSpace(in.AdditionalProperties)); extra {
	case "", "true", "null":
	case "false":
		s.Closed = true
	default:
		s.Values = new(Schema)
		if err := json.Unmarshal(in.AdditionalProperties, s.Values); err != nil {
			return fmt.Errorf("additionalProperties: %w", err)
		}
	}
	if items := string(in.Items); items != "" && items[0] != '[' && items != "false" { // of a tuple, whose items are a list or end with prefixItems, no element is checked
		if err := json.Unmarshal(in.Items, &s.Items); err != nil {
			return fmt.Errorf("items: %w", err)
		}
	}
	if len(in.Properties) == 0 || string(in.Properties) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(in.Properties))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("properties must be an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		p := Property{Name: name.(string), Schema: new(Schema)}
		if err := d.Decode(p.Schema); err != nil {
			return fmt.Errorf("property %q: %w", p.Name, err)
		}
		s.Properties = append(s.Properties, p)
	}
	return nil
}

// MarshalJSON writes the schema with its properties in order.
func (s *Schema) MarshalJSON() ([]byte, error) {
	out := schemaJSON{Description: s.Description, Enum: s.Enum, Required: s.Required, AnyOf: s.AnyOf}
	var err error
	switch len(s.Types) {
	case 0:
	case 1:
		out.Type, err = json.Marshal(s.Types[0])
	default:
		out.Type, err = json.Marshal(s.Types)
	}
	if err != nil {
		return nil, err
	}
	if s.Closed {
		out.AdditionalProperties = json.RawMessage("false")
	} else if s.Values != nil {
		if out.AdditionalProperties, err = json.Marshal(s.Values); err != nil {
			return nil, err
		}
	}
	if s.Items != nil {
		if out.Items, err = json.Marshal(s.Items); err != nil {
			return nil, err
		}
	}
	if s.Properties != nil {
		var b bytes.Buffer
		b.WriteByte('{')
		for i, p := range s.Properties {
			if i > 0 {
				b.WriteByte(',')
			}
			name, err := json.Marshal(p.Name)
			if err != nil {
				return nil, err
			}
			value, err := json.Marshal(p.Schema)
			if err != nil {
				return nil, err
			}
			b.Write(name)
			b.WriteByte(':')
			b.Write(value)
		}
		b.WriteByte('}')
		out.Properties = b.Bytes()
	}
	return json.Marshal(out)
}

// Usage writes the arguments object as a person would: {"expression": string, "digits": integer (optional)}.
func (s *Schema) Usage() string {
	if len(s.Properties) == 0 {
		return "{}"
	}
	var b strings.Builder
	for i, p := range s.Properties {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q: %s", p.Name, p.Schema.kind())
		if !slices.Contains(s.Required, p.Name) {
			b.WriteString(" (optional)")
		}
	}
	return "{" + b.String() + "}"
}

const anyValue = "any value" // the kind of a schema that names none

// kind names what a value must be: "string", "list of integer", "one of "+", "-"".
func (s *Schema) kind() string {
	kinds := make([]string, len(s.AnyOf))
	for i, o := range s.AnyOf {
		kinds[i] = o.kind()
	}
	says := func(kind string) bool { return kind != anyValue }
	switch {
	case len(s.Enum) > 0:
		return "one of " + joinJSON(s.Enum)
	case slices.ContainsFunc(kinds, says): // else they say more of what the types name
		return strings.Join(kinds, " or ")
	case len(s.Types) == 0:
		return anyValue
	case len(s.Types) > 1:
		return strings.Join(s.Types, " or ")
	case s.Types[0] == "array" && s.Items != nil:
		return "list of " + s.Items.kind()
	case s.Types[0] == "array":
		return "list"
	case s.Types[0] == "object" && len(s.Properties) > 0:
		return s.Usage()
	default:
		return s.Types[0]
	}
}

func joinJSON(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte(fmt.Sprint(v))
		}
		out[i] = string(b)
	}
	return strings.Join(out, ", ")
}
