package dialects

import (
	"slices"

	"github.com/agentfly/agentfly/trajectory"
)

// Combined are the forms of a conversation for a chat template that refuses it as it is, the closest to it first. The APIs take neighbouring messages of
// one role (Anthropic: they "will be combined into a single turn") and instructions anywhere, and agents send both; templates such as Mistral's and
// Gemma's want user and assistant in turn behind one system message. begins: the messages begin the conversation, so that their first may be such a
// message.
//
//	neighbours of one role are one message
//	and a system message within the conversation is the user's
//	and what the user says behind the result of a tool stands in the result
func Combined(messages []trajectory.Message, begins bool) [][]trajectory.Message {
	joined := joinNeighbours(messages)
	users := slices.Clone(joined)
	for i := range users {
		if users[i].Role == "system" && (i > 0 || !begins) {
			users[i].Role = "user"
		}
	}
	users = joinNeighbours(users)
	var results []trajectory.Message
	for _, m := range users {
		if n := len(results) - 1; n >= 0 && m.Role == "user" && results[n].Role == "tool" {
			results[n] = join(results[n], m)
		} else {
			results = append(results, m)
		}
	}
	return [][]trajectory.Message{joined, users, results}
}

// joinNeighbours makes neighbouring messages of one role one. Calls and results of tools stay as they are: templates that want turns do not count them,
// and some drop the text beside a call.
func joinNeighbours(messages []trajectory.Message) (out []trajectory.Message) {
	for _, m := range messages {
		n := len(out) - 1
		if n >= 0 && out[n].Role == m.Role && m.Role != "tool" && len(out[n].ToolCalls)+len(m.ToolCalls) == 0 {
			out[n] = join(out[n], m)
		} else {
			out = append(out, m)
		}
	}
	return out
}

// join is a message with what another one says behind it, as texts of one message.
func join(m, next trajectory.Message) trajectory.Message {
	var content, thoughts pieces
	for _, p := range slices.Concat(m.Content, next.Content) {
		if p.Type == "image" {
			content.image(p.Image)
		} else {
			content.text(p.Text)
		}
	}
	m.Content = content.content("\n")
	thoughts.text(m.Reasoning)
	thoughts.text(next.Reasoning)
	for _, p := range thoughts.content("\n") {
		m.Reasoning = p.Text
	}
	return m
}
