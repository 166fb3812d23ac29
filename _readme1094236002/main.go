package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
)

type notes struct{ of sync.Map } // by trajectory

func (n *notes) Spec() tools.Spec {
	return tools.Spec{Name: "notes", Description: "Keeps a note.", Stateful: true,
		Parameters: []byte(`{"type": "object", "properties": {"text": {"type": "string"}}}`)}
}

func (n *notes) Call(_ context.Context, c tools.Call) (tools.Observation, error) {
	before, _ := n.of.Swap(c.Trajectory, string(c.Arguments))
	return tools.Observation{Text: fmt.Sprint("before: ", before), Info: map[string]any{"first": before == nil}}, nil
}
func (n *notes) End(trajectory string) { n.of.Delete(trajectory) } // the trajectory is over and scored

func open(_ context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	n := &notes{}
	r.OnClose(func() error { n.of.Clear(); return nil }) // the job is over
	return []tools.Tool{n}, resources.Decode(params, &struct{}{})
}

func main() { agentfly.Main(agentfly.WithToolFactory("notes", "keeps a note", open)) }
