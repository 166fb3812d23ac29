package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
)

var newTools = []agentfly.Option{
	agentfly.WithTool(tools.NewFunc("reverse", "Reverses a text.", func(_ context.Context, a text) (string, error) {
		letters := []rune(a.Text)
		slices.Reverse(letters)
		return string(letters), nil
	})),
	agentfly.WithToolFactory("lookup", "looks a text up in the job's table", newLookup),
}

type text struct {
	Text string `json:"text" doc:"what is asked about"`
}

// newLookup makes the tool of a job that says {name: lookup, table: {…}}.
func newLookup(_ context.Context, _ *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	var p struct {
		Table map[string]string `json:"table"`
	}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if len(p.Table) == 0 {
		return nil, fmt.Errorf("the table is empty")
	}
	return []tools.Tool{tools.NewFunc("lookup", "Looks a text up.", func(_ context.Context, a text) (string, error) {
		found, ok := p.Table[a.Text]
		if !ok {
			return "", fmt.Errorf("the table has no %q", a.Text)
		}
		return found, nil
	})}, nil
}
