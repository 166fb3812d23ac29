package objective

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/trajectory"
)

// observed is a conversation in which answers of tools stand as the agent's format writes them for a rollout, where the calls are in the assistant's text.
// Answers to tool_calls are the chat template's, as the calls are.
func (l Layout) observed(c data.Conversation) (data.Conversation, error) {
	if l.sampler.Format == nil {
		return c, nil
	}
	out := data.Conversation{ID: c.ID, Tools: c.Tools}
	inText := false
	for i := 0; i < len(c.Messages); {
		m := c.Messages[i]
		if m.Role != "tool" || !inText {
			inText = m.Role == "assistant" && len(m.ToolCalls) == 0
			out.Messages, out.Learned = append(out.Messages, m), append(out.Learned, c.Learned[i])
			i++
			continue
		}
		var results []trajectory.ToolResult
		for ; i < len(c.Messages) && c.Messages[i].Role == "tool"; i++ {
			answer := c.Messages[i]
			text, err := answer.TextContent()
			if err != nil {
				return out, fmt.Errorf("message %d: %w", i, err)
			}
			results = append(results, trajectory.ToolResult{Call: trajectory.ToolCall{ID: answer.ToolCallID, Name: answer.Name}, Observation: text})
		}
		messages, err := panics.Value("observe", func() ([]trajectory.Message, error) {
			return l.sampler.Format.Observe(context.Background(), results)
		})
		if err != nil {
			return out, fmt.Errorf("the agent's format: %w", err)
		}
		out.Messages, out.Learned = append(out.Messages, messages...), append(out.Learned, make([]bool, len(messages))...)
	}
	return out, nil
}
