package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
)

// function is a tool made of a Go function.
type function[T any] struct {
	spec Spec
	run  func(ctx context.Context, args T) (string, error)
	err  error // why T has no schema; Registry.Register reports it
}

// NewFunc makes a tool of a function. T is a struct; its exported fields are the arguments:
//
//	type Args struct {
//		City string `json:"city" doc:"name of the city"`
//		Unit string `json:"unit,omitempty" enum:"celsius,fahrenheit"`
//	}
//
// A field is required unless it is a pointer or has omitempty. A T that has no schema is reported by Registry.Register. What else the
// spec says is set with functions such as func(s *Spec) { s.Idempotent = true }.
func NewFunc[T any](name, description string, run func(ctx context.Context, args T) (string, error), set ...func(*Spec)) Tool {
	f := &function[T]{spec: Spec{Name: name, Description: description}, run: run}
	s, err := SchemaOf[T]()
	if err == nil && run == nil {
		err = errors.New("tools: the function is nil")
	}
	if err == nil {
		f.spec.Parameters, err = json.Marshal(s)
	}
	f.err = err
	for _, change := range set {
		change(&f.spec)
	}
	return f
}

func (f *function[T]) Spec() Spec { return f.spec }

func (f *function[T]) Err() error { return f.err }

func (f *function[T]) Call(ctx context.Context, c Call) (Observation, error) {
	if f.err != nil {
		return Observation{}, f.err
	}
	var args T
	if err := ReadArguments(c.Arguments, &args); err != nil {
		return Observation{}, err
	}
	text, err := f.run(ctx, args)
	return Observation{Text: text}, err
}

// ReadArguments reads arguments that a schema allows into a struct. What it cannot hold, such as an integer that is too large, is an error
// for the model.
func ReadArguments(arguments json.RawMessage, into any) error {
	err := json.Unmarshal(wholeNumbers(arguments), into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("the argument %q cannot hold the %s; write another value", wrong.Field, wording.Clip(wrong.Value, 60))
	case err != nil:
		return fmt.Errorf("the arguments cannot be read: %s", wording.JSONReason(err))
	}
	return nil
}

// wholeNumbers writes 3.0 and 3e0 as 3: they are integers in JSON, and not to Go. It is one pass, because a text may be as large as a file.
func wholeNumbers(data json.RawMessage) json.RawMessage {
	var out []byte
	copied := 0
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			i = afterText(data, i)
		case isDigit(c), c == '-' && i+1 < len(data) && isDigit(data[i+1]):
			end := i + 1
			for end < len(data) && (isDigit(data[end]) || strings.IndexByte(".eE+-", data[end]) >= 0) {
				end++
			}
			if number := data[i:end]; bytes.ContainsAny(number, ".eE") {
				out = append(append(out, data[copied:i]...), WholeNumber(string(number))...)
				copied = end
			}
			i = end
		default:
			i++
		}
	}
	if copied == 0 {
		return data
	}
	return append(out, data[copied:]...)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// afterText is the place behind the text of JSON that begins at a place.
func afterText(data []byte, at int) int {
	for at++; at < len(data); at++ {
		switch data[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(data)
}

// WholeNumber writes the number of JSON that an integer below 2^53 is as that integer, 3.0 and 3e0 as 3. Any other text stays as it is.
func WholeNumber(text string) string {
	if x, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(x) < 1<<53 && x == math.Trunc(x) {
		return strconv.FormatInt(int64(x), 10)
	}
	return text
}

// SchemaOf returns the schema of the struct T. Fields take their names from json tags, their descriptions from doc
// tags and their allowed values from enum tags (separated by commas). Functions, channels, complex numbers, interfaces
// other than any, and types that contain themselves are refused.
func SchemaOf[T any]() (*Schema, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("tools: schema of %s: the arguments must be a struct", t)
	}
	s, err := schemaOf(t, nil)
	if err != nil {
		return nil, fmt.Errorf("tools: schema of %s: %w", t, err)
	}
	return s, nil
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

func schemaOf(t reflect.Type, inside []reflect.Type) (*Schema, error) {
	switch t {
	case timeType:
		return &Schema{Types: []string{"string"}, Description: "RFC 3339 time"}, nil
	case rawType:
		return &Schema{}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Types: []string{"boolean"}}, nil
	case reflect.String:
		return &Schema{Types: []string{"string"}}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{Types: []string{"integer"}}, nil
	case reflect.Float32, reflect.Float64:
		return &Schema{Types: []string{"number"}}, nil
	case reflect.Pointer:
		return schemaOf(t.Elem(), inside)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil, fmt.Errorf("%s is not supported; use string", t)
		}
		items, err := schemaOf(t.Elem(), inside)
		return &Schema{Types: []string{"array"}, Items: items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s is not supported; the keys of a map must be strings", t)
		}
		values, err := schemaOf(t.Elem(), inside)
		return &Schema{Types: []string{"object"}, Values: values}, err
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return &Schema{}, nil
		}
	case reflect.Struct:
		for _, outer := range inside {
			if outer == t {
				return nil, fmt.Errorf("%s contains itself", t)
			}
		}
		s := &Schema{Types: []string{"object"}, Properties: []Property{}, Closed: true}
		return s, addFields(s, t, append(inside, t))
	}
	return nil, fmt.Errorf("%s is not supported", t)
}

// addFields adds the exported fields of t, those of embedded structs included, as encoding/json sees them.
func addFields(s *Schema, t reflect.Type, inside []reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" {
			continue
		}
		if f.Anonymous && !tagged && f.Type.Kind() == reflect.Struct {
			if err := addFields(s, f.Type, inside); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		p, err := schemaOf(f.Type, inside)
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		if doc := f.Tag.Get("doc"); doc != "" {
			p.Description = doc
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			if err := addEnum(p, enum); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		if s.Property(name) != nil {
			return fmt.Errorf("field %s: the name %q is used twice", f.Name, name)
		}
		s.Properties = append(s.Properties, Property{Name: name, Schema: p})
		optional := f.Type.Kind() == reflect.Pointer || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if !optional {
			s.Required = append(s.Required, name)
		}
	}
	return nil
}

func addEnum(s *Schema, values string) error {
	to := s
	if s.Items != nil {
		to = s.Items
	}
	if len(to.Types) != 1 {
		return errors.New("an enum needs a string or a number")
	}
	for v := range strings.SplitSeq(values, ",") {
		switch to.Types[0] {
		case "string":
			to.Enum = append(to.Enum, v)
		case "integer", "number":
			n := json.Number(v)
			if _, err := n.Float64(); err != nil || to.Types[0] == "integer" && !isInteger(n) {
				return fmt.Errorf("enum value %q is not of type %s", v, to.Types[0])
			}
			to.Enum = append(to.Enum, n)
		default:
			return errors.New("an enum needs a string or a number")
		}
	}
	return nil
}

// Property is the schema of a property; nil for none of that name.
func (s *Schema) Property(name string) *Schema {
	for _, p := range s.Properties {
		if p.Name == name {
			return p.Schema
		}
	}
	return nil
}
