package dialects

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// messagesBody is the body of /v1/messages and of /v1/messages/count_tokens, which has no max_tokens.
type messagesBody struct {
	Model       string          `json:"model"`
	Messages    List            `json:"messages"`
	System      json.RawMessage `json:"system"`
	Tools       List            `json:"tools"`
	Choice      json.RawMessage `json:"tool_choice"`
	MaxTokens   *Whole          `json:"max_tokens"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	TopK        *Whole          `json:"top_k"`
	Stop        json.RawMessage `json:"stop_sequences"`
	Stream      bool            `json:"stream"`
	Thread      json.RawMessage `json:"thread"`
	Container   json.RawMessage `json:"container"`
	Servers     json.RawMessage `json:"mcp_servers"`
	Format      json.RawMessage `json:"output_format"`
	Output      *struct {
		Format json.RawMessage `json:"format"`
	} `json:"output_config"`
}

// Parse reads the body of a request for a message. The conversation must end with the user: a reply that the client begins and the model goes on with,
// Anthropic's prefill, cannot be honoured.
func (messages) Parse(_ http.Header, body []byte) (*Request, error) {
	q, err := parseMessages(body)
	if err == nil && q.Messages[len(q.Messages)-1].Role == "assistant" {
		err = badf("messages", "This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Parse reads the body of a request for a count.
func (messagesCount) Parse(_ http.Header, body []byte) (*Request, error) { return parseMessages(body) }

// parseMessages reads the body of either. `cache_control`, `thinking`, `metadata` and `context_management` say nothing to this server.
func parseMessages(body []byte) (*Request, error) {
	var in messagesBody
	if err := Decode(body, &in); err != nil {
		return nil, err
	}
	switch {
	case given(in.Thread):
		return nil, &Error{Status: http.StatusBadRequest, Param: "thread", Code: CodeThreads, Message: "thread is not supported: this server keeps no threads; send the whole history in messages, with system and tools"}
	case given(in.Container):
		return nil, unsupported("container")
	case given(in.Servers):
		return nil, unsupported("mcp_servers")
	}
	q := &Request{
		Model: in.Model, Param: "messages", N: 1, Parallel: true, Temperature: in.Temperature, TopP: in.TopP, TopK: (*int)(in.TopK), Repetition: 1, Stream: in.Stream, StreamUsage: true,
	}
	var err error
	if q.MaxTokens, err = limit("max_tokens", in.MaxTokens); err != nil {
		return nil, err
	}
	if q.Stop, err = stops("stop_sequences", in.Stop); err != nil {
		return nil, err
	}
	at, format := "output_format", in.Format
	if in.Output != nil && given(in.Output.Format) {
		at, format = "output_config.format", in.Output.Format
	}
	if q.Format, err = messagesFormat(at, format); err != nil {
		return nil, err
	}
	if q.Tools, err = messagesTools(in.Tools); err != nil {
		return nil, err
	}
	if err = q.messagesChoice(in.Choice); err != nil {
		return nil, err
	}
	if q.Messages, err = messagesOf(in.System, in.Messages); err != nil {
		return nil, err
	}
	return q, q.finish(body, "messages", "system", "tools")
}

func messagesFormat(at string, raw json.RawMessage) (*Schema, error) {
	if !given(raw) {
		return nil, nil
	}
	var f struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	if err := decodeAt(at, raw, &f); err != nil {
		return nil, err
	}
	if f.Type != "json_schema" || !isObject(f.Schema) {
		return nil, badf(at, `%s must be {"type": "json_schema", "schema": {…}}`, at)
	}
	return &Schema{Param: at, Schema: f.Schema, Strict: true}, nil
}

// messagesTools takes the client's own tools. Those with a version in their type, such as web_search_20250305, run at the vendor's, or have a
// schema that only the vendor's models know: they are left out.
func messagesTools(raw []json.RawMessage) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for i, r := range raw {
		at := fmt.Sprintf("tools[%d]", i)
		var t struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
		}
		if err := decodeAt(at, r, &t); err != nil {
			return nil, err
		}
		if t.Type != "" && t.Type != "custom" && !isObject(t.Schema) {
			continue
		}
		if t.Name == "" {
			return nil, badf(at, "%s has no name", at)
		}
		schema, err := newChatTool(t.Name, t.Description, t.Schema)
		if err != nil {
			return nil, badf(at, "%s: %v", at, err)
		}
		out = append(out, schema)
	}
	return out, nil
}

func (q *Request) messagesChoice(raw json.RawMessage) (err error) {
	var in struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Single bool   `json:"disable_parallel_tool_use"`
	}
	if !given(raw) {
		in.Type = "auto"
	} else if err := decodeAt("tool_choice", raw, &in); err != nil {
		return err
	}
	q.Parallel = !in.Single
	switch in.Type {
	case "auto", "none":
		q.Choice = Choice{Mode: ChoiceMode(in.Type)}
	case "any":
		q.Choice, err = choiceOf(Choice{Mode: ChoiceRequired}, q.Tools)
	case "tool":
		q.Choice, err = choiceOf(Choice{Mode: ChoiceNamed, Name: in.Name}, q.Tools)
	default:
		err = badf("tool_choice.type", "tool_choice.type is %q, allowed are auto, any, tool and none", wording.Clip(in.Type, 64))
	}
	return err
}

// messagesOf reads system and messages as a conversation.
func messagesOf(system json.RawMessage, raw []json.RawMessage) ([]trajectory.Message, error) {
	if len(raw) == 0 {
		return nil, badf("messages", "messages is missing or empty")
	}
	var out []trajectory.Message
	if given(system) {
		content, err := systemOf("system", system)
		if err != nil {
			return nil, err
		}
		if len(content) > 0 {
			out = append(out, trajectory.Message{Role: "system", Content: content})
		}
	}
	for i, r := range raw {
		at := fmt.Sprintf("messages[%d]", i)
		if !isObject(r) {
			return nil, badf(at, "%s is no object", at)
		}
		var in struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if err := decodeAt(at, r, &in); err != nil {
			return nil, err
		}
		role, err := roleOf(at, in.Role, "user", "assistant", "system")
		if err != nil {
			return nil, err
		}
		at += ".content"
		switch role {
		case "system":
			var content []trajectory.Part
			content, err = systemOf(at, in.Content)
			out = append(out, trajectory.Message{Role: role, Content: content})
		case "assistant":
			var m trajectory.Message
			m, err = assistantOf(at, in.Content)
			out = append(out, m)
		default:
			out, err = userOf(out, at, in.Content)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// billing begins a line that Claude Code puts before its system prompt. It holds a hash that differs between agents of one conversation.
const billing = "x-anthropic-billing-header:"

// systemOf reads a system prompt without the billing line.
func systemOf(at string, raw json.RawMessage) ([]trajectory.Part, error) {
	content, err := parts(at, raw, "\n", func(at string, raw json.RawMessage, to *pieces) error {
		var one pieces
		if err := blockOf(at, raw, &one); err != nil {
			return err
		}
		for _, p := range one.parts {
			if p.Type == "image" {
				to.image(p.Image)
			} else {
				to.text(unbilled(p.Text))
			}
		}
		return nil
	})
	if len(content) == 1 && content[0].Type == "text" {
		if content[0].Text = unbilled(content[0].Text); content[0].Text == "" {
			content = nil
		}
	}
	return content, err
}

// unbilled cuts off the billing line and the line ends behind it.
func unbilled(text string) string {
	if !strings.HasPrefix(text, billing) {
		return text
	}
	_, rest, _ := strings.Cut(text, "\n")
	return strings.TrimLeft(rest, "\n")
}

// block is a block of content.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	UseID     string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`
	ToolName  string          `json:"tool_name"`
	Source    json.RawMessage `json:"source"` // an imageSource of an image; a text of a search_result
}

type imageSource struct {
	Type  string `json:"type"`
	Media string `json:"media_type"`
	Data  string `json:"data"`
	URL   string `json:"url"`
}

// blockOf reads a block that is a text or an image.
func blockOf(at string, raw json.RawMessage, to *pieces) error {
	var in block
	if err := decodeAt(at, raw, &in); err != nil {
		return err
	}
	return in.read(at, to)
}

func (b *block) read(at string, to *pieces) error {
	var source imageSource
	if b.Type == "image" && len(b.Source) > 0 {
		if err := decodeAt(at+".source", b.Source, &source); err != nil {
			return err
		}
	}
	switch {
	case b.Type == "text":
		to.text(b.Text)
	case b.Type == "tool_reference": // a tool that a search found; all of them are in the prompt
		to.text(b.ToolName)
	case source.Type == "base64":
		to.image("data:" + source.Media + ";base64," + source.Data)
	case source.Type == "url":
		to.image(source.URL)
	default:
		return badf(at+".type", "%s is a block of type %q, which is not supported here", at, wording.Clip(b.Type, 64))
	}
	return nil
}

// userOf reads a user's message: each result of a tool is a message of its own, and so is what stands between them.
func userOf(out []trajectory.Message, at string, raw json.RawMessage) ([]trajectory.Message, error) {
	var said pieces
	before := len(out)
	flush := func() {
		if len(said.parts) > 0 {
			out = append(out, trajectory.Message{Role: "user", Content: said.content("\n")})
		}
		said = pieces{}
	}
	read := func(at string, raw json.RawMessage, _ *pieces) error {
		var in block
		if err := decodeAt(at, raw, &in); err != nil {
			return err
		}
		if in.Type != "tool_result" {
			return in.read(at, &said)
		}
		flush()
		content, err := parts(at+".content", in.Content, "\n", blockOf)
		if in.IsError && len(content) == 0 { // no template has a place for it
			content = []trajectory.Part{{Type: "text", Text: "error"}}
		}
		out = append(out, trajectory.Message{Role: "tool", ToolCallID: in.UseID, Content: content})
		return err
	}
	content, err := parts(at, raw, "\n", read)
	if err != nil {
		return nil, err
	}
	flush()
	if len(out) == before { // a text, or nothing
		out = append(out, trajectory.Message{Role: "user", Content: content})
	}
	return out, nil
}

// assistantOf reads a reply that a client sends back.
func assistantOf(at string, raw json.RawMessage) (trajectory.Message, error) {
	m := trajectory.Message{Role: "assistant"}
	content, err := parts(at, raw, "", func(at string, raw json.RawMessage, to *pieces) error {
		var in block
		if err := decodeAt(at, raw, &in); err != nil {
			return err
		}
		switch in.Type {
		case "thinking":
			if text, ok := unseal(in.Signature); ok {
				in.Thinking = text
			}
			m.Reasoning += in.Thinking
		case "redacted_thinking":
			text, _ := unseal(in.Data)
			m.Reasoning += text
		case "tool_use":
			if in.Name == "" {
				return badf(at+".name", "%s has no name", at)
			}
			if string(in.Input) == "null" {
				in.Input = nil
			}
			m.ToolCalls = append(m.ToolCalls, trajectory.ToolCall{ID: in.ID, Name: in.Name, Arguments: arguments(string(in.Input))})
		case "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "mcp_tool_use", "mcp_tool_result":
		default:
			return in.read(at, to)
		}
		return nil
	})
	m.Content = content
	return m, err
}
