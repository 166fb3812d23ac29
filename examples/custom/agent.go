package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// words is a format of this module's own, for agents of kind custom: "compute EXPRESSION" calls the calculator, "say ANSWER" is the final
// answer, and the model reads "saw OBSERVATION". Package agents says of each method what it is for.
type words struct{ role string }

func newWords(_ []tools.Spec, o agents.FormatOptions) (agents.Format, error) {
	return words{cmp.Or(o.ObservationRole, "user")}, nil
}

func (words) Instructions() string { return "Write compute and an expression, or say and the answer." }
func (words) Stops() []string      { return nil }

// Parse makes calls, an answer, or an error that says how to do it right.
func (words) Parse(_ context.Context, completion string) (agents.Parsed, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(completion), " ")
	switch {
	case word == "compute" && rest != "":
		arguments, err := json.Marshal(map[string]string{"expression": rest})
		return agents.Parsed{Calls: []trajectory.ToolCall{{Name: "calculator", Arguments: arguments}}}, err
	case word == "say" && rest != "":
		return agents.Parsed{Answer: rest, HasAnswer: true}, nil
	}
	return agents.Parsed{Errors: []string{"write compute and an expression, or say and the answer"}}, nil
}

// Observe writes what the calls of a turn gave.
func (f words) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	lines := make([]string, len(results))
	for i, r := range results {
		if lines[i] = "saw " + r.Observation; r.Failed {
			lines[i] = "wrong"
		}
	}
	return []trajectory.Message{trajectory.Text(f.role, strings.Join(lines, "\n"))}, nil
}
