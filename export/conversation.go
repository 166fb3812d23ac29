package export

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// line is a message of a trajectory's conversation.
type line struct {
	Role    string
	Text    string
	Thought string
	Calls   []call
	Turn    *trajectory.Turn // that sampled it; nil: nobody did
	Again   bool             // the agent rewrote its history: this stood there, in other words perhaps
	Shared  bool             // another branch of the tree sampled the turn
}

// call is a tool call with what came back.
type call struct {
	ID        string // unique in the conversation
	Name      string // "": an action in an environment, which has no name
	Arguments map[string]any
	Result    string
	Failed    bool
	Seconds   float64
}

// rewards are what a trajectory was paid, and the parts by name; ok is false where it has no reward.
func rewards(t *trajectory.Trajectory) (paid float64, parts map[string]float64, ok bool) {
	if !t.Scored() {
		return 0, nil, false
	}
	return t.Return(), t.RewardParts, true
}

// conversation is a trajectory in messages: its task, what the policy said, and what tools and environments answered, which stands with the calls. What
// the policy said is its text as it was sampled, with the calls and thoughts as the model writes them. The task is its prompt, or what an agent of another
// program made of it.
func conversation(r store.Record) (out []line) {
	add := func(messages []trajectory.Message, again bool) {
		for _, m := range messages {
			l := line{Role: m.Role, Text: plain(m.Content), Thought: m.Reasoning, Again: again}
			for i, c := range m.ToolCalls {
				l.Calls = append(l.Calls, call{ID: fmt.Sprintf("h%d-%d", len(out), i), Name: c.Name, Arguments: object(c.Arguments)})
			}
			out = append(out, l)
		}
	}
	turns := r.Trajectory.Turns
	if len(turns) == 0 || !whole(turns[0].Incoming) {
		add(r.Task.Prompt, false)
	}
	for k := range turns {
		t := &turns[k]
		add(t.Incoming.Sent(), k > 0 && t.Incoming != nil && t.Incoming.Whole)
		l := line{Role: "assistant", Text: t.Completion, Turn: t, Shared: !r.Trajectory.Owns(k)}
		for i, done := range t.Results {
			l.Calls = append(l.Calls, call{
				fmt.Sprintf("c%d-%d", k, i), done.Call.Name, object(done.Call.Arguments), done.Observation, done.Failed, done.Duration.Seconds(),
			})
		}
		out = append(out, l)
	}
	return out
}

// usage is the tokens that a turn read and sampled for its trajectory: a tree's shared ones count where they were sampled, so that sums over
// trajectories count them once.
func (l line) usage() (read, sampled int) {
	if l.Turn == nil || l.Shared {
		return 0, 0
	}
	return l.Turn.CompletionStart + l.Turn.BegunTokens(), l.Turn.Sampled()
}

// whole tells whether a call's messages are all that the policy read.
func whole(in *trajectory.Incoming) bool { return in != nil && in.Whole && len(in.Sent()) > 0 }

// plain is the text of a message. An image is told by a word: a data URL would be most of the file.
func plain(parts []trajectory.Part) string {
	var b bytes.Buffer
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		} else {
			b.WriteString("[" + p.Type + "]")
		}
	}
	return b.String()
}

// object is what a call's arguments hold. What is no JSON object stands in it as "arguments". Halves of surrogate pairs, which some readers refuse, are
// replaced by decoding them.
func object(raw json.RawMessage) map[string]any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{}
	}
	if err := d.Decode(&v); err != nil {
		return map[string]any{"arguments": string(raw)}
	}
	if o, ok := v.(map[string]any); ok {
		return o
	}
	return map[string]any{"arguments": v}
}
