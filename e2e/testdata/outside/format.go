package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Jobs name a format of these with agent: {kind: custom, format: ask}.
var newFormats = []agentfly.Option{
	agentfly.WithFormat(agents.FormatSpec{Name: "ask", Description: "ask TOOL TEXT, or tell ANSWER", New: newLines("ask", "tell")}),
	agentfly.WithFormatFactory("use", "use TOOL TEXT, or end ANSWER", newLines("use", "end")),
}

// lines is a call format of one line a turn: its first word says whether it is a call or the final answer.
type lines struct{ call, answer string }

func newLines(call, answer string) agents.FormatFactory {
	return func([]tools.Spec, agents.FormatOptions) (agents.Format, error) { return lines{call, answer}, nil }
}

func (l lines) Instructions() string {
	return fmt.Sprintf("Write %s, a tool and a text; or %s and the answer.", l.call, l.answer)
}
func (lines) Stops() []string { return nil }

func (l lines) Parse(_ context.Context, completion string) (agents.Parsed, error) {
	word, rest, _ := strings.Cut(completion, " ")
	switch word {
	case l.answer:
		return agents.Parsed{Answer: rest, HasAnswer: true}, nil
	case l.call:
		tool, text, _ := strings.Cut(rest, " ")
		arguments, err := json.Marshal(map[string]string{"text": text})
		return agents.Parsed{Calls: []trajectory.ToolCall{{Name: tool, Arguments: arguments}}}, err
	}
	return agents.Parsed{Errors: []string{l.Instructions()}}, nil
}

func (l lines) Observe(_ context.Context, results []trajectory.ToolResult) (out []trajectory.Message, err error) {
	for _, r := range results {
		out = append(out, trajectory.Text("user", l.call+"d: "+r.Observation))
	}
	return out, nil
}
