package dialects

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// parameters are those that chat and completions share. The last five are vLLM's.
type parameters struct {
	Model       string          `json:"model"`
	N           *Whole          `json:"n"`
	MaxTokens   *Whole          `json:"max_tokens"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	Stop        json.RawMessage `json:"stop"`
	Seed        *Whole64        `json:"seed"`
	Presence    *float64        `json:"presence_penalty"`
	Frequency   *float64        `json:"frequency_penalty"`
	LogitBias   json.RawMessage `json:"logit_bias"`
	Format      json.RawMessage `json:"response_format"`
	Stream      bool            `json:"stream"`
	Options     *struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`

	MinTokens  *Whole   `json:"min_tokens"`
	TopK       *Whole   `json:"top_k"`
	MinP       *float64 `json:"min_p"`
	Repetition *float64 `json:"repetition_penalty"`
	Echo       bool     `json:"echo"`
}

// request has the parameters.
func (p *parameters) request() (*Request, error) {
	q := &Request{
		Model: p.Model, N: 1, Parallel: true, Choice: Choice{Mode: ChoiceAuto}, Temperature: p.Temperature, TopP: p.TopP, TopK: (*int)(p.TopK), MinP: p.MinP,
		Seed: (*int64)(p.Seed), Repetition: 1, Stream: p.Stream, StreamUsage: p.Options != nil && p.Options.Usage,
	}
	set(&q.N, (*int)(p.N))
	set(&q.MinTokens, (*int)(p.MinTokens))
	set(&q.Presence, p.Presence)
	set(&q.Frequency, p.Frequency)
	set(&q.Repetition, p.Repetition)
	var err error
	switch {
	case q.N < 1:
		return nil, badf("n", "n is %d, it must be at least 1", q.N)
	case q.MinTokens < 0:
		return nil, badf("min_tokens", "min_tokens is %d, it must be at least 0", q.MinTokens)
	case given(p.LogitBias):
		return nil, unsupported("logit_bias")
	case p.Echo:
		return nil, unsupported("echo")
	}
	if q.MaxTokens, err = limit("max_tokens", p.MaxTokens); err != nil {
		return nil, err
	}
	if q.Stop, err = stops("stop", p.Stop); err != nil {
		return nil, err
	}
	q.Format, err = ParseFormat(p.Format)
	return q, err
}

func set[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// stops reads a string or a list of strings; empty ones say nothing.
func stops(param string, raw json.RawMessage) ([]string, error) {
	if !given(raw) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var elements List
	if err := decodeAt(param, raw, &elements); err != nil {
		return nil, err
	}
	var out []string
	for _, e := range elements {
		var s *string
		if err := json.Unmarshal(e, &s); err != nil {
			return nil, badf(param, "%s must be a string or a list of strings", param)
		}
		if s != nil && *s != "" {
			out = append(out, *s)
		}
	}
	return out, nil
}

// ParseFormat reads OpenAI's response_format; nil is free text.
func ParseFormat(raw json.RawMessage) (*Schema, error) {
	if !given(raw) {
		return nil, nil
	}
	var f struct {
		Type   string `json:"type"`
		Schema *struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict *bool           `json:"strict"`
		} `json:"json_schema"`
	}
	if err := decodeAt("response_format", raw, &f); err != nil {
		return nil, err
	}
	switch f.Type {
	case "text":
		return nil, nil
	case "json_object":
		return &Schema{Param: "response_format"}, nil
	case "json_schema":
		if f.Schema == nil || !isObject(f.Schema.Schema) {
			return nil, badf("response_format", `response_format has no schema; it must be {"type": "json_schema", "json_schema": {"name": …, "schema": {…}}}`)
		}
		s := &Schema{Param: "response_format", Name: f.Schema.Name, Schema: f.Schema.Schema}
		set(&s.Strict, f.Schema.Strict)
		return s, nil
	}
	return nil, badf("response_format", "response_format %q is not supported; allowed are text, json_object and json_schema", f.Type)
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// chatBody is the body of /v1/chat/completions.
type chatBody struct {
	parameters
	Messages    List            `json:"messages"`
	Tools       List            `json:"tools"`
	Choice      json.RawMessage `json:"tool_choice"`
	Parallel    *bool           `json:"parallel_tool_calls"`
	MaxComplete *Whole          `json:"max_completion_tokens"`
	Logprobs    bool            `json:"logprobs"`
	TopLogprobs *Whole          `json:"top_logprobs"`
	Functions   json.RawMessage `json:"functions"`
	Audio       json.RawMessage `json:"audio"`
	Modalities  []string        `json:"modalities"`

	AddPrompt *bool           `json:"add_generation_prompt"` // the last four are vLLM's
	Continue  json.RawMessage `json:"continue_final_message"`
	Template  json.RawMessage `json:"chat_template"`
	Documents json.RawMessage `json:"documents"`
}

// Parse reads a chat completion's request.
func (chat) Parse(_ http.Header, body []byte) (*Request, error) {
	var in chatBody
	if err := Decode(body, &in); err != nil {
		return nil, err
	}
	q, err := in.request()
	if err != nil {
		return nil, err
	}
	switch {
	case given(in.Functions):
		return nil, badf("functions", "functions is not supported by this server; use tools")
	case given(in.Audio) || slices.Contains(in.Modalities, "audio"):
		return nil, unsupported("audio")
	case in.AddPrompt != nil && !*in.AddPrompt:
		return nil, badf("add_generation_prompt", "add_generation_prompt: false is not supported by this server: every reply is a turn of its own; leave it out")
	case given(in.Continue):
		return nil, unsupported("continue_final_message")
	case given(in.Template):
		return nil, unsupported("chat_template")
	case given(in.Documents):
		return nil, unsupported("documents")
	}
	q.Param = "messages"
	if q.Messages, err = ParseMessages(in.Messages); err != nil {
		return nil, err
	}
	if q.Tools, err = parseTools(in.Tools); err != nil {
		return nil, err
	}
	if q.Choice, err = ParseChoice(in.Choice, q.Tools); err != nil {
		return nil, err
	}
	if in.MaxComplete != nil {
		if q.MaxTokens, err = limit("max_completion_tokens", in.MaxComplete); err != nil {
			return nil, err
		}
	}
	set(&q.Parallel, in.Parallel)
	q.Logprobs = in.Logprobs
	set(&q.TopLogprobs, (*int)(in.TopLogprobs))
	return q, q.finish(body, "messages", "tools")
}

// chatMessageIn is a message as clients send it. What OpenAI's helpers add as null is ignored.
type chatMessageIn struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Reasoning  *string         `json:"reasoning_content"`
	Refusal    *string         `json:"refusal"`
	Calls      List            `json:"tool_calls"`
	Call       *functionCall   `json:"function_call"` // of before tools, as the role function
	ToolCallID *string         `json:"tool_call_id"`
	Name       *string         `json:"name"`
}

// ParseMessages reads the messages of a chat.
func ParseMessages(raw []json.RawMessage) ([]trajectory.Message, error) {
	if len(raw) == 0 {
		return nil, badf("messages", "messages is missing or empty")
	}
	out := make([]trajectory.Message, len(raw))
	for i := range raw {
		var err error
		if out[i], err = chatMessage(fmt.Sprintf("messages[%d]", i), raw[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func chatMessage(at string, raw json.RawMessage) (m trajectory.Message, err error) {
	if !isObject(raw) {
		return m, badf(at, "%s is no object", at)
	}
	var in chatMessageIn
	if err := decodeAt(at, raw, &in); err != nil {
		return m, err
	}
	if in.Role == "function" {
		in.Role = "tool"
	}
	if m.Role, err = roleOf(at, in.Role, "system", "user", "assistant", "tool"); err != nil {
		return m, err
	}
	if m.Content, err = parts(at+".content", in.Content, separator(m.Role), chatPart); err != nil {
		return m, err
	}
	set(&m.Name, in.Name)
	if m.Role == "tool" {
		set(&m.ToolCallID, in.ToolCallID)
	}
	if m.Role != "assistant" {
		return m, nil
	}
	set(&m.Reasoning, in.Reasoning)
	for k, c := range in.Calls {
		call, err := chatCall(fmt.Sprintf("%s.tool_calls[%d]", at, k), c)
		if err != nil {
			return m, err
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	if in.Call != nil {
		call, err := in.Call.read(at+".function_call", at+".function_call.name", "")
		if err != nil {
			return m, err
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	if in.Refusal != nil && len(m.Content) == 0 {
		var p pieces
		p.text(*in.Refusal)
		m.Content = p.parts
	}
	return m, nil
}

// roleOf checks a role; developer is OpenAI's newer name of system.
func roleOf(at, role string, allowed ...string) (string, error) {
	if role == "developer" && slices.Contains(allowed, "system") {
		return "system", nil
	}
	switch {
	case role == "":
		return "", badf(at+".role", "%s has no role", at)
	case !slices.Contains(allowed, role):
		return "", badf(at+".role", "%s.role is %q, allowed are %s, and developer for system%s", at, wording.Clip(role, 64), strings.Join(allowed, ", "), wording.DidYouMean(role, allowed))
	}
	return role, nil
}

func chatCall(at string, raw json.RawMessage) (c trajectory.ToolCall, err error) {
	var in struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function functionCall `json:"function"`
	}
	if err := decodeAt(at, raw, &in); err != nil {
		return c, err
	}
	if in.Type != "" && in.Type != "function" {
		return c, badf(at+".type", "%s.type is %q, only function is supported", at, wording.Clip(in.Type, 64))
	}
	return in.Function.read(at, at+".function.name", in.ID)
}

// functionCall is a call without its id.
type functionCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (f *functionCall) read(at, name, id string) (c trajectory.ToolCall, err error) {
	if f.Name == "" {
		return c, badf(name, "%s has no name", at)
	}
	return trajectory.ToolCall{ID: id, Name: f.Name, Arguments: argumentsOf(f.Arguments)}, nil
}

// argumentsOf reads arguments that are a text or a value.
func argumentsOf(raw json.RawMessage) json.RawMessage {
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return arguments(text)
	}
	if string(raw) == "null" {
		raw = nil
	}
	return arguments(string(raw))
}

// parts reads content: null, a text, or a list whose elements part reads.
func parts(at string, raw json.RawMessage, sep string, part func(at string, raw json.RawMessage, to *pieces) error) ([]trajectory.Part, error) {
	var p pieces
	switch {
	case len(raw) == 0 || string(raw) == "null":
	case raw[0] == '"':
		var text string
		if err := decodeAt(at, raw, &text); err != nil {
			return nil, err
		}
		p.text(text)
	case raw[0] == '[':
		var elements List
		if err := decodeAt(at, raw, &elements); err != nil {
			return nil, err
		}
		for i, e := range elements {
			if err := part(fmt.Sprintf("%s[%d]", at, i), e, &p); err != nil {
				return nil, err
			}
		}
	default:
		return nil, badf(at, "%s must be a text or a list of parts", at)
	}
	return p.content(sep), nil
}

// chatPart reads one part of a chat message.
func chatPart(at string, raw json.RawMessage, to *pieces) error {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		err := decodeAt(at, raw, &text)
		to.text(text)
		return err
	}
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
	case "text":
		to.text(in.Text)
	case "refusal":
		to.text(in.Refusal)
	case "image_url":
		url, err := imageURL(at+".image_url", in.Image)
		if err != nil {
			return err
		}
		to.image(url)
	default:
		return badf(at+".type", "%s is a part of type %q, which is not supported; allowed are text and image_url", at, wording.Clip(in.Type, 64))
	}
	return nil
}

// imageURL reads a URL, or an object that has it.
func imageURL(at string, raw json.RawMessage) (url string, err error) {
	if len(raw) > 0 && raw[0] == '"' {
		err = decodeAt(at, raw, &url)
	} else if len(raw) > 0 {
		var in struct {
			URL string `json:"url"`
		}
		err = decodeAt(at, raw, &in)
		url = in.URL
	}
	if err == nil && url == "" {
		err = badf(at, "%s has no URL", at)
	}
	return url, err
}

// parseTools checks OpenAI's schemas. They stay as the client wrote them: the chat template writes them into the prompt.
func parseTools(raw []json.RawMessage) ([]json.RawMessage, error) {
	for i, t := range raw {
		if _, err := ToolName(fmt.Sprintf("tools[%d]", i), t); err != nil {
			return nil, err
		}
	}
	if len(raw) == 0 {
		return nil, nil
	}
	return raw, nil
}

// ToolName is the name of a tool's schema in OpenAI's form; at names the schema in errors.
func ToolName(at string, raw json.RawMessage) (string, error) {
	var tool struct {
		Type     string `json:"type"`
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := decodeAt(at, raw, &tool); err != nil {
		return "", err
	}
	if tool.Type != "function" || tool.Function == nil || tool.Function.Name == "" {
		return "", badf(at, `%s must be {"type": "function", "function": {"name": …}}`, at)
	}
	return tool.Function.Name, nil
}

// ParseChoice reads OpenAI's tool_choice of a chat; tools are the request's.
func ParseChoice(raw json.RawMessage, tools []json.RawMessage) (Choice, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Choice{Mode: ChoiceAuto}, nil
	}
	if raw[0] != '{' {
		var mode string
		if json.Unmarshal(raw, &mode) != nil {
			return Choice{}, badf("tool_choice", "tool_choice must be none, auto, required, or an object that names a function")
		}
		return choiceOf(Choice{Mode: ChoiceMode(mode)}, tools)
	}
	var in struct {
		Type     string `json:"type"`
		Name     string `json:"name"` // in Responses
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := decodeAt("tool_choice", raw, &in); err != nil {
		return Choice{}, err
	}
	if in.Function.Name != "" {
		in.Name = in.Function.Name
	}
	if in.Type != "function" || in.Name == "" {
		return Choice{}, badf("tool_choice", "tool_choice of type %q is not supported; allowed are none, auto, required, and a function with its name", wording.Clip(in.Type, 64))
	}
	return choiceOf(Choice{Mode: ChoiceNamed, Name: in.Name}, tools)
}

// choiceOf checks a choice against the request's tools.
func choiceOf(c Choice, tools []json.RawMessage) (Choice, error) {
	switch c.Mode {
	case ChoiceAuto, ChoiceNone:
		return c, nil
	case ChoiceRequired, ChoiceNamed:
	default:
		return c, badf("tool_choice", "tool_choice is %q, allowed are none, auto and required", wording.Clip(string(c.Mode), 64))
	}
	if len(tools) == 0 {
		return c, badf("tool_choice", "tool_choice is %s, but the request has no tools", c.Mode)
	}
	if c.Mode == ChoiceNamed {
		var names []string
		for i, t := range tools {
			name, err := ToolName(fmt.Sprintf("tools[%d]", i), t)
			if err != nil {
				return c, err
			}
			names = append(names, name)
		}
		if !slices.Contains(names, c.Name) {
			return c, badf("tool_choice", "tool_choice names %q, which is none of the tools%s", wording.Clip(c.Name, 64), wording.DidYouMean(c.Name, names))
		}
	}
	return c, nil
}
