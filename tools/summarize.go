package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Rewriter is a tool whose successful call replaces the history of its trajectory: behind the system prompt and the task stand the messages that
// Rewrite makes of the call's arguments, and a new sample begins. It must be the only call of its turn. Rewrite gives the same messages
// each time: a resumed trajectory asks again.
type Rewriter interface {
	Tool
	Rewrite(arguments json.RawMessage) ([]trajectory.Message, error)
}

// summarize lets the model go on with a summary in place of all that it said and observed.
type summarize struct{ Tool }

type summarizeArguments struct {
	Text string `json:"text" doc:"everything that is needed to go on: what was found out, what is left to do"`
}

// SummaryPrefix begins the user's message that carries a summary.
const SummaryPrefix = "What came before is gone. Your summary of it:\n"

var _ Rewriter = summarize{}

// NewSummarize returns the tool summarize.
func NewSummarize() Tool {
	return summarize{NewFunc("summarize", "Replaces the conversation since the task by a summary, when it grows long. Call it alone.",
		func(_ context.Context, in summarizeArguments) (string, error) {
			if strings.TrimSpace(in.Text) == "" {
				return "", errors.New("the summary is empty; write what is needed to go on")
			}
			return "The conversation was replaced by the summary.", nil
		})}
}

// Rewrite implements Rewriter.
func (summarize) Rewrite(arguments json.RawMessage) ([]trajectory.Message, error) {
	var in summarizeArguments
	if err := json.Unmarshal(arguments, &in); err != nil {
		return nil, fmt.Errorf("tools: summarize: %w", err)
	}
	return []trajectory.Message{trajectory.Text("user", SummaryPrefix+strings.TrimSpace(in.Text))}, nil
}
