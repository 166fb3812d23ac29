package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// UnknownError says that parameters are given which the tool or the reward does not have.
type UnknownError struct {
	Names []string // sorted
	text  string
}

func (e *UnknownError) Error() string { return e.text }

// Decode reads the parameters of a tool or a reward into a struct with json tags, strictly. Parameters that the struct does not have are an
// *UnknownError, which lists those that it has.
func Decode(params map[string]any, into any) error {
	if len(params) == 0 {
		return nil
	}
	if err := known(params, into); err != nil {
		return err
	}
	b, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			return fmt.Errorf("the parameter %s must be of type %s, got a %s", parameter(typed.Field, into), typed.Type, typed.Value)
		}
		return fmt.Errorf("the parameters cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// parameter is a path of encoding/json without the structs that are embedded, whose names no job can write.
func parameter(path string, into any) string {
	t := structOf(into)
	for t != nil {
		first, rest, more := strings.Cut(path, ".")
		if !more || slices.Contains(jsonNames(t), first) {
			break
		}
		path = rest
	}
	return path
}

// structOf is the struct that a value points to; nil: it points to none.
func structOf(into any) reflect.Type {
	t := reflect.TypeOf(into)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// known refuses parameters that no field of the struct is for.
func known(params map[string]any, into any) error {
	t := structOf(into)
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	have := jsonNames(t)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.ContainsFunc(have, func(k string) bool { return strings.EqualFold(k, name) }) { // as encoding/json matches them
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	text := fmt.Sprintf("the parameters cannot be read: unknown field %q; allowed: %s", unknown[0], strings.Join(have, ", "))
	if len(unknown) > 1 {
		text = fmt.Sprintf("the parameters cannot be read: unknown fields %q; allowed: %s", unknown, strings.Join(have, ", "))
	}
	if len(have) == 0 {
		text = fmt.Sprintf("the parameters cannot be read: unknown field %q; it takes none, leave it out", unknown[0])
	}
	if near := wording.Nearest(unknown[0], have); near != "" {
		text += "; nearest: " + near
	}
	return &UnknownError{Names: unknown, text: text}
}

// jsonNames are the names that encoding/json knows the fields of a struct by.
func jsonNames(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			out = append(out, jsonNames(f.Type)...)
		case !f.IsExported() || name == "-":
		case name != "":
			out = append(out, name)
		default:
			out = append(out, f.Name)
		}
	}
	return out
}
