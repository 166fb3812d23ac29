package job

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// findings are what is wrong with a job file so far, and where its values stand.
type findings struct {
	file     string
	origin   map[*yaml.Node]string // nodes that came from --set: the option
	at       map[string]*yaml.Node // by path of the value
	problems []Problem
}

func newFindings(file string) *findings {
	return &findings{file: file, origin: map[*yaml.Node]string{}, at: map[string]*yaml.Node{}}
}

// fail adds a problem of a node; nil: of the file.
func (f *findings) fail(n *yaml.Node, format string, args ...any) {
	p := Problem{File: f.file, Text: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
		if option, ok := f.origin[n]; ok {
			p.File, p.Line = option, 0
		}
	}
	f.problems = append(f.problems, p)
}

// position is where the value of path stands, or the closest value around it.
func (f *findings) position(path string) Problem {
	for {
		if n := f.at[path]; n != nil {
			p := Problem{File: f.file, Line: n.Line, Column: n.Column}
			if option, ok := f.origin[n]; ok {
				p.File, p.Line = option, 0
			}
			return p
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return Problem{File: f.file}
		}
		path = path[:i]
	}
}

// mark names the option as the origin of every node below n.
func (f *findings) mark(n *yaml.Node, label string) {
	f.origin[n] = label
	for _, c := range n.Content {
		f.mark(c, label)
	}
}

// fromSet tells whether a value, or a part of it, came from --set.
func (f *findings) fromSet(n *yaml.Node) bool {
	return f.origin[n] != "" || slices.ContainsFunc(n.Content, f.fromSet)
}
