package jinja

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Options are what the tokenizer adds to every rendering. An empty string is a token that the tokenizer does not have:
// its variable is undefined in the template.
type Options struct {
	BOSToken string
	EOSToken string
	Specials map[string]string // other variables by name: pad_token, unk_token, …
	ToolUse  string            // source of the template that renders conversations with tools, as in transformers; "": the same one
}

// probeTime is the time of renderings whose text is not used.
var probeTime = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Input is one conversation.
type Input struct {
	Messages            []trajectory.Message
	Tools               []json.RawMessage // JSON schemas, as the template's variable tools; nil is none
	AddGenerationPrompt bool
	Extra               map[string]any // further variables, such as enable_thinking; values as encoding/json decodes them
	// Text is what a string of a message, or of a schema (role ""), is rendered as; nil: as it is. Of roles and types it is not asked. free: the
	// string is a content or a thought; others are names, keys and values, which a template may compare with its own.
	Text func(role, s string, free bool) string
	Mark string    // one character that Text put into strings; filters that escape others leave it as it is
	Now  time.Time // what strftime_now tells; a template that calls it fails while this is zero
}

// Template is a compiled chat template.
type Template struct {
	source  string
	prog    *program
	lib     *library
	options Options
	toolUse *Template // of Options.ToolUse; nil without it
	noTools error     // why Options.ToolUse cannot be read
}

// Compile reads a template. The error is a *CompileError that names the construct and line. One in Options.ToolUse is told by ToolUse, and
// where a conversation with tools is rendered.
func Compile(source string, o Options) (*Template, error) {
	nodes, err := parse(source)
	if err != nil {
		return nil, err
	}
	lib := newLibrary()
	prog, err := compiler{expressionCompiler{lib}}.program(nodes)
	if err != nil {
		return nil, err
	}
	t := &Template{source: source, prog: prog, lib: lib, options: o}
	if o.ToolUse != "" {
		own := o
		own.ToolUse = ""
		if t.toolUse, err = Compile(o.ToolUse, own); err != nil {
			t.noTools = fmt.Errorf("tool_use: %w", err)
		}
	}
	return t, nil
}

// ToolUse is the template that Options.ToolUse gives for conversations with tools; nil: there is none, or it cannot be read. Render takes it by
// itself.
func (t *Template) ToolUse() (*Template, error) { return t.toolUse, t.noTools }

// Source is the text that was compiled.
func (t *Template) Source() string { return t.source }

// Options are those given to Compile.
func (t *Template) Options() Options { return t.options }

// with is the template of conversations with tools, or without.
func (t *Template) with(tools bool) (*Template, error) {
	switch {
	case !tools:
		return t, nil
	case t.noTools != nil:
		return nil, t.noTools
	case t.toolUse != nil:
		return t.toolUse, nil
	}
	return t, nil
}

// Render returns the text of a conversation. The error is a *RaisedError when the template itself refuses it, else a
// *RenderError.
func (t *Template) Render(in Input) (string, error) {
	t, err := t.with(in.Tools != nil)
	if err != nil {
		return "", err
	}
	messages := &list{}
	for i, m := range in.Messages {
		d, err := messageDict(m)
		if err != nil {
			return "", fmt.Errorf("template: message %d: %w", i, err)
		}
		if in.Text != nil {
			d = in.message(m.Role, d)
		}
		messages.items = append(messages.items, d)
	}
	var tools any
	if in.Tools != nil {
		l := &list{}
		for i, raw := range in.Tools {
			v, err := decodeJSON(string(raw))
			if err != nil {
				return "", fmt.Errorf("template: tool %d: %w", i, err)
			}
			if in.Text != nil {
				v = in.texts("", v, false)
			}
			l.items = append(l.items, v)
		}
		tools = l
	}
	return t.render(messages, tools, in)
}

// RenderJSON renders messages (a JSON list of objects) and tools (a JSON list, or nothing) as they are, whatever keys they
// have. The Messages and Tools of in are not used.
func (t *Template) RenderJSON(messages, tools json.RawMessage, in Input) (string, error) {
	v, err := decodeJSON(string(messages))
	if err != nil {
		return "", fmt.Errorf("template: messages: %w", err)
	}
	l, ok := v.(*list)
	if !ok {
		return "", fmt.Errorf("template: messages must be a JSON list, not %s", typeName(v))
	}
	for i, m := range l.items {
		if _, ok := m.(*dict); !ok {
			return "", fmt.Errorf("template: message %d must be a JSON object, not %s", i, typeName(m))
		}
	}
	var given any
	if len(tools) > 0 {
		if given, err = decodeJSON(string(tools)); err != nil {
			return "", fmt.Errorf("template: tools: %w", err)
		}
		if _, ok := given.(*list); !ok && given != nil {
			return "", fmt.Errorf("template: tools must be a JSON list, not %s", typeName(given))
		}
	}
	if t, err = t.with(given != nil); err != nil {
		return "", err
	}
	return t.render(l, given, in)
}

func (t *Template) render(messages *list, tools any, in Input) (string, error) {
	if len(messages.items) == 0 {
		return "", fmt.Errorf("template: an empty conversation cannot be rendered; provide at least one message")
	}
	chat := make([]any, len(messages.items))
	for i, m := range messages.items {
		chat[i] = prepared(m.(*dict))
	}
	vm := &machine{lib: t.lib, now: in.Now, mark: in.Mark, context: globals()}
	for name, token := range t.options.Specials {
		vm.context[name] = token
	}
	for name, token := range map[string]string{"bos_token": t.options.BOSToken, "eos_token": t.options.EOSToken} {
		if token != "" {
			vm.context[name] = token
		}
	}
	for name, v := range in.Extra {
		plain, err := fromGo(v)
		if err != nil {
			return "", fmt.Errorf("template: variable %s: %w", name, err)
		}
		vm.context[name] = plain
	}
	vm.context["messages"], vm.context["tools"], vm.context["documents"] = &list{chat}, tools, nil
	vm.context["add_generation_prompt"] = in.AddGenerationPrompt
	if docs, ok := in.Extra["documents"]; ok {
		plain, err := fromGo(docs)
		if err != nil {
			return "", fmt.Errorf("template: documents: %w", err)
		}
		vm.context["documents"] = plain
	}
	var out strings.Builder
	out.Grow(in.size())
	s := &state{machine: vm, act: t.prog.fn.activate(nil), out: &out}
	if _, err := t.prog.body(s); err != nil {
		return "", err
	}
	return out.String(), nil
}

// message passes the strings of a message, but for its role and the types of its parts, through Text.
func (in Input) message(role string, d *dict) *dict {
	out := newDict()
	for i, k := range d.keys {
		v := d.vals[i]
		switch parts, many := v.(*list); {
		case k == "role":
		case k == "content" && many:
			list := &list{}
			for _, p := range parts.items {
				part := newDict()
				for i, k := range p.(*dict).keys { // as messageDict made it
					v := p.(*dict).vals[i]
					if k != "type" {
						v = in.texts(role, v, k == "text")
					}
					part.put(k.(string), v)
				}
				list.items = append(list.items, part)
			}
			v = list
		default:
			v = in.texts(role, v, k == "content" || k == "reasoning_content")
		}
		out.put(k.(string), v)
	}
	return out
}

// texts passes the strings of a value, keys included, through Text.
func (in Input) texts(role string, v any, free bool) any {
	switch v := v.(type) {
	case string:
		return in.Text(role, v, free)
	case *list:
		out := &list{items: make([]any, len(v.items))}
		for i, item := range v.items {
			out.items[i] = in.texts(role, item, false)
		}
		return out
	case *dict:
		out := newDict()
		for i, k := range v.keys { // of JSON
			out.put(in.Text(role, k.(string), false), in.texts(role, v.vals[i], false))
		}
		return out
	}
	return v
}

// size is about what a conversation is written in, so that the text is not moved as it grows.
func (in Input) size() int {
	n := 64
	for _, m := range in.Messages {
		n += 40
		for _, p := range m.Content {
			n += len(p.Text)
		}
	}
	return n
}

// prepared is what transformers makes of a message: keys that hold null are dropped, and reasoning is found under each of
// its names.
func prepared(m *dict) *dict {
	var reasoning any
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if v, ok := m.str(name); ok && v != nil {
			reasoning = v
			break
		}
	}
	if reasoning == nil && !slices.Contains(m.vals, nil) {
		return m // nobody else has it
	}
	out := newDict()
	if reasoning != nil {
		out.put("thinking", reasoning)
	}
	for i, k := range m.keys {
		if m.vals[i] != nil {
			out.put(k.(string), m.vals[i])
		}
	}
	if reasoning != nil {
		out.put("reasoning_content", reasoning)
	}
	return out
}

// messageDict is the message in OpenAI's form, as trajectory.Message is written to JSON.
func messageDict(m trajectory.Message) (*dict, error) {
	d := newDict()
	d.put("role", m.Role)
	switch {
	case len(m.Content) == 0:
		d.put("content", "")
	case len(m.Content) == 1 && m.Content[0].Type == "text":
		d.put("content", m.Content[0].Text)
	default:
		parts := &list{}
		for _, p := range m.Content {
			part := newDict()
			part.put("type", p.Type)
			if p.Text != "" {
				part.put("text", p.Text)
			}
			if p.Image != "" {
				part.put("image", p.Image)
			}
			parts.items = append(parts.items, part)
		}
		d.put("content", parts)
	}
	if m.Reasoning != "" {
		d.put("reasoning_content", m.Reasoning)
	}
	calls := &list{}
	for i, c := range m.ToolCalls {
		call, fn := newDict(), newDict()
		if c.ID != "" {
			call.put("id", c.ID)
		}
		call.put("type", "function")
		args := any(newDict())
		if len(c.Arguments) > 0 {
			var err error
			if args, err = decodeJSON(string(c.Arguments)); err != nil {
				return nil, fmt.Errorf("tool call %d: arguments: %w", i, err)
			}
		}
		fn.put("name", c.Name)
		fn.put("arguments", args)
		call.put("function", fn)
		calls.items = append(calls.items, call)
	}
	if len(calls.items) > 0 {
		d.put("tool_calls", calls)
	}
	if m.ToolCallID != "" {
		d.put("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		d.put("name", m.Name)
	}
	return d, nil
}

// fromGo converts a value as encoding/json decodes it. Maps lose nothing: their keys come in sorted order.
func fromGo(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decodeJSON(string(raw))
}
