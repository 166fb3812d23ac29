package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseDocument parses exactly one document.
func parseDocument(f *findings, data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			f.problems = append(f.problems, Problem{File: f.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		} else {
			f.problems = append(f.problems, notYAML(f.file, data, err))
		}
		return nil
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		f.fail(&second, "a second document begins here; a job file holds one")
		return nil
	case !errors.Is(err, io.EOF):
		f.problems = append(f.problems, notYAML(f.file, data, err))
		return nil
	}
	if len(doc.Content) != 1 {
		f.problems = append(f.problems, Problem{File: f.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		return nil
	}
	return doc.Content[0]
}

// withoutAliases is a copy of the tree in which a copy of what it refers to stands for each alias, so that a change in one place changes no other. left
// counts down the nodes that it may still have: below 0 the copy is not whole.
func withoutAliases(n *yaml.Node, left *int) *yaml.Node {
	if *left--; *left < 0 {
		return n
	}
	if n.Kind == yaml.AliasNode {
		return withoutAliases(n.Alias, left)
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = withoutAliases(c, left)
	}
	return &out
}

// OptionValue reads the value of an option KEY=VALUE, which is YAML. A text without quotes is taken letter by letter where YAML would make another one of
// it: a # begins no comment, and lines are not joined.
func OptionValue(text string) (*yaml.Node, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	if len(doc.Content) == 1 {
		value = doc.Content[0]
	}
	if given := strings.TrimSpace(text); value.Kind == yaml.ScalarNode && value.Style == 0 {
		if value.Value != given {
			value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: given}
		}
		return value, nil
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows its end; put all of it into quotes")
	}
	return value, nil
}

// applySet applies one --set option to a tree without aliases.
func applySet(f *findings, root *yaml.Node, option string) {
	label := "--set " + option
	fail := func(format string, args ...any) {
		f.problems = append(f.problems, Problem{File: label, Text: fmt.Sprintf(format, args...)})
	}
	path, text, ok := strings.Cut(option, "=")
	if !ok || path == "" {
		fail("write key.path=value, such as trainer.steps=10")
		return
	}
	value, err := OptionValue(text)
	if err != nil {
		fail("the value is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	left := maxNodes
	if value = withoutAliases(value, &left); left < 0 {
		fail("the value has more than %d values", maxNodes)
		return
	}
	f.mark(value, label)
	n := root
	keys := strings.Split(path, ".")
	for i, key := range keys {
		last := i == len(keys)-1
		next := child(n, key)
		switch {
		case next == nil && n.Kind == yaml.MappingNode:
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
			f.origin[k], f.origin[next] = label, label
			if last {
				next = value
			}
			n.Content = append(n.Content, k, next)
		case next == nil:
			fail("%s is %s, it has no %q", strings.Join(keys[:i], "."), kindName(n), key)
			return
		case last:
			*next = *value
			f.origin[next] = label
		case next.Kind == yaml.ScalarNode && next.ShortTag() == "!!null":
			*next = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			f.origin[next] = label
		}
		n = next
	}
}

func child(n *yaml.Node, key string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}
