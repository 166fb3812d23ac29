package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is a job file with mistakes, one line each.
type Error struct{ Lines []string }

func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

// Load reads a job file. sets are overrides of the form key.path=value, checked like the file itself.
func Load(path string, sets ...string) (*Job, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, &Error{[]string{fmt.Sprintf("%s: %v; give the path of a job file, such as examples/calculator.yaml", path, err)}}
	}
	return Parse(path, data, sets...)
}

// Parse reads a job from memory; path names it in messages and anchors its relative paths.
func Parse(path string, data []byte, sets ...string) (*Job, error) {
	root, err := document(path, data)
	if err != nil {
		return nil, err
	}
	origin := map[*yaml.Node]string{}
	d := &decoder{where: func(n *yaml.Node) string {
		if flag, ok := origin[n]; ok {
			return flag
		}
		return fmt.Sprintf("%s:%d:%d", path, n.Line, n.Column)
	}}
	for _, set := range sets {
		if err := apply(root, set, origin); err != nil {
			d.errs = append(d.errs, err.Error())
		}
	}
	source, err := yaml.Marshal(root)
	if err != nil {
		return nil, &Error{[]string{fmt.Sprintf("%s: %v", path, err)}}
	}
	d.expand(root)
	j := &Job{path: path, source: source}
	setDefaults(reflect.ValueOf(j).Elem())
	d.structure(root, reflect.ValueOf(j).Elem(), "")
	if len(d.errs) == 0 {
		d.errs = j.check(path)
	}
	if len(d.errs) > 0 {
		return nil, &Error{d.errs}
	}
	if j.Output == "" {
		j.Output = filepath.Join("runs", j.Name)
	}
	return j, nil
}

// document reads exactly one YAML document whose top is a mapping.
func document(path string, data []byte) (*yaml.Node, error) {
	fail := func(format string, args ...any) error {
		return &Error{[]string{path + ": " + fmt.Sprintf(format, args...)}}
	}
	var doc yaml.Node
	decode := yaml.NewDecoder(bytes.NewReader(data))
	if err := decode.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fail("the file is empty; a job has at least version, name, model, rewards and data")
		}
		return nil, fail("%s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	var more yaml.Node
	if err := decode.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fail("there is more than one YAML document; keep one job a file")
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fail("a job is a mapping of keys to values")
	}
	return doc.Content[0], nil
}

// apply puts the value of key.path=value into the tree.
func apply(root *yaml.Node, set string, origin map[*yaml.Node]string) error {
	key, text, ok := strings.Cut(set, "=")
	if !ok || key == "" {
		return fmt.Errorf("--set %s: write key.path=value, such as trainer.steps=10", set)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) > 1 {
		return fmt.Errorf("--set %s: the value is not YAML", set)
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	if len(doc.Content) == 1 {
		value = doc.Content[0]
	}
	flag := "--set " + key
	mark(value, flag, origin)
	node := root
	parts := strings.Split(key, ".")
	for i, part := range parts {
		child := lookup(node, part)
		last := i == len(parts)-1
		if child == nil {
			k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: part}
			child = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			origin[k], origin[child] = flag, flag
			node.Content = append(node.Content, k, child)
		}
		if last {
			*child = *value
			origin[child] = flag
		} else if child.Kind != yaml.MappingNode {
			*child = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			origin[child] = flag
		}
		node = child
	}
	return nil
}

func mark(n *yaml.Node, flag string, origin map[*yaml.Node]string) {
	origin[n] = flag
	for _, c := range n.Content {
		mark(c, flag, origin)
	}
}

func lookup(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces ${NAME} in every value by the environment's.
func (d *decoder) expand(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		n.Value = variable.ReplaceAllStringFunc(n.Value, func(m string) string {
			value, ok := os.LookupEnv(m[2 : len(m)-1])
			if !ok {
				d.fail(n, "the environment has no %s; set it before the run", m[2:len(m)-1])
			}
			return value
		})
	}
	for _, c := range n.Content {
		d.expand(c)
	}
}

// UnmarshalYAML reads a name or {name: NAME, weight: W, parameter: value, …}.
func (r *Reward) UnmarshalYAML(n *yaml.Node) error {
	r.Weight = 1
	if n.Kind == yaml.ScalarNode {
		r.Name = n.Value
		return nil
	}
	var m map[string]any
	if err := n.Decode(&m); err != nil {
		return errors.New("a reward is a name or {name: NAME, weight: 1}")
	}
	name, ok := m["name"].(string)
	if !ok {
		return errors.New("a reward is a name or {name: NAME, weight: 1}; the key name is missing")
	}
	r.Name = name
	delete(m, "name")
	if w, ok := m["weight"]; ok {
		switch w := w.(type) {
		case int:
			r.Weight = float64(w)
		case float64:
			r.Weight = w
		default:
			return fmt.Errorf("weight of %s must be a number", name)
		}
		delete(m, "weight")
	}
	r.Params = m
	return nil
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// check finds what single values cannot show.
func (j *Job) check(path string) []string {
	var errs []string
	fail := func(format string, args ...any) { errs = append(errs, path+": "+fmt.Sprintf(format, args...)) }
	if !namePattern.MatchString(j.Name) {
		fail("name %q must be letters, digits, dots, _ and -, and begin with a letter or digit", j.Name)
	}
	if (j.Model.Path == "") == (j.Model.Scratch == nil) {
		fail("model needs either path or scratch")
	}
	if len(j.Rewards) == 0 {
		fail("rewards is empty; name at least one")
	}
	for k := range j.Data.Columns {
		if !slices.Contains([]string{"prompt", "id", "answer"}, k) {
			fail("data.columns maps prompt, id and answer, not %q", k)
		}
	}
	if len(j.Agent.Tools) != len(slices.Compact(slices.Sorted(slices.Values(j.Agent.Tools)))) {
		fail("agent.tools names a tool twice")
	}
	return errs
}

// TrainingErrors are the settings that sampling allows and training refuses.
func (j *Job) TrainingErrors() error {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, j.path+": "+fmt.Sprintf(format, args...)) }
	if j.Data.Train == "" {
		add("data.train is missing; a training job needs tasks")
	}
	if r := j.Rollout; r.TopP != 1 || r.TopK != 0 || r.MinP != 0 {
		add("rollout.top_p, top_k and min_p are refused in training: the engine's logprobs would be of a truncated distribution; leave them out")
	}
	if len(lines) > 0 {
		return &Error{lines}
	}
	return nil
}

// Path is the job file's.
func (j *Job) Path() string { return j.path }

// Source is the YAML of the job as it runs; ${NAME} is kept, so that no secret is in it.
func (j *Job) Source() []byte { return j.source }

// Resolve makes a path of the job file absolute or relative to the working folder.
func (j *Job) Resolve(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(j.path), path)
}
