package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Jobs name a kind of these with agent: {kind: caller}; the format is the kind's own.
var newAgents = []agentfly.Option{
	agentfly.WithAgent(agents.Kind{Name: "caller", Description: "calls as in a program", Format: agents.FormatSpec{New: newBrackets("(", ")")}}),
	agentfly.WithAgentFactory("indexer", "calls in square brackets", newBrackets("[", "]")),
}

// brackets is the call format of both kinds: TOOL(TEXT), and what is no such line is the final answer.
type brackets struct{ open, end string }

func newBrackets(open, end string) agents.FormatFactory {
	return func([]tools.Spec, agents.FormatOptions) (agents.Format, error) { return brackets{open, end}, nil }
}

func (b brackets) Instructions() string {
	return "Write TOOL" + b.open + "TEXT" + b.end + ", or the answer."
}
func (brackets) Stops() []string { return nil }

func (b brackets) Parse(_ context.Context, completion string) (agents.Parsed, error) {
	tool, rest, called := strings.Cut(completion, b.open)
	text, ended := strings.CutSuffix(rest, b.end)
	if !called || !ended {
		return agents.Parsed{Answer: completion, HasAnswer: true}, nil
	}
	arguments, err := json.Marshal(map[string]string{"text": text})
	return agents.Parsed{Calls: []trajectory.ToolCall{{Name: tool, Arguments: arguments}}}, err
}

func (b brackets) Observe(_ context.Context, results []trajectory.ToolResult) (out []trajectory.Message, err error) {
	for _, r := range results {
		out = append(out, trajectory.Text("user", b.open+r.Observation+b.end))
	}
	return out, nil
}
