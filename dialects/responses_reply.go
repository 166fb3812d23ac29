package dialects

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Responses is OpenAI's Responses, without anything stored: a reply's reasoning comes back in the encrypted_content of its item.
func Responses() Dialect { return responses{} }

type responses struct{}

// Name is responses.
func (responses) Name() string { return "responses" }

// Fail answers with an error.
func (responses) Fail(w http.ResponseWriter, err error) { openAIFail(w, err) }

// object is a JSON object whose members are written in the order of their names.
type object = map[string]any

// response is the object that a reply is, and that the first and last events hold. The parameters are those of the request.
func response(q *Request, r Reply, status string, output []object) object {
	out := object{
		"id": "resp_" + r.ID, "object": "response", "created_at": r.Created.Unix(), "model": r.Model, "status": status,
		"output": output, "error": nil, "incomplete_details": nil, "instructions": nil, "metadata": object{}, "previous_response_id": nil,
		"parallel_tool_calls": q.Parallel, "max_output_tokens": q.MaxTokens, "temperature": q.Temperature, "top_p": q.TopP,
		"tool_choice": responsesChoice(q.Choice), "tools": []object{}, "store": false, "truncation": "disabled", "usage": nil,
		"reasoning": object{"effort": nil, "summary": nil}, "text": object{"format": object{"type": "text"}},
	}
	maps.Copy(out, q.repeats)
	if status == "incomplete" {
		out["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	if status != "in_progress" {
		out["usage"] = object{
			"input_tokens": r.Usage.Prompt, "input_tokens_details": object{"cached_tokens": r.Usage.Cached},
			"output_tokens": r.Usage.Completion, "output_tokens_details": object{"reasoning_tokens": r.Usage.Reasoning},
			"total_tokens": r.Usage.Prompt + r.Usage.Completion,
		}
	}
	return out
}

func responsesChoice(c Choice) any {
	switch c.Mode {
	case "":
		return ChoiceAuto
	case ChoiceNamed:
		return object{"type": "function", "name": c.Name}
	}
	return c.Mode
}

func responsesStatus(f Finish) string {
	if f == FinishLength {
		return "incomplete"
	}
	return "completed"
}

// numbered names an item of a reply: the first of its kind has no number.
func numbered(kind, id string, n int) string {
	if n == 0 {
		return kind + id
	}
	return fmt.Sprintf("%s%s_%d", kind, id, n)
}

func reasoningItem(id, text string) object {
	return object{"id": id, "type": "reasoning", "summary": []object{{"type": "summary_text", "text": text}}, "encrypted_content": seal(text)}
}

func outputText(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

func messageItem(id, text, status string) object {
	return object{"id": id, "type": "message", "role": "assistant", "status": status, "content": []object{outputText(text)}}
}

// callItem is a call as the client knows its tool: with the namespace that the tool came in.
func callItem(q *Request, id, status, arguments string, c *trajectory.ToolCall) object {
	out := object{"id": id, "type": "function_call", "status": status, "call_id": c.ID, "name": c.Name, "arguments": arguments}
	if s, ok := q.spaces[c.Name]; ok {
		out["namespace"], out["name"] = s.namespace, s.name
	}
	return out
}

// Whole is the body of a reply.
func (responses) Whole(q *Request, r Reply) ([]byte, error) {
	output, status := []object{}, responsesStatus(r.Finish)
	if r.Reasoning != "" {
		output = append(output, reasoningItem("rs_"+r.ID, r.Reasoning))
	}
	if r.Content != "" || len(r.Calls) == 0 {
		output = append(output, messageItem("msg_"+r.ID, r.Content, status))
	}
	for i := range r.Calls {
		output = append(output, callItem(q, numbered("fc_", r.ID, i), "completed", argumentsText(r.Calls[i].Arguments), &r.Calls[i]))
	}
	return wording.JSON(response(q, r, status, output))
}

// Stream begins a streamed reply.
func (responses) Stream(w http.ResponseWriter, q *Request, base Reply) Writer {
	return &responsesWriter{events: NewEvents(w), q: q, base: base, output: []object{}}
}

type responsesWriter struct {
	events *Events
	q      *Request
	base   Reply
	serial int // of the next event
	begun  bool
	output []object // the items that ended

	kind   string // of the item that is open: reasoning, message or "" for none
	id     string // its
	text   []byte // its
	counts [3]int // reasonings, messages and calls so far
}

// Ping writes a comment.
func (w *responsesWriter) Ping() error { return w.events.Comment("ping") }

func (w *responsesWriter) send(kind string, v object) error {
	v["type"], v["sequence_number"] = kind, w.serial
	w.serial++
	return w.events.Send(kind, v)
}

// sendAll writes events in their order; each is a type and its members.
func (w *responsesWriter) sendAll(events ...event) error {
	for _, e := range events {
		if err := w.send(e.kind, e.members); err != nil {
			return err
		}
	}
	return nil
}

type event struct {
	kind    string
	members object
}

func (w *responsesWriter) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	return w.sendAll(
		event{"response.created", object{"response": response(w.q, w.base, "in_progress", []object{})}},
		event{"response.in_progress", object{"response": response(w.q, w.base, "in_progress", []object{})}},
	)
}

// Piece writes the events of a part of the reply.
func (w *responsesWriter) Piece(p Piece) error {
	if err := w.begin(); err != nil {
		return err
	}
	switch {
	case p.Call != nil:
		return w.call(p.Call)
	case p.Reasoning != "":
		return w.delta("reasoning", p.Reasoning)
	case p.Content != "":
		return w.delta("message", p.Content)
	}
	return nil
}

func (w *responsesWriter) call(c *trajectory.ToolCall) error {
	if err := w.close("completed"); err != nil {
		return err
	}
	id, index, arguments := numbered("fc_", w.base.ID, w.counts[2]), len(w.output), argumentsText(c.Arguments)
	w.counts[2]++
	done := callItem(w.q, id, "completed", arguments, c)
	w.output = append(w.output, done)
	return w.sendAll(
		event{"response.output_item.added", object{"output_index": index, "item": callItem(w.q, id, "in_progress", "", c)}},
		event{"response.function_call_arguments.delta", object{"item_id": id, "output_index": index, "delta": arguments}},
		event{"response.function_call_arguments.done", object{"item_id": id, "output_index": index, "name": done["name"], "arguments": arguments}},
		event{"response.output_item.done", object{"output_index": index, "item": done}},
	)
}

// delta adds text to the open item, or opens one of that kind.
func (w *responsesWriter) delta(kind, text string) error {
	if w.kind != kind {
		if err := w.open(kind); err != nil {
			return err
		}
	}
	w.text = append(w.text, text...)
	if kind == "reasoning" {
		return w.send("response.reasoning_summary_text.delta", w.within(object{"delta": text}))
	}
	return w.send("response.output_text.delta", w.within(object{"delta": text, "logprobs": []object{}}))
}

// within names the open item and its part.
func (w *responsesWriter) within(v object) object {
	v["item_id"], v["output_index"] = w.id, len(w.output)
	if w.kind == "reasoning" {
		v["summary_index"] = 0
	} else {
		v["content_index"] = 0
	}
	return v
}

func (w *responsesWriter) open(kind string) error {
	if err := w.close("completed"); err != nil {
		return err
	}
	w.kind, w.text = kind, w.text[:0]
	if kind == "reasoning" {
		w.id = numbered("rs_", w.base.ID, w.counts[0])
		w.counts[0]++
		return w.sendAll(
			event{"response.output_item.added", object{"output_index": len(w.output), "item": object{"id": w.id, "type": "reasoning", "summary": []object{}}}},
			event{"response.reasoning_summary_part.added", w.within(object{"part": object{"type": "summary_text", "text": ""}})},
		)
	}
	w.id = numbered("msg_", w.base.ID, w.counts[1])
	w.counts[1]++
	item := object{"id": w.id, "type": "message", "role": "assistant", "status": "in_progress", "content": []object{}}
	return w.sendAll(
		event{"response.output_item.added", object{"output_index": len(w.output), "item": item}},
		event{"response.content_part.added", w.within(object{"part": outputText("")})},
	)
}

// close ends the open item.
func (w *responsesWriter) close(status string) error {
	if w.kind == "" {
		return nil
	}
	text, index := string(w.text), len(w.output)
	var events []event
	var item object
	if w.kind == "reasoning" {
		item = reasoningItem(w.id, text)
		events = []event{
			{"response.reasoning_summary_text.done", w.within(object{"text": text})},
			{"response.reasoning_summary_part.done", w.within(object{"part": object{"type": "summary_text", "text": text}})},
		}
	} else {
		item = messageItem(w.id, text, status)
		events = []event{
			{"response.output_text.done", w.within(object{"text": text, "logprobs": []object{}})},
			{"response.content_part.done", w.within(object{"part": outputText(text)})},
		}
	}
	w.kind = ""
	w.output = append(w.output, item)
	return w.sendAll(append(events, event{"response.output_item.done", object{"output_index": index, "item": item}})...)
}

// End closes the open item and writes the whole response.
func (w *responsesWriter) End(r Reply) error {
	if err := w.begin(); err != nil {
		return err
	}
	if w.counts[1]+w.counts[2] == 0 { // a reply without a word is an empty message
		if err := w.open("message"); err != nil {
			return err
		}
	}
	status := responsesStatus(r.Finish)
	if err := w.close(status); err != nil {
		return err
	}
	whole := w.base
	whole.Usage = r.Usage
	return w.send("response."+status, object{"response": response(w.q, whole, status, w.output)})
}

// Fail writes response.failed, or answers with the error.
func (w *responsesWriter) Fail(err error) {
	if !w.events.Begun() {
		openAIFail(w.events.w, err)
		return
	}
	if w.begin() != nil { // it may be that only keep-alives were written
		return
	}
	e := asError(err)
	code := e.Code
	if code == "" {
		code = "server_error"
		if e.Status == http.StatusTooManyRequests {
			code = "rate_limit_exceeded"
		}
	}
	out := response(w.q, w.base, "failed", w.output)
	out["usage"], out["error"] = nil, object{"code": code, "message": e.Message}
	_ = w.send("response.failed", object{"response": out}) // the client may be gone
}
