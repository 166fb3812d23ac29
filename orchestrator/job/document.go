package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// parseDocument parses exactly one document.
func parseDocument(f *findings, data []byte) *yaml.Node {
	broken := func(err error) {
		p := Problem{File: f.file, Line: 1, Column: 1, Text: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			p.Text = "not YAML: " + err.Error()[len(m[0]):]
		} else {
			p.Line, p.Column = whereBroken(data, err)
		}
		if strings.Contains(err.Error(), "UTF-8") {
			p.Line, p.Column = notUTF8(data)
			p.Text = "the line is not UTF-8; save the file as UTF-8"
		}
		if line := indentedByTab(data); line > 0 {
			p.Line, p.Column, p.Text = line, 1, "a tab indents this line, and YAML takes blanks only; write two spaces for each tab"
		}
		f.problems = append(f.problems, p)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			f.problems = append(f.problems, Problem{File: f.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		} else {
			broken(err)
		}
		return nil
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		f.fail(&second, "a second document begins here; a job file holds one")
		return nil
	case !errors.Is(err, io.EOF):
		broken(err)
		return nil
	}
	if len(doc.Content) != 1 {
		f.problems = append(f.problems, Problem{File: f.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		return nil
	}
	return doc.Content[0]
}

var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced$`)

// whereBroken is the place of an error that the parser tells without one: the line with which a file that ends there has it too.
func whereBroken(data []byte, err error) (line, column int) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	line = 1 + sort.Search(len(lines)-1, func(n int) bool {
		dec := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n+1], nil)))
		for {
			var doc yaml.Node
			if e := dec.Decode(&doc); e != nil {
				return e.Error() == err.Error()
			}
		}
	})
	if m := unknownAnchor.FindStringSubmatch(err.Error()); m != nil {
		if before, _, found := bytes.Cut(lines[line-1], []byte("*"+m[1])); found {
			return line, utf8.RuneCount(before) + 1
		}
	}
	return line, 1
}

// notUTF8 is the place of the first byte that is not UTF-8.
func notUTF8(data []byte) (line, column int) {
	line, column = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return line, column
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return 1, 1
}

// indentedByTab is the first line that begins with a tab, behind blanks or not; 0: there is none.
func indentedByTab(data []byte) int {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if rest := bytes.TrimLeft(text, " "); len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			return line
		}
	}
	return 0
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
