package job

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Overrides are the fewest options KEY=VALUE of --set with which a job file is the job that a run folder's copy of it holds. ran is that copy, and its
// Path the job file. The output is left out, which names a folder and may have been moved; a secret that --set gave literally stands as (secret).
func Overrides(ran *Job) ([]string, error) {
	text, err := os.ReadFile(ran.path)
	if err != nil {
		return nil, err
	}
	with := func(sets []string) (*Job, error) { return LoadWith(ran.path, Options{Set: sets, Agents: ran.agents}) }
	if file, err := with(nil); err == nil { // else it may be one that is good only with --set
		text = file.source
	}
	var was, is yaml.Node
	if err := yaml.Unmarshal(text, &was); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(ran.source, &is); err != nil {
		return nil, err
	}
	sets, err := overriding(nil, "", root(&was), root(&is))
	if err != nil {
		return nil, err
	}
	target, err := withoutOutput(ran.source)
	if err != nil {
		return nil, err
	}
	makes := func(sets []string) bool {
		j, err := with(sets)
		if err != nil {
			return false
		}
		same, err := withoutOutput(j.source)
		return err == nil && reflect.DeepEqual(same, target)
	}
	if !makes(sets) {
		return nil, fmt.Errorf("no options of --set make %s the job that ran", ran.path)
	}
	for i := len(sets) - 1; i >= 0; i-- { // what follows from others, or is a default that the file leaves out
		if fewer := slices.Delete(slices.Clone(sets), i, i+1); makes(fewer) {
			sets = fewer
		}
	}
	return sets, nil
}

// root is the value of a document.
func root(doc *yaml.Node) *yaml.Node {
	if len(doc.Content) != 1 {
		return nil
	}
	return doc.Content[0]
}

// withoutOutput are the values of a whole job but its output.
func withoutOutput(source []byte) (all map[string]any, err error) {
	err = yaml.Unmarshal(source, &all)
	delete(all, "output")
	return all, err
}

// overriding appends the options that make was, the value of path, that of is; nil: there is none.
func overriding(sets []string, path string, was, is *yaml.Node) (_ []string, err error) {
	if equal, err := sameValue(was, is); equal || err != nil || path == "output" {
		return sets, err
	}
	if parts := partsOf(was, is); parts != nil {
		for _, part := range parts {
			if sets, err = overriding(sets, join(path, part), childOf(was, part), child(is, part)); err != nil {
				return nil, err
			}
		}
		return sets, nil
	}
	if plain, err := OptionValue(is.Value); err == nil && !strings.ContainsAny(is.Value, "\n\t") && is.ShortTag() == "!!str" && plain.ShortTag() == "!!str" && plain.Value == is.Value {
		return append(sets, path+"="+is.Value), nil // an option needs fewer quotes than a file
	}
	text, err := yaml.Marshal(onOneLine(is))
	if err != nil {
		return nil, err
	}
	return append(sets, path+"="+strings.TrimSuffix(string(text), "\n")), nil
}

// partsOf are the keys or the indices of is that options can name one by one; nil: one option gives all of it, because was has others, or a key that
// a path cannot have.
func partsOf(was, is *yaml.Node) (parts []string) {
	switch {
	case is.Kind == yaml.MappingNode && len(is.Content) > 0 && (isNull(was) || was.Kind == yaml.MappingNode):
		for i := 0; i+1 < len(is.Content); i += 2 {
			key := is.Content[i].Value
			if key == "" || strings.ContainsAny(key, ".=") {
				return nil
			}
			parts = append(parts, key)
		}
		for i := 0; !isNull(was) && i+1 < len(was.Content); i += 2 {
			if !slices.Contains(parts, was.Content[i].Value) {
				return nil
			}
		}
	case is.Kind == yaml.SequenceNode && was != nil && was.Kind == yaml.SequenceNode && len(was.Content) == len(is.Content):
		for i := range is.Content {
			parts = append(parts, strconv.Itoa(i))
		}
	}
	return parts
}

func childOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	return child(n, key)
}

func isNull(n *yaml.Node) bool { return n == nil || n.ShortTag() == "!!null" }

// sameValue tells whether two values are the same, however they are written.
func sameValue(a, b *yaml.Node) (bool, error) {
	var x, y any
	for n, into := range map[*yaml.Node]*any{a: &x, b: &y} {
		if n == nil {
			continue
		}
		if err := n.Decode(into); err != nil {
			return false, err
		}
	}
	return reflect.DeepEqual(x, y), nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// onOneLine is a value as an option can hold it. Its quotes are double ones, because a shell's are single.
func onOneLine(n *yaml.Node) *yaml.Node {
	out := *n
	switch {
	case n.Kind != yaml.ScalarNode:
		out.Style = yaml.FlowStyle
	case n.ShortTag() == "!!str" && !plainWord.MatchString(n.Value):
		out.Style = yaml.DoubleQuotedStyle
	}
	out.Content = nil
	for _, c := range n.Content {
		out.Content = append(out.Content, onOneLine(c))
	}
	return &out
}
