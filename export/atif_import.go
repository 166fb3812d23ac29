package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Conversation is a trajectory of others, as the data of an sft job: {"messages": …, "tools": …}.
type Conversation struct {
	Messages []Learned         `json:"messages"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
}

// Learned is a message of a conversation; Weight 0 excludes what the assistant said from learning.
type Learned struct {
	trajectory.Message
	Weight *int
}

// MarshalJSON writes the message as OpenAI's, with the weight beside its fields.
func (l Learned) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(l.Message)
	if err != nil || l.Weight == nil {
		return b, err
	}
	return append(b[:len(b)-1], fmt.Sprintf(`,"weight":%d}`, *l.Weight)...), nil
}

// ReadATIF reads ATIF documents: one, a list of them, or several behind each other, such as one a line. It calls f for each trajectory from which something
// can be learned, those of subagents included, and returns how many others there were. It ends early, with the context's error, when that ends.
func ReadATIF(ctx context.Context, r io.Reader, f func(Conversation) error) (skipped int, err error) {
	d := json.NewDecoder(readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	}))
	n := 0
	one := func(raw json.RawMessage) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		var doc atifDocument
		if err := json.Unmarshal(raw, &doc); err != nil {
			return fmt.Errorf("document %d is no ATIF trajectory: %w", n, err)
		}
		if err := doc.each(func(c Conversation, learns bool) error {
			if !learns {
				skipped++
				return nil
			}
			return f(c)
		}); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		return nil
	}
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return skipped, fmt.Errorf("document %d is no JSON: %w", n+1, err)
		}
		if raw = bytes.TrimSpace(raw); raw[0] != '[' {
			if err := one(raw); err != nil {
				return skipped, err
			}
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return skipped, err
		}
		for _, item := range list {
			if err := one(item); err != nil {
				return skipped, err
			}
		}
	}
	if n == 0 {
		return skipped, errors.New("the file holds no ATIF document")
	}
	return skipped, nil
}

// readerFunc is a reader of one function.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

var atifVersions = regexp.MustCompile(`^ATIF-v1\.[0-8]$`)

// each calls f for the conversation of a document and of each subagent in it.
func (d atifDocument) each(f func(c Conversation, learns bool) error) error {
	if !atifVersions.MatchString(d.Version) {
		return fmt.Errorf("schema_version is %.40q; this program reads ATIF-v1.0 to %s", d.Version, atifVersion)
	}
	if len(d.Steps) == 0 {
		return errors.New("steps are missing; a trajectory has at least one")
	}
	c, learns := Conversation{Tools: d.Agent.Tools}, false
	for i, s := range d.Steps {
		if s.ID != i+1 {
			return fmt.Errorf("step_id of step %d is %d; they count from 1", i+1, s.ID)
		}
		messages, err := s.messages()
		if err != nil {
			return fmt.Errorf("step %d: %w", s.ID, err)
		}
		for _, m := range messages {
			learns = learns || m.Role == "assistant" && m.Weight == nil
		}
		c.Messages = append(c.Messages, messages...)
	}
	if err := f(c, learns); err != nil {
		return err
	}
	for i, sub := range d.Subagents {
		if err := sub.each(f); err != nil {
			return fmt.Errorf("subagent_trajectories[%d]: %w", i, err)
		}
	}
	return nil
}

// messages are those of a step. A step that was copied from elsewhere, or that no model wrote, is read and not learned.
func (s atifStep) messages() (out []Learned, err error) {
	role := map[string]string{"system": "system", "user": "user", "agent": "assistant"}[s.Source]
	switch {
	case role == "":
		return nil, fmt.Errorf("source is %.40q; allowed: system, user, agent", s.Source)
	case role != "assistant" && len(s.Calls) > 0:
		return nil, fmt.Errorf("tool_calls of the %s; only an agent calls tools", s.Source)
	}
	m := Learned{Message: trajectory.Text(role, string(s.Message))}
	m.Reasoning = s.Thought
	if role == "assistant" && (s.Copied || s.LLM != nil && *s.LLM == 0) {
		m.Weight = new(int)
	}
	inText := s.Extra[written] == true
	calls := map[string]string{} // names by id
	for k, c := range s.Calls {
		if c.ID == "" || c.Name == "" {
			return nil, fmt.Errorf("tool call %d has no tool_call_id or no function_name", k+1)
		}
		calls[c.ID] = c.Name
		if inText {
			continue
		}
		if !bytes.HasPrefix(bytes.TrimSpace(c.Arguments), []byte("{")) {
			return nil, fmt.Errorf("the arguments of tool call %d are no object", k+1)
		}
		m.ToolCalls = append(m.ToolCalls, trajectory.ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	if role == "assistant" || s.Message != "" || s.Seen == nil {
		out = append(out, m)
	}
	if s.Seen == nil {
		return out, nil
	}
	for k, r := range s.Seen.Results {
		role := "user"
		if inText { // what could not be read as a call is answered as a call is
			role = "tool"
		}
		answer := Learned{Message: trajectory.Text(role, string(r.Content))}
		if r.Call != nil {
			name, ok := calls[*r.Call]
			if !ok {
				return nil, fmt.Errorf("observation %d answers the call %.60q, which the step does not make", k+1, *r.Call)
			}
			answer = Learned{Message: trajectory.Text("tool", string(r.Content))}
			answer.ToolCallID, answer.Name = *r.Call, name
		}
		out = append(out, answer)
	}
	return out, nil
}

// UnmarshalJSON reads a text, null or a list of texts.
func (c *atifContent) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, (*string)(c))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("a message has a part of the type %.20q; only texts can be learned, take those trajectories out", p.Type)
		}
		b.WriteString(p.Text)
	}
	*c = atifContent(b.String())
	return nil
}
