package dialects

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// space is a tool of a namespace: Codex sends tools in groups, and a call into a group must name it.
type space struct{ namespace, name string }

// responsesBody is the body of /v1/responses.
type responsesBody struct {
	Model        string          `json:"model"`
	Input        json.RawMessage `json:"input"`
	Instructions json.RawMessage `json:"instructions"`
	Tools        List            `json:"tools"`
	Choice       json.RawMessage `json:"tool_choice"`
	Parallel     *bool           `json:"parallel_tool_calls"`
	MaxTokens    *Whole          `json:"max_output_tokens"`
	Temperature  *float64        `json:"temperature"`
	TopP         *float64        `json:"top_p"`
	TopLogprobs  *Whole          `json:"top_logprobs"`
	Include      List            `json:"include"`
	Stream       bool            `json:"stream"`
	Previous     json.RawMessage `json:"previous_response_id"`
	Conversation json.RawMessage `json:"conversation"`
	Prompt       json.RawMessage `json:"prompt"`
	Background   bool            `json:"background"`
	Metadata     json.RawMessage `json:"metadata"`

	Text map[string]json.RawMessage `json:"text"`
}

// repeated are the parameters that a reply has as they were sent. Those that were not have their defaults.
func (in *responsesBody) repeated() object {
	out := object{}
	if given(in.Instructions) {
		out["instructions"] = in.Instructions
	}
	if given(in.Metadata) {
		out["metadata"] = in.Metadata
	}
	if len(in.Tools) > 0 {
		out["tools"] = in.Tools
	}
	if in.Text != nil {
		text := maps.Clone(in.Text)
		if !given(text["format"]) {
			text["format"] = json.RawMessage(`{"type":"text"}`)
		}
		out["text"] = text
	}
	return out
}

// Parse reads a request for a response. `store` is ignored: nothing is stored, and who wants to go on sends the items again.
func (responses) Parse(_ http.Header, body []byte) (*Request, error) {
	var in responsesBody
	if err := Decode(body, &in); err != nil {
		return nil, err
	}
	switch {
	case given(in.Previous):
		return nil, notStored("previous_response_id")
	case given(in.Conversation):
		return nil, notStored("conversation")
	case given(in.Prompt):
		return nil, badf("prompt", "prompt names a stored template, and this server stores none; send its text as instructions")
	case in.Background:
		return nil, badf("background", "background is not supported by this server; leave it out and wait for the reply")
	}
	q := &Request{
		Model: in.Model, Param: "input", N: 1, Parallel: true, Temperature: in.Temperature, TopP: in.TopP, Repetition: 1, Stream: in.Stream, StreamUsage: true,
	}
	set(&q.Parallel, in.Parallel)
	q.repeats = in.repeated()
	set(&q.TopLogprobs, (*int)(in.TopLogprobs))
	q.Logprobs = slices.ContainsFunc(in.Include, func(name json.RawMessage) bool { return string(name) == `"message.output_text.logprobs"` })
	var err error
	if q.MaxTokens, err = limit("max_output_tokens", in.MaxTokens); err != nil {
		return nil, err
	}
	if q.Format, err = responsesFormat(in.Text["format"]); err != nil {
		return nil, err
	}
	if err = q.responsesTools(in.Tools); err != nil {
		return nil, err
	}
	if q.Choice, err = ParseChoice(in.Choice, q.Tools); err != nil {
		return nil, err
	}
	if q.Messages, err = q.items(in.Instructions, in.Input); err != nil {
		return nil, err
	}
	return q, q.finish(body, "input", "instructions", "tools")
}

func notStored(param string) *Error {
	e := badf(param, "%s: this server stores no responses; send all earlier items in input, the reasoning items with their encrypted_content too", param)
	e.Code = CodeStored
	return e
}

// responsesFormat reads text.format; it is that of a chat with its schema one level higher.
func responsesFormat(raw json.RawMessage) (*Schema, error) {
	if !given(raw) {
		return nil, nil
	}
	var f struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict *bool           `json:"strict"`
	}
	if err := decodeAt("text.format", raw, &f); err != nil {
		return nil, err
	}
	switch {
	case f.Type == "text":
		return nil, nil
	case f.Type == "json_object":
		return &Schema{Param: "text.format"}, nil
	case f.Type != "json_schema":
		return nil, badf("text.format", "text.format %q is not supported; allowed are text, json_object and json_schema", wording.Clip(f.Type, 64))
	case !isObject(f.Schema):
		return nil, badf("text.format.schema", `text.format has no schema; it must be {"type": "json_schema", "name": …, "schema": {…}}`)
	}
	s := &Schema{Param: "text.format", Name: f.Name, Schema: f.Schema}
	set(&s.Strict, f.Strict)
	return s, nil
}

// functionTool is a function of Responses, or a namespace with functions.
type functionTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       List            `json:"tools"`
}

// chatTool is a schema in the form of a chat, which chat templates expect.
type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	} `json:"function"`
}

func newChatTool(name, description string, parameters json.RawMessage) (json.RawMessage, error) {
	t := chatTool{Type: "function"}
	t.Function.Name, t.Function.Description = name, description
	if given(parameters) || isObject(parameters) {
		t.Function.Parameters = parameters
	}
	return wording.JSON(t)
}

// responsesTools takes the functions. Hosted tools, such as web_search, and custom ones are left out. Those that the client runs itself but only the
// vendor's models know, such as local_shell, are refused: an agent that has no others can do nothing. Functions have their own names, also where a namespace
// before them has a tool of the same name.
func (q *Request) responsesTools(raw []json.RawMessage) error {
	taken, read := toolNames{}, make([]functionTool, len(raw))
	for i, r := range raw {
		at := fmt.Sprintf("tools[%d]", i)
		t := &read[i]
		if err := decodeAt(at, r, t); err != nil {
			return err
		}
		if t.Type != "function" && t.Type != "namespace" {
			if err := t.leaveOut(at); err != nil {
				return err
			}
			continue
		}
		if t.Name == "" {
			return badf(at, "%s has no name", at)
		}
		if t.Type == "function" {
			if err := taken.take(at, t.Name); err != nil {
				return err
			}
		}
	}
	for i, t := range read {
		at := fmt.Sprintf("tools[%d]", i)
		var err error
		switch t.Type {
		case "function":
			err = q.addFunction(at, t.Name, t)
		case "namespace":
			err = q.addNamespace(at, t, taken)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveOut refuses a tool that is none of those to leave out.
func (t *functionTool) leaveOut(at string) error {
	if hosted(t.Type) || t.Type == "custom" {
		return nil
	}
	return badf(at+".type", "%s is a tool of type %q, which is not supported; allowed are function, namespace and hosted tools, which are left out", at, wording.Clip(t.Type, 64))
}

// toolNames are the names that the model has for tools.
type toolNames map[string]bool

func (n toolNames) take(at, name string) error {
	if n[name] {
		return badf(at, "%s: there are two tools named %q", at, wording.Clip(name, 64))
	}
	n[name] = true
	return nil
}

func (q *Request) addFunction(at, name string, t functionTool) error {
	schema, err := newChatTool(name, t.Description, t.Parameters)
	if err != nil {
		return badf(at, "%s: %v", at, err)
	}
	q.Tools = append(q.Tools, schema)
	return nil
}

// addNamespace adds the functions of a namespace. One whose name is taken has the namespace before it.
func (q *Request) addNamespace(at string, t functionTool, taken toolNames) error {
	for k, r := range t.Tools {
		at := fmt.Sprintf("%s.tools[%d]", at, k)
		var inner functionTool
		if err := decodeAt(at, r, &inner); err != nil {
			return err
		}
		if inner.Type != "function" {
			if err := inner.leaveOut(at); err != nil {
				return err
			}
			continue
		}
		if inner.Name == "" {
			return badf(at, "%s has no name", at)
		}
		name := inner.Name
		if taken[name] {
			name = t.Name + "__" + name
		}
		if err := taken.take(at, name); err != nil {
			return err
		}
		if q.spaces == nil {
			q.spaces = map[string]space{}
		}
		q.spaces[name] = space{t.Name, inner.Name}
		if err := q.addFunction(at, name, inner); err != nil {
			return err
		}
	}
	return nil
}

// toolNamed is the name in Tools of a function that a client names with its namespace.
func (q *Request) toolNamed(namespace, name string) string {
	if namespace == "" {
		return name
	}
	for known, s := range q.spaces {
		if s == (space{namespace, name}) {
			return known
		}
	}
	return name
}

// inputItem is an item of input: a message, a reasoning, a call or its output.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Summary   List            `json:"summary"`
	Encrypted *string         `json:"encrypted_content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace *string         `json:"namespace"`
	Arguments json.RawMessage `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
}

// items reads instructions and input as a conversation.
func (q *Request) items(instructions, input json.RawMessage) ([]trajectory.Message, error) {
	c := conversation{q: q}
	if given(instructions) {
		var err error
		if instructions[0] == '"' {
			m := trajectory.Message{Role: "system"}
			m.Content, err = parts("instructions", instructions, "\n", responsesPart)
			c.messages = append(c.messages, m)
		} else {
			err = c.list("instructions", instructions)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case len(input) == 0 || string(input) == "null":
		return nil, badf("input", "input is missing")
	case input[0] == '"':
		m := trajectory.Message{Role: "user"}
		var err error
		if m.Content, err = parts("input", input, "\n", responsesPart); err != nil {
			return nil, err
		}
		c.messages = append(c.messages, m)
	default:
		if err := c.list("input", input); err != nil {
			return nil, err
		}
	}
	if len(c.messages) == 0 {
		return nil, badf("input", "input is empty")
	}
	return c.messages, nil
}

// conversation makes messages of items. The reasoning, texts and calls of one reply come as items of their own and become one message.
type conversation struct {
	q        *Request
	messages []trajectory.Message
	open     bool // the last message is a reply to which items may belong
	said     bool // its last item is a text
}

func (c *conversation) list(at string, raw json.RawMessage) error {
	var elements List
	if err := decodeAt(at, raw, &elements); err != nil {
		return err
	}
	for i, e := range elements {
		if err := c.item(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
			return err
		}
	}
	return nil
}

// reply is the message that an item of a reply belongs to. A text behind a text begins another reply, and so does a reasoning behind anything.
func (c *conversation) reply(text, reasoning bool) *trajectory.Message {
	if c.open {
		last := &c.messages[len(c.messages)-1]
		begins := text && c.said || reasoning && (len(last.Content) > 0 || len(last.ToolCalls) > 0)
		if !begins {
			c.said = text
			return last
		}
	}
	c.messages = append(c.messages, trajectory.Message{Role: "assistant"})
	c.open, c.said = true, text
	return &c.messages[len(c.messages)-1]
}

func (c *conversation) other(m trajectory.Message) {
	c.messages, c.open = append(c.messages, m), false
}

func (c *conversation) item(at string, raw json.RawMessage) error {
	if !isObject(raw) {
		return badf(at, "%s is no object", at)
	}
	var in inputItem
	if err := decodeAt(at, raw, &in); err != nil {
		return err
	}
	switch in.Type {
	case "", "message":
		return c.message(at, &in)
	case "reasoning":
		text, err := in.reasoning(at)
		if err != nil || text == "" {
			return err
		}
		c.reply(false, true).Reasoning += text
		return nil
	case "function_call", "custom_tool_call":
		if in.Name == "" {
			return badf(at+".name", "%s has no name", at)
		}
		call := trajectory.ToolCall{ID: in.CallID, Name: in.Name, Arguments: argumentsOf(in.Arguments)}
		if in.Namespace != nil {
			call.Name = c.q.toolNamed(*in.Namespace, in.Name)
		}
		if in.Type == "custom_tool_call" {
			call.Arguments = arguments(in.Input)
		}
		m := c.reply(false, false)
		m.ToolCalls = append(m.ToolCalls, call)
		return nil
	case "function_call_output", "custom_tool_call_output":
		content, err := parts(at+".output", in.Output, "\n", responsesPart)
		c.other(trajectory.Message{Role: "tool", ToolCallID: in.CallID, Content: content})
		return err
	case "item_reference":
		return notStored(at)
	}
	if hosted(in.Type) {
		return nil
	}
	return badf(at+".type", "%s is an item of type %q, which is not supported; allowed are message, reasoning, function_call and function_call_output", at, wording.Clip(in.Type, 64))
}

// hosted tells tools that run at a vendor's, and their items, by their types: both are left out.
func hosted(kind string) bool {
	for _, prefix := range []string{"web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search", "programmatic_tool_calling"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

func (c *conversation) message(at string, in *inputItem) error {
	role, err := roleOf(at, in.Role, "system", "user", "assistant")
	if err != nil {
		return err
	}
	content, err := parts(at+".content", in.Content, separator(role), responsesPart)
	if err != nil {
		return err
	}
	if role != "assistant" {
		c.other(trajectory.Message{Role: role, Content: content})
		return nil
	}
	if thought, ok := thoughtAlone(content); ok { // so pydantic-ai sends a reasoning item back
		c.reply(false, true).Reasoning += thought
		return nil
	}
	m := c.reply(true, false)
	if len(m.Content) == 1 && len(content) == 1 && m.Content[0].Type == "text" && content[0].Type == "text" {
		m.Content = []trajectory.Part{{Type: "text", Text: m.Content[0].Text + content[0].Text}}
	} else {
		m.Content = append(m.Content, content...)
	}
	return nil
}

// thoughtAlone reads a message that is a thought between its tags and nothing else.
func thoughtAlone(content []trajectory.Part) (string, bool) {
	if len(content) != 1 || content[0].Type != "text" {
		return "", false
	}
	text, ok := strings.CutPrefix(content[0].Text, "<think>\n")
	if !ok {
		return "", false
	}
	text, ok = strings.CutSuffix(text, "\n</think>")
	return text, ok && !strings.Contains(text, "</think>")
}

// reasoning is what we sealed, where the client sent it back, else the text that it has.
func (in *inputItem) reasoning(at string) (string, error) {
	if in.Encrypted != nil {
		if text, ok := unseal(*in.Encrypted); ok {
			return text, nil
		}
	}
	content, err := parts(at+".content", in.Content, "", responsesPart)
	if err != nil {
		return "", err
	}
	if len(content) == 1 {
		return content[0].Text, nil
	}
	var p pieces
	for i, s := range in.Summary {
		if err := responsesPart(fmt.Sprintf("%s.summary[%d]", at, i), s, &p); err != nil {
			return "", err
		}
	}
	for _, part := range p.content("\n\n") {
		return part.Text, nil
	}
	return "", nil
}

// responsesPart reads one part of an item's content.
func responsesPart(at string, raw json.RawMessage, to *pieces) error {
	var in struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Refusal string          `json:"refusal"`
		Image   json.RawMessage `json:"image_url"`
	}
	if err := decodeAt(at, raw, &in); err != nil {
		return err
	}
	switch in.Type {
	case "input_text", "output_text", "text", "summary_text", "reasoning_text":
		to.text(in.Text)
	case "refusal":
		to.text(in.Refusal)
	case "input_image":
		url, err := imageURL(at+".image_url", in.Image)
		if err != nil {
			return err
		}
		to.image(url)
	default:
		return badf(at+".type", "%s is a part of type %q, which is not supported; allowed are input_text, output_text and input_image", at, wording.Clip(in.Type, 64))
	}
	return nil
}
