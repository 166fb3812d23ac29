package job

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills structs from YAML nodes and collects every problem instead of stopping at the first.
type decoder struct {
	where func(n *yaml.Node) string // file:line:column, or the --set flag the node came from
	errs  []string
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, d.where(n)+": "+fmt.Sprintf(format, args...))
}

// fields maps yaml names to the exported fields of a struct type.
func fields(t reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if f.IsExported() && name != "" && name != "-" {
			out[name] = f
		}
	}
	return out
}

func keys(m map[string]reflect.StructField) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// structure decodes a mapping into v; path names it in messages ("" at the top).
func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	known := fields(v.Type())
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s must be a mapping with keys %s", name(path), strings.Join(keys(known), ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		f, ok := known[k.Value]
		switch {
		case !ok:
			d.fail(k, "unknown key %q%s; allowed here: %s", join(path, k.Value), nearest(k.Value, keys(known)), strings.Join(keys(known), ", "))
			continue
		case seen[k.Value]:
			d.fail(k, "the key %q is given twice", join(path, k.Value))
			continue
		}
		seen[k.Value] = true
		d.value(value, v.FieldByIndex(f.Index), f, join(path, k.Value))
	}
	for _, k := range keys(known) {
		if f := known[k]; f.Tag.Get("need") == "true" && !seen[k] {
			d.fail(n, "the key %q is missing", join(path, k))
		}
	}
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func (d *decoder) value(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return // as if the key were not there: the default stays
	}
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		setDefaults(fresh.Elem())
		d.value(n, fresh.Elem(), f, path)
		v.Set(fresh)
		return
	}
	if u, ok := v.Addr().Interface().(yaml.Unmarshaler); ok && !v.Type().Implements(textUnmarshaler) {
		if err := u.UnmarshalYAML(n); err != nil {
			d.fail(n, "%s: %s", path, strings.TrimPrefix(err.Error(), fmt.Sprintf("line %d: ", n.Line)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, "%s must be a list", path)
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(item, v.Index(i), f, fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		if err := n.Decode(v.Addr().Interface()); err != nil {
			d.fail(n, "%s must be a mapping of names to %s", path, v.Type().Elem())
		}
	default:
		d.scalar(n, v, f, path)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	if n.Kind != yaml.ScalarNode || !fits(n.Tag, v.Kind()) {
		d.fail(n, "%s must be %s, got %s", path, words(v.Kind()), got(n))
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.fail(n, "%s must be %s, got %s", path, words(v.Kind()), got(n))
		return
	}
	if allowed := f.Tag.Get("enum"); allowed != "" && v.Kind() == reflect.String {
		if list := strings.Split(allowed, ","); !slices.Contains(list, v.String()) {
			d.fail(n, "%s is %q%s; allowed: %s", path, v.String(), nearest(v.String(), list), strings.Join(list, ", "))
		}
	}
	if limits := f.Tag.Get("range"); limits != "" {
		low, high := limitsOf(limits)
		if x := number(v); !(x >= low && x <= high) {
			d.fail(n, "%s is %s; allowed: %s to %s", path, n.Value, short(low), short(high))
		}
	}
}

func fits(tag string, k reflect.Kind) bool {
	switch k {
	case reflect.String:
		return tag == "!!str"
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return tag == "!!int"
	case reflect.Float64:
		return tag == "!!int" || tag == "!!float"
	}
	return false
}

func words(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint64:
		return "a whole number, 0 or more"
	}
	return "a whole number"
}

func got(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if len(n.Value) > 40 {
		return strconv.Quote(n.Value[:40] + "…")
	}
	return strconv.Quote(n.Value)
}

func number(v reflect.Value) float64 {
	switch v.Kind() {
	case reflect.Float64:
		return v.Float()
	case reflect.Uint64:
		return float64(v.Uint())
	}
	return float64(v.Int())
}

func limitsOf(tag string) (low, high float64) {
	a, b, _ := strings.Cut(tag, ",")
	low, errLow := strconv.ParseFloat(a, 64)
	high, errHigh := strconv.ParseFloat(b, 64)
	if errLow != nil || errHigh != nil { // a tag of ours that TestTagsAreWellFormed would have found
		return math.Inf(-1), math.Inf(1)
	}
	return low, high
}

func short(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// setDefaults fills the default tags of a struct, recursively.
func setDefaults(v reflect.Value) {
	for _, f := range fields(v.Type()) {
		field := v.FieldByIndex(f.Index)
		if field.Kind() == reflect.Struct {
			setDefaults(field)
		}
		text, ok := f.Tag.Lookup("default")
		if !ok {
			continue
		}
		switch field.Kind() {
		case reflect.String:
			field.SetString(text)
		case reflect.Bool:
			field.SetBool(text == "true")
		case reflect.Int:
			n, _ := strconv.ParseInt(text, 10, 64) // checked by TestTagsAreWellFormed
			field.SetInt(n)
		case reflect.Uint64:
			n, _ := strconv.ParseUint(text, 10, 64)
			field.SetUint(n)
		case reflect.Float64:
			x, _ := strconv.ParseFloat(text, 64)
			field.SetFloat(x)
		}
	}
}

func name(path string) string {
	if path == "" {
		return "the job"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest suggests the closest of names, or nothing when none is close.
func nearest(word string, names []string) string {
	best, distance := "", len(word)/2+2
	for _, n := range names {
		if d := editDistance(word, n); d < distance {
			best, distance = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		previous := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := previous
			if a[i-1] != b[j-1] {
				cost++
			}
			previous, row[j] = row[j], min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
