package job

import (
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/wording"
)

const maxNodes = 100_000 // of a job file after its aliases are followed

// decoder turns nodes into a Job and collects problems.
type decoder struct {
	found   *findings
	scalars scalars
	agents  *agents.Registry
	nodes   int
	given   map[string]bool // paths of the keys that the file or --set names
	broken  broken          // those that could not be read
}

// newDecoder makes a decoder of a file; env nil is the process's environment, known nil are the agents of package agents.
func newDecoder(file string, env func(string) (string, bool), known *agents.Registry) *decoder {
	if env == nil {
		env = os.LookupEnv
	}
	found := newFindings(file)
	return &decoder{found: found, scalars: scalars{found, env, map[string]string{}}, agents: known, given: map[string]bool{}, broken: broken{}}
}

// unknown reports a key that does not exist.
func (d *decoder) unknown(key *yaml.Node, path string, known []string) {
	where := "the job"
	if path != "" {
		where = path
	}
	d.broken[join(path, key.Value)] = true // what it was meant for stands at its default
	if meant := wording.Nearest(key.Value, known); meant != "" && !d.given[join(path, meant)] {
		d.broken[join(path, meant)] = true
	}
	if hint := elsewhere(path, key.Value); hint != "" {
		d.found.fail(key, "unknown key %q in %s: %s; allowed in %s: %s", key.Value, where, hint, where, strings.Join(known, ", "))
		return
	}
	d.found.fail(key, "unknown key %q in %s; allowed: %s%s", key.Value, where, strings.Join(known, ", "), near(key.Value, known))
}

// near names the known name that name may stand for.
func near(name string, known []string) string {
	if n := wording.Nearest(name, known); n != "" {
		return "; nearest: " + n
	}
	return ""
}

// follow resolves aliases and counts nodes, so that a file of nested aliases ends.
func (d *decoder) follow(n *yaml.Node) *yaml.Node {
	for range 100 {
		if d.nodes++; d.nodes > maxNodes {
			if d.nodes == maxNodes+1 {
				d.tooMany(n)
			}
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: n.Line, Column: n.Column}
		}
		if n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return n
}

func (d *decoder) tooMany(n *yaml.Node) {
	d.found.fail(n, "the file has more than %d values", maxNodes)
}

// mapping calls f for each key of n; a key that is not a text or comes twice is a problem.
func (d *decoder) mapping(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := d.follow(n.Content[i]), d.follow(n.Content[i+1])
		if d.nodes > maxNodes {
			return
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			d.found.fail(key, "%s: a key must be a text", orJob(path))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.found.fail(key, "key %q in %s is given twice; the first is in line %d", key.Value, orJob(path), line)
			continue
		}
		seen[key.Value] = key.Line
		f(key, value)
	}
}

func orJob(path string) string {
	if path == "" {
		return "the job"
	}
	return path
}

// structure fills a struct from a mapping.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	if n.ShortTag() == "!!null" && path != "" {
		d.defaults(n, v, path, map[string]bool{})
		return
	}
	if n.Kind != yaml.MappingNode {
		d.found.fail(n, "%s: %s, allowed is a mapping with the keys %s", orJob(path), kindName(n), strings.Join(keysOf(v.Type()), ", "))
		return
	}
	seen := map[string]bool{}
	d.mapping(n, path, func(key, value *yaml.Node) {
		i, ok := fieldByKey(v.Type(), key.Value)
		if !ok {
			d.unknown(key, path, keysOf(v.Type()))
			return
		}
		seen[key.Value] = true
		at := join(path, key.Value)
		d.found.at[at], d.given[at] = value, true
		d.value(value, v.Field(i), v.Type().Field(i), at)
	})
	d.defaults(n, v, path, seen)
}

// setDefaults fills a block with what it has where a file leaves all of it out.
func setDefaults(block reflect.Value, path string) {
	newDecoder("", nil, nil).defaults(&yaml.Node{}, block, path, map[string]bool{})
}

// defaults fills what the file leaves out.
func (d *decoder) defaults(n *yaml.Node, v reflect.Value, path string, seen map[string]bool) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		key := keyOf(f)
		if key == "" || seen[key] {
			continue
		}
		at := join(path, key)
		if _, ok := d.found.at[at]; !ok {
			d.found.at[at] = n
		}
		if need := f.Tag.Get("need"); need != "" && !excused(need, seen) {
			d.found.fail(n, "%s: the key %q is missing: %s", orJob(path), key, f.Tag.Get("doc"))
			d.broken[at] = true
			continue
		}
		if v.Field(i).Kind() == reflect.Pointer {
			continue
		}
		if _, ok := customSchema(v.Field(i).Addr().Interface()); ok {
			continue
		}
		if v.Field(i).Kind() == reflect.Struct {
			d.defaults(n, v.Field(i), at, map[string]bool{})
			continue
		}
		if text, ok := f.Tag.Lookup("default"); ok && text != "" {
			d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: n.Line, Column: n.Column}, v.Field(i), f, at)
		}
	}
}

// excused tells whether one of the keys that a need of the form "unless KEY KEY" lists is there.
func excused(need string, seen map[string]bool) bool {
	return slices.ContainsFunc(strings.Fields(strings.TrimPrefix(need, "unless")), func(key string) bool { return seen[key] })
}

// value fills one field. One that cannot be read stands at its default, so that what follows from the others can be checked.
func (d *decoder) value(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	before := len(d.found.problems)
	d.fill(n, v, f, path)
	whole := v.Kind() == reflect.Struct || v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct || v.Kind() == reflect.Slice
	if _, custom := customSchema(v.Addr().Interface()); len(d.found.problems) == before || whole && !custom && !d.misshapen(n, v) {
		return
	}
	d.broken[path] = true
	if text, ok := f.Tag.Lookup("default"); ok && text != "" && v.Kind() != reflect.Struct {
		problems := d.found.problems
		d.fill(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: n.Line, Column: n.Column}, v, f, path)
		d.found.problems = problems
	}
}

// misshapen tells whether a block or a list is something else in the file.
func (d *decoder) misshapen(n *yaml.Node, v reflect.Value) bool {
	if n = d.follow(n); v.Kind() == reflect.Slice {
		return n.Kind != yaml.SequenceNode
	}
	return n.Kind != yaml.MappingNode
}

// fill fills one field.
func (d *decoder) fill(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	n = d.follow(n)
	if decodeCustom(d, n, v.Addr().Interface(), path) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if n.ShortTag() != "!!null" {
			v.Set(reflect.New(v.Type().Elem()))
			d.value(n, v.Elem(), f, path)
		}
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.String:
		d.stringField(n, v, f, path)
	case reflect.Bool:
		v.SetBool(d.scalars.boolean(n, path))
	case reflect.Int:
		v.SetInt(d.scalars.integer(n, path, limitsOf(f)))
	case reflect.Uint64:
		v.SetUint(d.scalars.unsigned(n, path))
	case reflect.Float64:
		v.SetFloat(d.scalars.number(n, path, limitsOf(f)))
	case reflect.Slice:
		d.list(n, v, f, path)
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Interface {
			d.freeMap(n, v, path)
			return
		}
		if texts := d.texts(n, path); texts != nil {
			v.Set(reflect.ValueOf(texts))
		}
	default:
		d.found.fail(n, "%s: the dialect has a field of type %s that cannot be read", path, v.Type())
	}
}

func (d *decoder) stringField(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	enum := enumOf(f, d.agents)
	if n.ShortTag() == "!!null" && enum == nil {
		return
	}
	before := len(d.found.problems)
	s := d.scalars.text(n, path)
	if len(d.found.problems) > before {
		return
	}
	if enum != nil && !slices.Contains(enum, s) {
		d.found.fail(n, "%s: %q is not allowed; allowed: %s%s", path, s, strings.Join(enum, ", "), near(s, enum))
		return
	}
	v.SetString(s)
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, f reflect.StructField, path string) {
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.found.fail(n, "%s: %s, allowed is a list", path, kindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if d.nodes > maxNodes {
			return
		}
		at := path + "." + strconv.Itoa(i)
		d.found.at[at] = item
		d.value(item, v.Index(i), reflect.StructField{}, at)
	}
	if len(n.Content) == 0 && f.Tag.Get("need") != "" {
		d.found.fail(n, "%s: the list is empty; at least one entry is needed", path)
	}
}

// texts reads a mapping of texts; of null, and of what is none, it is nil.
func (d *decoder) texts(n *yaml.Node, path string) map[string]string {
	if n.ShortTag() == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.found.fail(n, "%s: %s, allowed is a mapping of texts", path, kindName(n))
		return nil
	}
	out := map[string]string{}
	d.mapping(n, path, func(key, value *yaml.Node) { out[key.Value] = d.scalars.text(value, path+"."+key.Value) })
	return out
}

// freeMap reads parameters that only who takes them knows.
func (d *decoder) freeMap(n *yaml.Node, v reflect.Value, path string) {
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.found.fail(n, "%s: %s, allowed is a mapping of parameters", path, kindName(n))
		return
	}
	if out, ok := d.any(n, path, 0).(map[string]any); ok {
		v.Set(reflect.ValueOf(out))
	}
}

const maxDepth = 20

// any reads a free value: a parameter of a reward or a loss.
func (d *decoder) any(n *yaml.Node, path string, depth int) any {
	n = d.follow(n)
	if depth > maxDepth {
		d.found.fail(n, "%s: values are nested deeper than %d", path, maxDepth)
		return nil
	}
	d.found.at[path] = n
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		d.mapping(n, path, func(key, value *yaml.Node) { out[key.Value] = d.any(value, path+"."+key.Value, depth+1) })
		return out
	case yaml.SequenceNode:
		out := []any{}
		for i, item := range n.Content {
			if d.nodes > maxNodes {
				return nil
			}
			out = append(out, d.any(item, path+"."+strconv.Itoa(i), depth+1))
		}
		return out
	}
	s, ok := d.scalars.scalar(n, path)
	switch {
	case !ok:
		return nil
	case n.Kind != yaml.ScalarNode:
		d.found.fail(n, "%s: %s, allowed is a number, a text, true or false, a list or a mapping", path, kindName(n))
		return nil
	}
	switch s.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return d.scalars.boolean(n, path)
	case "!!int":
		return d.scalars.integer(n, path, limits{})
	case "!!float":
		return d.scalars.number(n, path, limits{})
	case "!!str":
		return s.Value
	default:
		d.found.fail(n, "%s: %s, allowed is a number, a text, true or false, a list or a mapping", path, kindName(n))
		return nil
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keyOf is the key of a field, "" for none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if key := keyOf(t.Field(i)); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func fieldByKey(t reflect.Type, key string) (int, bool) {
	for i := range t.NumField() {
		if key != "" && keyOf(t.Field(i)) == key {
			return i, true
		}
	}
	return 0, false
}
