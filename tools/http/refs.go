package httptool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	maxRefs  = 32    // references that follow each other, and levels of a schema
	maxNodes = 2_000 // schemas within one schema, references replaced
)

// lookup finds what a reference names.
func (d *document) lookup(ref string) (any, error) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("the reference %q leaves the document, which is not supported", ref)
	}
	var at any = d.root
	for _, key := range strings.Split(path, "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		next, ok := object(at)[key]
		if !ok {
			return nil, fmt.Errorf("the reference %q names nothing", ref)
		}
		at = next
	}
	return at, nil
}

// follow is an object, or the one that it refers to.
func (d *document) follow(v any) (map[string]any, error) {
	for range maxRefs {
		o := object(v)
		ref, ok := o["$ref"].(string)
		if !ok {
			return o, nil
		}
		var err error
		if v, err = d.lookup(ref); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("its references go round in a circle")
}

// kept are the keywords that a model's schema keeps as they are.
var kept = []string{
	"type", "description", "enum", "const", "default", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
	"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

// schema writes an OpenAPI schema as a JSON schema that stands alone: references replaced, allOf merged, nullable as a type.
func (d *document) schema(v any) (map[string]any, error) {
	nodes := 0
	return d.inline(v, nil, &nodes)
}

func (d *document) inline(v any, inside []string, nodes *int) (map[string]any, error) {
	if *nodes++; *nodes > maxNodes {
		return nil, fmt.Errorf("a schema with more than %d parts is not supported", maxNodes)
	}
	in := object(v)
	if ref, ok := in["$ref"].(string); ok {
		if slices.Contains(inside, ref) {
			return nil, fmt.Errorf("the schema %q contains itself, which is not supported", ref)
		}
		to, err := d.lookup(ref)
		if err != nil {
			return nil, err
		}
		out, err := d.inline(to, append(slices.Clone(inside), ref), nodes)
		if err == nil && str(in["description"]) != "" {
			out["description"] = in["description"]
		}
		return out, err
	}
	if len(inside) > maxRefs {
		return nil, fmt.Errorf("a schema of more than %d levels is not supported", maxRefs)
	}
	inside = append(slices.Clone(inside), "") // a level
	out := map[string]any{}
	for _, key := range kept {
		if value, ok := in[key]; ok {
			out[key] = value
		}
	}
	for _, key := range []string{"exclusiveMinimum", "exclusiveMaximum"} { // true and false in 3.0
		if _, flag := out[key].(bool); flag {
			delete(out, key)
		}
	}
	if err := d.parts(in, out, inside, nodes); err != nil {
		return nil, err
	}
	if in["nullable"] == true {
		nullable(out)
	}
	return out, nil
}

// parts are the schemas within a schema.
func (d *document) parts(in, out map[string]any, inside []string, nodes *int) error {
	properties, required := map[string]any{}, slices.Clone(list(in["required"]))
	members := object(in["properties"])
	for _, name := range slices.Sorted(maps.Keys(members)) {
		p, err := d.follow(members[name])
		if err != nil {
			return err
		}
		if p["readOnly"] == true { // only in responses
			continue
		}
		if properties[name], err = d.inline(members[name], inside, nodes); err != nil {
			return err
		}
	}
	for _, part := range list(in["allOf"]) {
		p, err := d.inline(part, inside, nodes)
		if err != nil {
			return err
		}
		maps.Copy(properties, object(p["properties"]))
		for _, name := range list(p["required"]) {
			if !slices.Contains(required, name) {
				required = append(required, name)
			}
		}
		for key, value := range p {
			if _, ok := out[key]; !ok && key != "properties" && key != "required" {
				out[key] = value
			}
		}
	}
	required = slices.DeleteFunc(required, func(v any) bool { return properties[str(v)] == nil && d.readOnly(in, str(v), 0) })
	if len(properties) > 0 {
		out["type"], out["properties"] = "object", properties
	}
	if len(required) > 0 {
		out["required"] = required
	}
	for _, key := range []string{"items", "additionalProperties"} {
		switch value := in[key].(type) {
		case map[string]any:
			p, err := d.inline(value, inside, nodes)
			if err != nil {
				return err
			}
			out[key] = p
		case bool:
			out[key] = value
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		for _, part := range list(in[key]) {
			p, err := d.inline(part, inside, nodes)
			if err != nil {
				return err
			}
			out["anyOf"] = append(list(out["anyOf"]), p)
		}
	}
	return nil
}

// readOnly tells whether a schema, or one that it is made of, has the property and says that it is only in responses.
func (d *document) readOnly(v any, name string, level int) bool {
	in, err := d.follow(v)
	if err != nil || level > maxRefs {
		return false
	}
	if p, err := d.follow(object(in["properties"])[name]); err == nil && p["readOnly"] == true {
		return true
	}
	return slices.ContainsFunc(list(in["allOf"]), func(part any) bool { return d.readOnly(part, name, level+1) })
}

// nullable also allows null.
func nullable(s map[string]any) {
	if t, ok := s["type"].(string); ok {
		s["type"] = []any{t, "null"}
	}
	if e := list(s["enum"]); e != nil && !slices.Contains(e, nil) {
		s["enum"] = append(slices.Clone(e), nil)
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
