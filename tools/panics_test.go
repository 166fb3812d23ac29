package tools

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
)

// unspecified is a tool whose Spec panics; wildEnd one whose End does.
type unspecified struct{ Tool }

func (unspecified) Spec() Spec { panic("no config") }

type wildEnd struct {
	Tool
	ended *int
}

func (w wildEnd) End(string) {
	if *w.ended++; w.Spec().Name == "bad" {
		panic("no session")
	}
}

// What makes tools, and what a tool does beside its calls, may panic: the error names it, and others go on.
func TestPanicsBesideCallsAreErrors(t *testing.T) {
	c := NewCatalog()
	none := resources.New(resources.Options{})
	factory := func(f func() ([]Tool, error)) Factory {
		return func(context.Context, *resources.Resources, map[string]any) ([]Tool, error) { return f() }
	}
	require.NoError(t, c.Add("index", "", factory(func() ([]Tool, error) { panic("no index") })))
	require.NoError(t, c.Add("many", "", factory(func() ([]Tool, error) { return []Tool{unspecified{}}, nil })))
	_, err := c.Make(t.Context(), none, Ref{Name: "index"})
	require.Regexp(t, `^tools: index: its factory panicked: no index, at \S+panics_test\.go:\d+$`, err.Error())
	_, err = c.Make(t.Context(), none, Ref{Name: "many", Only: []string{"x"}})
	require.ErrorContains(t, err, "tools: many: the Spec of a tools.unspecified panicked: no config, at ")
	require.ErrorContains(t, NewRegistry(Options{}).Register(unspecified{}), "tools: register: the Spec of a tools.unspecified panicked: no config, at ")

	var reported []string
	r := NewRegistry(Options{Report: func(tool string, err error, trace []byte) {
		reported = append(reported, tool+": "+err.Error())
		require.Contains(t, string(trace), "wildEnd.End")
	}})
	ended := 0
	say := func(name string) Tool {
		return textTool(name, func(context.Context) (string, error) { return "", nil })
	}
	require.NoError(t, r.Register(wildEnd{say("bad"), &ended}, wildEnd{say("good"), &ended}))
	r.End("train-0-0-0")
	require.Equal(t, 2, ended, "the other one is told too")
	require.Equal(t, []string{"bad: tools: bad: End: panic: no session"}, reported)
}
