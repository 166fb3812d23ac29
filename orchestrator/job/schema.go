package job

import (
	"reflect"
	"strings"
)

// Schema is the JSON schema of job files, made from the same tags that Load checks.
func Schema() map[string]any {
	s := schemaOf(reflect.TypeFor[Job](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "AgentFly job"
	return s
}

func schemaOf(t reflect.Type, tag reflect.StructTag) map[string]any {
	out := map[string]any{}
	switch {
	case t == reflect.TypeFor[Reward]():
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{
			"type": "object", "required": []string{"name"}, "properties": map[string]any{"name": map[string]any{"type": "string"}, "weight": map[string]any{"type": "number", "default": 1}},
		}}}
	case t.Name() == "Choice":
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "object", "required": []string{"name"}}}}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), tag)
	}
	switch t.Kind() {
	case reflect.Struct:
		known := fields(t)
		properties, required := map[string]any{}, []string{}
		for _, k := range keys(known) {
			properties[k] = schemaOf(known[k].Type, known[k].Tag)
			if known[k].Tag.Get("need") == "true" {
				required = append(required, k)
			}
		}
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), "")}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), "")}
	case reflect.String:
		out["type"] = "string"
	case reflect.Bool:
		out["type"] = "boolean"
	case reflect.Float64:
		out["type"] = "number"
	default:
		out["type"] = "integer"
	}
	if v := tag.Get("default"); v != "" {
		out["default"] = v
	}
	if v := tag.Get("enum"); v != "" {
		out["enum"] = strings.Split(v, ",")
	}
	if v := tag.Get("range"); v != "" {
		out["minimum"], out["maximum"] = limitsOf(v)
	}
	return out
}
