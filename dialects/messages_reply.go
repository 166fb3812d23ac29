package dialects

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/agentfly/agentfly/internal/wording"
)

// Messages is Anthropic's Messages.
func Messages() Dialect { return messages{} }

type messages struct{}

// MessagesCount is the dialect of Anthropic's count_tokens. It differs from Messages in its Parse, which takes conversations that end with the assistant
// too; CountTokens writes the answer.
func MessagesCount() Dialect { return messagesCount{} }

type messagesCount struct{ messages }

// Name is messages.
func (messages) Name() string { return "messages" }

// CountTokens is the body of a reply to /v1/messages/count_tokens.
func CountTokens(n int) []byte { return []byte(fmt.Sprintf(`{"input_tokens":%d}`, n)) }

// anthropicKinds are Anthropic's names of errors.
var anthropicKinds = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error", 529: "overloaded_error", http.StatusGatewayTimeout: "timeout_error",
}

func anthropicBody(e *Error) object {
	kind := anthropicKinds[e.Status]
	switch {
	case kind != "":
	case e.Status >= 500:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	fault := object{"type": kind, "message": e.Message}
	switch {
	case e.Code == CodeThreads:
		fault["details"] = object{"error_code": CodeThreads, "unsupported": []string{"thread"}}
	case e.Limit > 0:
		fault["message"] = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.Tokens, e.Limit)
	case e.Code == CodeOverflow:
		fault["message"] = "prompt is too long: " + e.Message
	}
	return object{"type": "error", "error": fault}
}

// Fail answers with an error.
func (messages) Fail(w http.ResponseWriter, err error) {
	e := asError(err)
	fail(w, e, anthropicBody(e))
}

func anthropicStop(r Reply) (reason string, sequence any) {
	switch {
	case r.Finish == FinishLength:
		return "max_tokens", nil
	case r.Finish == FinishCalls:
		return "tool_use", nil
	case r.Stop != "":
		return "stop_sequence", r.Stop
	}
	return "end_turn", nil
}

// anthropicUsage counts cached tokens apart from the others.
func anthropicUsage(u Usage) object {
	return object{
		"input_tokens": u.Prompt - u.Cached, "cache_read_input_tokens": u.Cached, "cache_creation_input_tokens": 0, "output_tokens": u.Completion,
	}
}

func anthropicMessage(r Reply, content []object, stop, sequence any) object {
	return object{
		"id": "msg_" + r.ID, "type": "message", "role": "assistant", "model": r.Model, "content": content,
		"stop_reason": stop, "stop_sequence": sequence, "usage": anthropicUsage(r.Usage),
	}
}

// toolInput is the input of a call: its arguments, or the text that is no JSON.
func toolInput(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || !json.Valid(raw) {
		return arguments(string(raw))
	}
	return raw
}

// Whole is the body of a reply. One without a word has an empty text block: many clients read the first block's text.
func (messages) Whole(_ *Request, r Reply) ([]byte, error) {
	content := []object{}
	if r.Reasoning != "" {
		content = append(content, object{"type": "thinking", "thinking": r.Reasoning, "signature": seal(r.Reasoning)})
	}
	if r.Content != "" || len(r.Calls) == 0 {
		content = append(content, object{"type": "text", "text": r.Content})
	}
	for _, c := range r.Calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": toolInput(c.Arguments)})
	}
	stop, sequence := anthropicStop(r)
	return wording.JSON(anthropicMessage(r, content, stop, sequence))
}

// Stream begins a streamed reply.
func (messages) Stream(w http.ResponseWriter, _ *Request, base Reply) Writer {
	return &messagesWriter{events: NewEvents(w), base: base}
}

type messagesWriter struct {
	events *Events
	base   Reply
	begun  bool
	blocks int
	kind   string // of the block that is open: thinking, text or "" for none
	said   bool   // there was a text or a call
	text   []byte // of the open thinking block
}

func (w *messagesWriter) send(v object) error {
	return w.events.Send(v["type"].(string), v)
}

func (w *messagesWriter) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	return w.send(object{"type": "message_start", "message": anthropicMessage(w.base, []object{}, nil, nil)})
}

// Ping writes a ping event. The first one follows message_start, as clients expect.
func (w *messagesWriter) Ping() error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.send(object{"type": "ping"})
}

func (w *messagesWriter) open(kind string, content object) error {
	if err := w.close(); err != nil {
		return err
	}
	w.kind, w.text = kind, w.text[:0]
	w.said = w.said || kind != "thinking"
	return w.send(object{"type": "content_block_start", "index": w.blocks, "content_block": content})
}

func (w *messagesWriter) delta(delta object) error {
	return w.send(object{"type": "content_block_delta", "index": w.blocks, "delta": delta})
}

func (w *messagesWriter) close() error {
	if w.kind == "" {
		return nil
	}
	if w.kind == "thinking" {
		if err := w.delta(object{"type": "signature_delta", "signature": seal(string(w.text))}); err != nil {
			return err
		}
	}
	w.kind = ""
	w.blocks++
	return w.send(object{"type": "content_block_stop", "index": w.blocks - 1})
}

// Piece writes the events of a part of the reply.
func (w *messagesWriter) Piece(p Piece) error {
	if err := w.begin(); err != nil {
		return err
	}
	switch {
	case p.Call != nil:
		if err := w.open("tool_use", object{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Name, "input": object{}}); err != nil {
			return err
		}
		if err := w.delta(object{"type": "input_json_delta", "partial_json": string(toolInput(p.Call.Arguments))}); err != nil {
			return err
		}
		return w.close()
	case p.Reasoning != "":
		if w.kind != "thinking" {
			if err := w.open("thinking", object{"type": "thinking", "thinking": "", "signature": ""}); err != nil {
				return err
			}
		}
		w.text = append(w.text, p.Reasoning...)
		return w.delta(object{"type": "thinking_delta", "thinking": p.Reasoning})
	case p.Content != "":
		return w.content(p.Content)
	}
	return nil
}

func (w *messagesWriter) content(text string) error {
	if w.kind != "text" {
		if err := w.open("text", object{"type": "text", "text": ""}); err != nil {
			return err
		}
	}
	return w.delta(object{"type": "text_delta", "text": text})
}

// End closes the open block and writes stop reason and usage, without which clients fail.
func (w *messagesWriter) End(r Reply) error {
	if err := w.begin(); err != nil {
		return err
	}
	if !w.said {
		if err := w.open("text", object{"type": "text", "text": ""}); err != nil {
			return err
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	stop, sequence := anthropicStop(r)
	if err := w.send(object{
		"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": sequence}, "usage": anthropicUsage(r.Usage),
	}); err != nil {
		return err
	}
	return w.send(object{"type": "message_stop"})
}

// Fail writes an error event, or answers with the error.
func (w *messagesWriter) Fail(err error) {
	if !w.events.Begun() {
		messages{}.Fail(w.events.w, err)
		return
	}
	_ = w.send(anthropicBody(asError(err))) // the client may be gone
}
