package job

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
)

// effectiveOf writes the whole job as a job file that reads back as the same.
func effectiveOf(j *Job) ([]byte, error) {
	out, err := yaml.Marshal(effective{j.secrets}.node(reflect.ValueOf(j).Elem(), reflect.StructField{}, ""))
	if err != nil {
		return nil, fmt.Errorf("job: %s: %w", j.path, err)
	}
	return out, nil
}

// effective builds the YAML of the values of a job.
type effective struct{ secrets map[string]string } // by path: what stands in the value's place

// node builds the YAML of one value.
func (e effective) node(v reflect.Value, f reflect.StructField, path string) *yaml.Node {
	if s, ok := e.secrets[path]; ok {
		return text(s)
	}
	switch x := v.Addr().Interface().(type) {
	case *Reward:
		return e.free(x.encode(), path)
	case *Tool:
		return e.free(encodeTool(*x), path)
	case *Report:
		return e.free(x.encode(), path)
	case *Sources:
		return e.sources(*x, path)
	case *algorithms.Config:
		return e.algorithm(x, path)
	}
	null := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return null
		}
		return e.node(v.Elem(), f, path)
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			sub := v.Type().Field(i)
			key := keyOf(sub)
			if key == "" {
				continue
			}
			n.Content = append(n.Content, text(key), e.node(v.Field(i), sub, join(path, key)))
		}
		return n
	case reflect.Slice:
		if v.IsNil() {
			return null
		}
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, e.node(v.Index(i), f, path+"."+strconv.Itoa(i)))
		}
		if v.Len() == 0 {
			n.Style = yaml.FlowStyle
		}
		return n
	case reflect.String:
		if v.String() == "" {
			return null
		}
		return text(v.String())
	}
	return e.free(v.Interface(), path)
}

// algorithm is the block as it was written; `agentfly job effective` prints what it resolves to beside it.
func (e effective) algorithm(c *algorithms.Config, path string) *yaml.Node {
	data, err := json.Marshal(c)
	var m map[string]any
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return text(err.Error())
	}
	if kl, ok := m["kl"].(map[string]any); ok && c.KL != (algorithms.KL{}) { // a coefficient that is left out is refused beside other keys, and 0 is not
		kl["coefficient"] = c.KL.Coefficient
	}
	for k, v := range m {
		if s, ok := v.(map[string]any); ok && len(s) == 0 || v == "" {
			delete(m, k)
		}
	}
	return e.free(m, path)
}

// sources is the YAML of data.train or data.eval.
func (e effective) sources(s Sources, path string) *yaml.Node {
	v := s.encode()
	if one, ok := v.(string); ok {
		_, item := e.secrets[path+".0"]
		_, inside := e.secrets[path+".0.path"]
		if item || inside { // the list that the file had is where the secret stands
			v = []any{map[string]any{"path": one}}
		}
	}
	return e.free(v, path)
}

// free builds the YAML of a value without tags.
func (e effective) free(v any, path string) *yaml.Node {
	if s, ok := e.secrets[path]; ok {
		return text(s)
	}
	switch x := v.(type) {
	case map[string]any:
		if x == nil {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			n.Content = append(n.Content, text(k), e.free(x[k], path+"."+k))
		}
		return n
	case map[string]string:
		if x == nil {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		m := map[string]any{}
		for k, s := range x {
			m[k] = s
		}
		return e.free(m, path)
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i, item := range x {
			n.Content = append(n.Content, e.free(item, path+"."+strconv.Itoa(i)))
		}
		return n
	case string:
		return text(x)
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		return &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	}
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		return text(fmt.Sprint(v))
	}
	return n
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	switch {
	case n.Style == yaml.LiteralStyle && strings.TrimLeftFunc(s, unicode.IsSpace) != s: // yaml.v3 writes a wrong indentation for such a block
		n.Style = yaml.DoubleQuotedStyle
	case n.Style == 0 && (&yaml.Node{Kind: yaml.ScalarNode, Value: s}).ShortTag() != "!!str": // a plain scalar would be something else
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// Schema is the JSON schema of the dialect, for editors, with the kinds and formats of agents that are known; nil: those of package agents.
func Schema(known *agents.Registry) map[string]any {
	s := schemaOf(reflect.TypeFor[Job](), reflect.StructField{}, known)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "AgentFly job"
	return s
}

func schemaOf(t reflect.Type, f reflect.StructField, known *agents.Registry) map[string]any {
	s := typeSchema(t, f, known)
	doc := docOf(f, known)
	if unit := f.Tag.Get("unit"); unit != "" {
		doc += " (" + unit + ")"
	}
	if doc != "" {
		s["description"] = strings.TrimSpace(doc)
	}
	return s
}

func typeSchema(t reflect.Type, f reflect.StructField, known *agents.Registry) map[string]any {
	if s, ok := customSchema(reflect.New(t).Interface()); ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return map[string]any{"oneOf": []any{map[string]any{"type": "null"}, schemaOf(t.Elem(), reflect.StructField{}, known)}}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range t.NumField() {
			sub := t.Field(i)
			if key := keyOf(sub); key != "" {
				properties[key] = schemaOf(sub.Type, sub, known)
				if sub.Tag.Get("need") == "true" {
					required = append(required, key)
				}
			}
		}
		s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			s["required"] = required
		}
		return s
	case reflect.Slice:
		s := map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem(), reflect.StructField{}, known)}
		if f.Tag.Get("need") != "" {
			s["type"], s["minItems"] = "array", 1
		}
		return s
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": []string{"object", "null"}}
		}
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": map[string]any{"type": "string"}}
	}
	return scalarSchema(t, f, known)
}

func scalarSchema(t reflect.Type, f reflect.StructField, known *agents.Registry) map[string]any {
	s := map[string]any{}
	l := limitsOf(f)
	if l.hasMin {
		s["minimum"] = l.min
	}
	if l.hasAbove {
		s["exclusiveMinimum"] = l.above
	}
	if l.hasMax {
		s["maximum"] = l.max
	}
	standard := f.Tag.Get("default")
	switch t.Kind() {
	case reflect.Bool:
		s["type"] = "boolean"
		s["default"] = standard == "true"
	case reflect.String:
		s["type"] = []string{"string", "null"}
		if enum := enumOf(f, known); enum != nil {
			s["type"], s["enum"] = "string", enum
		}
		if standard != "" {
			s["default"] = standard
		}
	case reflect.Float64:
		s["type"] = "number"
	default:
		s["type"] = "integer"
	}
	if v, err := strconv.ParseFloat(standard, 64); err == nil {
		s["default"] = v
	}
	return s
}
