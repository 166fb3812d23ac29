package dialects

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func TestCombined(t *testing.T) {
	say := trajectory.Text
	call := trajectory.Message{Role: "assistant", Content: say("", "I look.").Content, ToolCalls: []trajectory.ToolCall{{ID: "1", Name: "look"}}}
	result := func(text string) trajectory.Message {
		m := say("tool", text)
		m.ToolCallID = "1"
		return m
	}
	thought := say("assistant", "c")
	thought.Reasoning = "why"
	picture := trajectory.Message{Role: "user", Content: []trajectory.Part{{Type: "image", Image: "x"}}}
	for name, c := range map[string]struct {
		messages, joined, inTurn, inResult []trajectory.Message
		behind                             bool // other messages
	}{
		"neighbours": {
			messages: []trajectory.Message{say("system", "s"), say("system", "t"), say("user", "a"), say("user", "b"), say("assistant", "b"), thought, say("user", "d")},
			joined: []trajectory.Message{
				say("system", "s\nt"), say("user", "a\nb"), {Role: "assistant", Content: say("", "b\nc").Content, Reasoning: "why"}, say("user", "d"),
			},
		},
		"calls and results stay": {
			messages: []trajectory.Message{say("user", "a"), say("assistant", "b"), call, result("r"), result("q"), call, call},
			joined:   []trajectory.Message{say("user", "a"), say("assistant", "b"), call, result("r"), result("q"), call, call},
		},
		"a system message in the middle": {
			messages: []trajectory.Message{say("system", "s"), say("user", "a"), say("system", "t"), say("assistant", "b"), say("system", "u"), say("user", "c")},
			joined:   []trajectory.Message{say("system", "s"), say("user", "a"), say("system", "t"), say("assistant", "b"), say("system", "u"), say("user", "c")},
			inTurn:   []trajectory.Message{say("system", "s"), say("user", "a\nt"), say("assistant", "b"), say("user", "u\nc")},
		},
		"behind a result": {
			messages: []trajectory.Message{say("user", "a"), call, result("r"), say("user", "b"), say("system", "t")},
			joined:   []trajectory.Message{say("user", "a"), call, result("r"), say("user", "b"), say("system", "t")},
			inTurn:   []trajectory.Message{say("user", "a"), call, result("r"), say("user", "b\nt")},
			inResult: []trajectory.Message{say("user", "a"), call, result("r\nb\nt")},
		},
		"behind other messages": {
			messages: []trajectory.Message{say("system", "s"), say("user", "a")},
			joined:   []trajectory.Message{say("system", "s"), say("user", "a")},
			inTurn:   []trajectory.Message{say("user", "s\na")},
			behind:   true,
		},
		"an image": {
			messages: []trajectory.Message{say("user", "a"), picture},
			joined:   []trajectory.Message{{Role: "user", Content: append(say("", "a").Content, picture.Content...)}},
		},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]trajectory.Message(nil), c.messages...)
			if c.inTurn == nil {
				c.inTurn = c.joined
			}
			if c.inResult == nil {
				c.inResult = c.inTurn
			}
			require.Equal(t, [][]trajectory.Message{c.joined, c.inTurn, c.inResult}, Combined(c.messages, !c.behind))
			require.Equal(t, before, c.messages, "what was asked for stays")
		})
	}
}
