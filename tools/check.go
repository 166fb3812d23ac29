package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// Check verifies that data is a JSON value of the schema. The error says which argument is wrong and what is right;
// it names no package, because the model reads it.
func (s *Schema) Check(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("the arguments are not JSON (%s); write %s", wording.JSONReason(err), s.Usage())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is text after the arguments' JSON object; write only %s", s.Usage())
	}
	return s.check("", v, 0)
}

func (s *Schema) check(path string, v any, depth int) error {
	if depth > maxSchemaDepth {
		return fmt.Errorf("%sis nested deeper than %d levels", subject(path), maxSchemaDepth)
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e any) bool { return equalJSON(e, v) }) {
		return fmt.Errorf("%smust be one of %s, got %s", subject(path), joinJSON(s.Enum), show(v))
	}
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, func(t string) bool { return isType(t, v) }) {
		return fmt.Errorf("%smust be %s, got %s", subject(path), article(s.kind()), show(v))
	}
	switch v := v.(type) {
	case map[string]any:
		if err := s.checkObject(path, v, depth); err != nil {
			return err
		}
	case []any:
		for i, e := range v {
			if s.Items == nil {
				break
			}
			if err := s.Items.check(fmt.Sprintf("%s[%d]", path, i), e, depth+1); err != nil {
				return err
			}
		}
	}
	return s.checkAnyOf(path, v, depth) // last: what is missing there is usually one that was misspelled
}

// checkAnyOf verifies that one of the alternatives fits. Of an object the error says what those lack that are of objects; of other values it names
// the kinds.
func (s *Schema) checkAnyOf(path string, v any, depth int) error {
	if len(s.AnyOf) == 0 {
		return nil
	}
	_, isObject := v.(map[string]any)
	var lacks []string
	for _, o := range s.AnyOf {
		err := o.check(path, v, depth+1)
		if err == nil {
			return nil
		}
		if lack := err.Error(); !slices.Contains(lacks, lack) && (len(s.AnyOf) == 1 || isObject && (len(o.Types) == 0 || slices.Contains(o.Types, "object"))) {
			lacks = append(lacks, lack)
		}
	}
	if len(lacks) > 0 {
		return errors.New(strings.Join(lacks, ", or "))
	}
	return fmt.Errorf("%smust be %s, got %s", subject(path), s.kind(), show(v))
}

func (s *Schema) checkObject(path string, v map[string]any, depth int) error {
	known := make([]string, len(s.Properties))
	for i, p := range s.Properties {
		known[i] = p.Name
		value, ok := v[p.Name]
		if !ok {
			continue
		}
		if err := p.Schema.check(join(path, p.Name), value, depth+1); err != nil {
			return err
		}
	}
	// Unknown names come first: a missing argument is usually one that was misspelled.
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case slices.Contains(known, name):
		case s.Closed:
			return fmt.Errorf("there is no argument %q%s; the arguments are %s", join(path, name), wording.DidYouMean(name, known), s.Usage())
		case s.Values != nil:
			if err := s.Values.check(join(path, name), v[name], depth+1); err != nil {
				return err
			}
		}
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			if len(s.Properties) == 0 { // of an alternative, whose properties stand beside it
				return fmt.Errorf("the argument %q is missing", join(path, name))
			}
			return fmt.Errorf("the argument %q is missing; the arguments are %s", join(path, name), s.Usage())
		}
	}
	return nil
}

func isType(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case json.Number:
		return t == "number" || t == "integer" && isInteger(v)
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	default:
		return false
	}
}

// isInteger reports whether n has no fraction, without computing it: 1.0 and 1e3 are integers, as in JSON Schema.
func isInteger(n json.Number) bool {
	s := string(n)
	if !strings.ContainsAny(s, ".eE") {
		return true
	}
	mantissa, exponent, found := strings.Cut(strings.ToLower(s), "e")
	if found && strings.Trim(exponent, "+0") != "" {
		f, err := n.Float64()
		return err == nil && f == float64(int64(f))
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	return strings.Trim(fraction, "0") == ""
}

// equalJSON compares decoded JSON values; numbers compare by value.
func equalJSON(a, b any) bool {
	x, okX := number(a)
	y, okY := number(b)
	if okX || okY {
		return okX && okY && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	default:
		return 0, false
	}
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", wording.Clip(v, 40))
	case json.Number:
		return "the number " + wording.Clip(string(v), 40)
	default:
		return fmt.Sprint(v)
	}
}

func article(kind string) string {
	switch {
	case strings.HasPrefix(kind, "{") || strings.HasPrefix(kind, "one of") || strings.HasPrefix(kind, "any"):
		return kind
	case kind != "" && strings.ContainsRune("aeio", rune(kind[0])):
		return "an " + kind
	default:
		return "a " + kind
	}
}

func subject(path string) string {
	if path == "" {
		return "the arguments object "
	}
	return fmt.Sprintf("the argument %q ", path)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
