package dialects

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// The readers of this file know the forms of the APIs, and nothing of the writers: they read replies as a client does.

// sse is one server-sent event.
type sse struct {
	name string
	data string
}

// readEvents takes a stream apart, and demands that it is made of whole events.
func readEvents(t testing.TB, body string) (out []sse, comments int) {
	require.True(t, body == "" || strings.HasSuffix(body, "\n\n"), "the stream ends within an event: %q", body)
	for _, block := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var e sse
		for _, l := range strings.Split(block, "\n") {
			field, value, _ := strings.Cut(l, ": ")
			switch field {
			case "event":
				e.name = value
			case "data":
				require.Empty(t, e.data, "two data lines")
				e.data = value
			case "":
				comments++
			default:
				t.Fatalf("unknown line %q", l)
			}
		}
		if e.data != "" {
			out = append(out, e)
		}
	}
	return out, comments
}

// heard is a reply as a client understands it.
type heard struct {
	ID, Model                  string
	Reasoning, Content, Sealed string
	Calls                      []heardCall
	Finish                     string
	Stop                       string
	Prompt, Cached, Completion int
	Thought                    int
	Error                      string
}

type heardCall struct{ ID, Name, Namespace, Arguments string }

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	In         *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Out *struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (h *heard) usage(t testing.TB, u chatUsage) {
	require.NotNil(t, u.In)
	require.NotNil(t, u.Out)
	require.Equal(t, u.Total, u.Prompt+u.Completion)
	h.Prompt, h.Completion, h.Cached, h.Thought = u.Prompt, u.Completion, u.In.Cached, u.Out.Reasoning
}

type chatText struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning_content"`
	Calls     []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

type chatJSON struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index   int
		Message *chatText
		Delta   *chatText
		Text    *string
		Finish  *string `json:"finish_reason"`
		Stop    string  `json:"stop_reason"`
	}
	Usage *chatUsage
	Error *struct{ Message, Type string }
}

func (h *heard) chatText(m *chatText) {
	if m.Content != nil {
		h.Content += *m.Content
	}
	h.Reasoning += m.Reasoning
	for _, c := range m.Calls {
		h.Calls = append(h.Calls, heardCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
}

func hearChat(t testing.TB, body string, stream bool) (h heard) {
	if !stream {
		var v chatJSON
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		require.Contains(t, []string{"chat.completion", "text_completion"}, v.Object)
		h.ID, h.Model, h.Finish, h.Stop = v.ID, v.Model, *v.Choices[0].Finish, v.Choices[0].Stop
		if v.Choices[0].Text != nil {
			h.Content = *v.Choices[0].Text
		} else {
			h.chatText(v.Choices[0].Message)
			require.Equal(t, "assistant", v.Choices[0].Message.Role)
		}
		h.usage(t, *v.Usage)
		return h
	}
	events, _ := readEvents(t, body)
	require.Equal(t, "[DONE]", events[len(events)-1].data)
	calls := 0
	for i, e := range events[:len(events)-1] {
		var v chatJSON
		require.NoError(t, json.Unmarshal([]byte(e.data), &v))
		if v.Error != nil {
			h.Error = v.Error.Message
			continue
		}
		require.Contains(t, []string{"chat.completion.chunk", "text_completion"}, v.Object)
		h.ID, h.Model = v.ID, v.Model
		if v.Usage != nil {
			require.Empty(t, v.Choices)
			h.usage(t, *v.Usage)
			continue
		}
		require.Empty(t, h.Finish, "a chunk behind the finish reason")
		c := v.Choices[0]
		if c.Text != nil {
			h.Content += *c.Text
		} else {
			require.Equal(t, i == 0, c.Delta.Role == "assistant", "the role is told first and once")
			for _, call := range c.Delta.Calls {
				require.Equal(t, calls, *call.Index)
				require.Equal(t, "function", call.Type)
				calls++
			}
			h.chatText(c.Delta)
		}
		if c.Finish != nil {
			h.Finish, h.Stop = *c.Finish, c.Stop
		}
	}
	return h
}

type responseItem struct {
	ID, Type, Status, Role, Name, Namespace, Arguments string
	CallID                                             string `json:"call_id"`
	Encrypted                                          string `json:"encrypted_content"`
	Summary                                            []struct{ Type, Text string }
	Content                                            []struct{ Type, Text string }
}

type responseJSON struct {
	ID, Object, Model, Status string
	Output                    []responseItem
	Incomplete                *struct{ Reason string } `json:"incomplete_details"`
	Error                     *struct{ Code, Message string }
	Usage                     *struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
		Total  int `json:"total_tokens"`
		In     *struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Out *struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
}

func (h *heard) response(t testing.TB, v responseJSON) {
	require.Equal(t, "response", v.Object)
	h.ID, h.Model, h.Finish = v.ID, v.Model, v.Status
	if v.Incomplete != nil {
		h.Finish = v.Incomplete.Reason
	}
	if v.Error != nil {
		h.Error = v.Error.Message
	}
	if v.Usage != nil {
		require.Equal(t, v.Usage.Total, v.Usage.Input+v.Usage.Output)
		h.Prompt, h.Completion, h.Cached, h.Thought = v.Usage.Input, v.Usage.Output, v.Usage.In.Cached, v.Usage.Out.Reasoning
	}
	for _, item := range v.Output {
		h.item(t, item)
	}
}

func (h *heard) item(t testing.TB, item responseItem) {
	switch item.Type {
	case "reasoning":
		for _, s := range item.Summary {
			h.Reasoning += s.Text
		}
		h.Sealed += item.Encrypted
	case "message":
		require.Equal(t, "assistant", item.Role)
		for _, c := range item.Content {
			require.Equal(t, "output_text", c.Type)
			h.Content += c.Text
		}
	case "function_call":
		h.Calls = append(h.Calls, heardCall{item.CallID, item.Name, item.Namespace, item.Arguments})
	default:
		t.Fatalf("item %q", item.Type)
	}
}

// hearResponses reads a stream by its deltas, and demands that deltas, the items' ends and the last event agree.
func hearResponses(t testing.TB, body string, stream bool) (h heard) {
	if !stream {
		var v responseJSON
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		h.response(t, v)
		return h
	}
	events, _ := readEvents(t, body)
	var deltas, done heard
	open, ended := "", 0
	for i, e := range events {
		var v struct {
			Type      string
			Number    int `json:"sequence_number"`
			Index     int `json:"output_index"`
			ItemID    string
			Delta     string
			Text      string
			Arguments string
			Item      responseItem
			Response  responseJSON
		}
		require.NoError(t, json.Unmarshal([]byte(e.data), &v))
		require.Equal(t, e.name, v.Type)
		require.Equal(t, i, v.Number)
		switch v.Type {
		case "response.created":
			require.Zero(t, i)
			require.Equal(t, "in_progress", v.Response.Status)
		case "response.output_item.added":
			require.Empty(t, open, "an item is open")
			require.Equal(t, ended, v.Index)
			open = v.Item.ID
			if v.Item.Type == "function_call" {
				deltas.Calls = append(deltas.Calls, heardCall{v.Item.CallID, v.Item.Name, v.Item.Namespace, ""})
			}
		case "response.reasoning_summary_text.delta":
			deltas.Reasoning += v.Delta
		case "response.output_text.delta":
			deltas.Content += v.Delta
		case "response.function_call_arguments.delta":
			deltas.Calls[len(deltas.Calls)-1].Arguments += v.Delta
		case "response.output_item.done":
			require.Equal(t, open, v.Item.ID)
			require.Equal(t, ended, v.Index)
			open, ended = "", ended+1
			done.item(t, v.Item)
		case "response.completed", "response.incomplete", "response.failed":
			require.Equal(t, len(events)-1, i, "it is the last event")
			require.True(t, open == "" || v.Type == "response.failed")
			require.Equal(t, v.Type, "response."+v.Response.Status)
			h.response(t, v.Response)
		}
	}
	if h.Error == "" {
		deltas.Sealed = done.Sealed
		require.Equal(t, done, deltas)
		require.Equal(t, heard{Reasoning: h.Reasoning, Content: h.Content, Sealed: h.Sealed, Calls: h.Calls}, done)
	}
	return h
}

type anthropicBlock struct {
	Type, Text, Thinking, Signature, ID, Name string
	Input                                     json.RawMessage
}

type anthropicJSON struct {
	ID, Type, Role, Model string
	Content               []anthropicBlock
	Reason                *string `json:"stop_reason"`
	Sequence              *string `json:"stop_sequence"`
	Usage                 struct {
		Input  int `json:"input_tokens"`
		Cached int `json:"cache_read_input_tokens"`
		Output int `json:"output_tokens"`
	}
}

func (h *heard) block(b anthropicBlock) {
	h.Reasoning, h.Sealed, h.Content = h.Reasoning+b.Thinking, h.Sealed+b.Signature, h.Content+b.Text
	if b.Type == "tool_use" {
		h.Calls = append(h.Calls, heardCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
	}
}

func hearMessages(t testing.TB, body string, stream bool) (h heard) {
	var m anthropicJSON
	if !stream {
		require.NoError(t, json.Unmarshal([]byte(body), &m))
	} else {
		events, _ := readEvents(t, body)
		var open *anthropicBlock
		var input string
		for i, e := range events {
			var v struct {
				Type    string
				Index   int
				Message anthropicJSON
				Block   anthropicBlock `json:"content_block"`
				Delta   struct {
					anthropicBlock
					Partial  string  `json:"partial_json"`
					Reason   *string `json:"stop_reason"`
					Sequence *string `json:"stop_sequence"`
				}
				Usage *struct {
					Input  int `json:"input_tokens"`
					Cached int `json:"cache_read_input_tokens"`
					Output int `json:"output_tokens"`
				}
				Error struct{ Type, Message string }
			}
			require.NoError(t, json.Unmarshal([]byte(e.data), &v))
			require.Equal(t, e.name, v.Type)
			require.Equal(t, i == 0, v.Type == "message_start")
			switch v.Type {
			case "message_start":
				m = v.Message
			case "content_block_start":
				require.Nil(t, open)
				require.Equal(t, len(m.Content), v.Index)
				block := v.Block
				open, input = &block, ""
			case "content_block_delta":
				require.Equal(t, len(m.Content), v.Index)
				open.Text, open.Thinking, open.Signature = open.Text+v.Delta.Text, open.Thinking+v.Delta.Thinking, open.Signature+v.Delta.Signature
				input += v.Delta.Partial
			case "content_block_stop":
				if open.Type == "tool_use" {
					open.Input = json.RawMessage(input)
				}
				m.Content, open = append(m.Content, *open), nil
			case "message_delta":
				m.Reason, m.Sequence = v.Delta.Reason, v.Delta.Sequence
				m.Usage.Input, m.Usage.Cached, m.Usage.Output = v.Usage.Input, v.Usage.Cached, v.Usage.Output
			case "message_stop":
				require.Equal(t, len(events)-1, i)
			case "error":
				h.Error = v.Error.Message
			case "ping":
			default:
				t.Fatalf("event %q", v.Type)
			}
		}
	}
	require.Equal(t, "message", m.Type)
	require.Equal(t, "assistant", m.Role)
	h.ID, h.Model, h.Prompt, h.Cached, h.Completion = m.ID, m.Model, m.Usage.Input+m.Usage.Cached, m.Usage.Cached, m.Usage.Output
	if m.Reason != nil {
		h.Finish = *m.Reason
	}
	if m.Sequence != nil {
		h.Stop = *m.Sequence
	}
	for _, b := range m.Content {
		h.block(b)
	}
	return h
}

// hear is the reader of a dialect.
func hear(t testing.TB, d Dialect, body string, stream bool) heard {
	switch d.Name() {
	case "responses":
		return hearResponses(t, body, stream)
	case "messages":
		return hearMessages(t, body, stream)
	}
	return hearChat(t, body, stream)
}

func all() []Dialect { return []Dialect{Chat(), Completions(), Responses(), Messages()} }

// randomReply makes a reply, and the pieces in which it is told.
func randomReply(r *rand.Rand) (Reply, []Piece) {
	texts := []string{"a", "é", " ", "\n\n", "data: x\n\n", "<b>&", "\"\\", "日本", "\u2028", "[DONE]", "event: ping\n"}
	cut := func(n int) (out []string) {
		for range n {
			out = append(out, texts[r.IntN(len(texts))]+texts[r.IntN(len(texts))])
		}
		return out
	}
	reply := Reply{ID: fmt.Sprint(r.Uint32()), Model: "policy", Created: time.Unix(1700000000, 0), Usage: Usage{Prompt: 30, Cached: 8, Completion: 12, Reasoning: 3}}
	var pieces []Piece
	for _, s := range cut(r.IntN(4)) {
		reply.Reasoning += s
		pieces = append(pieces, Piece{Reasoning: s})
	}
	for range r.IntN(3) {
		for _, s := range cut(r.IntN(4)) {
			reply.Content += s
			pieces = append(pieces, Piece{Content: s})
		}
		if r.IntN(2) == 0 {
			args := []string{`{"a": 17.0, "b":"é"}`, `{}`, ` { "x" : [1, {"y":null}] }`, `"{\"a\": 17, "`}[r.IntN(4)]
			reply.Calls = append(reply.Calls, trajectory.ToolCall{ID: fmt.Sprintf("call_%d", len(reply.Calls)), Name: "calculator", Arguments: json.RawMessage(args)})
			pieces = append(pieces, Piece{Call: &reply.Calls[len(reply.Calls)-1]})
		}
	}
	for i, c := range pieces { // calls may have moved while the list grew
		if c.Call != nil {
			for k := range reply.Calls {
				if reply.Calls[k].ID == c.Call.ID {
					pieces[i].Call = &reply.Calls[k]
				}
			}
		}
	}
	reply.Finish = []Finish{FinishStop, FinishLength, FinishBudget}[r.IntN(3)]
	if len(reply.Calls) > 0 {
		reply.Finish = FinishCalls
	} else if reply.Finish == FinishStop && r.IntN(2) == 0 {
		reply.Stop = "Observation:"
	}
	return reply, pieces
}

// TestStreamEqualsWhole: whatever the pieces, a client that reads the stream knows what one that reads the whole body knows, and both know the
// reply.
func TestStreamEqualsWhole(t *testing.T) {
	for _, d := range all() {
		t.Run(d.Name(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 2000 {
				reply, pieces := randomReply(r)
				q := &Request{StreamUsage: true, Parallel: true, Choice: Choice{Mode: ChoiceAuto}}
				body, err := d.Whole(q, reply)
				require.NoError(t, err)
				whole := hear(t, d, string(body), false)
				rec := httptest.NewRecorder()
				w := d.Stream(rec, q, Reply{ID: reply.ID, Model: reply.Model, Created: reply.Created, Usage: Usage{Prompt: reply.Usage.Prompt}})
				for _, p := range pieces {
					if r.IntN(4) == 0 {
						require.NoError(t, w.Ping())
					}
					require.NoError(t, w.Piece(p))
				}
				require.NoError(t, w.End(Reply{Finish: reply.Finish, Stop: reply.Stop, Usage: reply.Usage}))
				require.Equal(t, "text/event-stream; charset=utf-8", rec.Header().Get("Content-Type"))
				streamed := hear(t, d, rec.Body.String(), true)
				for i := range streamed.Calls { // a block's input is JSON, whose white space is no matter
					streamed.Calls[i].Arguments = strings.TrimSpace(streamed.Calls[i].Arguments)
				}
				for i := range whole.Calls {
					whole.Calls[i].Arguments = strings.TrimSpace(whole.Calls[i].Arguments)
				}
				if d.Name() == "messages" {
					for _, calls := range [][]heardCall{streamed.Calls, whole.Calls} {
						for i, c := range calls {
							calls[i].Arguments = compact(t, c.Arguments)
						}
					}
				}
				require.Equal(t, whole, streamed)
				require.Equal(t, reply.Content, streamed.Content)
				require.Equal(t, [3]int{30, 8, 12}, [3]int{streamed.Prompt, streamed.Cached, streamed.Completion})
				if d.Name() == "completions" {
					continue
				}
				require.Equal(t, reply.Reasoning, streamed.Reasoning)
				require.Len(t, streamed.Calls, len(reply.Calls))
			}
		})
	}
}

func compact(t testing.TB, s string) string {
	var v any
	require.NoError(t, json.Unmarshal([]byte(s), &v))
	b, err := wording.JSON(v)
	require.NoError(t, err)
	return string(b)
}

// TestResponsesRepeatsParameters: a response, and the one in each event of a stream, has the request's parameters as they were sent.
func TestResponsesRepeatsParameters(t *testing.T) {
	const tools = `[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true},{"type":"web_search"}]`
	for name, c := range map[string]struct{ body, instructions, metadata, text, tools string }{
		"none":       {`{"input":"x"}`, `null`, `{}`, `{"format":{"type":"text"}}`, `[]`},
		"null":       {`{"input":"x","instructions":null,"metadata":null,"text":null,"tools":null}`, `null`, `{}`, `{"format":{"type":"text"}}`, `[]`},
		"all":        {`{"input":"x","instructions":"be <brief>","metadata":{"ticket":"7"},"text":{"format":{"type":"json_object"}},"tools":` + tools + `}`, `"be <brief>"`, `{"ticket":"7"}`, `{"format":{"type":"json_object"}}`, tools},
		"no format":  {`{"input":"x","text":{"verbosity":"low"}}`, `null`, `{}`, `{"format":{"type":"text"},"verbosity":"low"}`, `[]`},
		"item lists": {`{"input":"x","instructions":[{"role":"developer","content":"be"}]}`, `[{"role":"developer","content":"be"}]`, `{}`, `{"format":{"type":"text"}}`, `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			q := parse(t, Responses(), c.body)
			body, err := Responses().Whole(q, Reply{ID: "1", Content: "y"})
			require.NoError(t, err)
			rec := httptest.NewRecorder()
			w := Responses().Stream(rec, q, Reply{ID: "1"})
			require.NoError(t, w.Piece(Piece{Content: "y"}))
			require.NoError(t, w.End(Reply{}))
			responses := []string{string(body)}
			events, _ := readEvents(t, rec.Body.String())
			for _, e := range events {
				var v struct{ Response json.RawMessage }
				require.NoError(t, json.Unmarshal([]byte(e.data), &v))
				if v.Response != nil {
					responses = append(responses, string(v.Response))
				}
			}
			require.Len(t, responses, 4, "the whole one, response.created, in_progress and completed")
			for _, r := range responses {
				var v struct{ Instructions, Metadata, Text, Tools json.RawMessage }
				require.NoError(t, json.Unmarshal([]byte(r), &v))
				require.JSONEq(t, c.instructions, string(v.Instructions))
				require.JSONEq(t, c.metadata, string(v.Metadata))
				require.JSONEq(t, c.text, string(v.Text))
				require.JSONEq(t, c.tools, string(v.Tools))
			}
		})
	}
}

// TestEcho: what a client sends back of a reply, streamed or not, is read as the message that was sent. Shown and sealed reasoning are both enough.
func TestEcho(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		reply, _ := randomReply(r)
		for i := range reply.Calls {
			reply.Calls[i].Arguments = arguments(strings.TrimSpace(argumentsText(reply.Calls[i].Arguments)))
		}
		want := trajectory.Message{Role: "assistant", Reasoning: reply.Reasoning, ToolCalls: reply.Calls}
		if reply.Content != "" {
			want.Content = []trajectory.Part{{Type: "text", Text: reply.Content}}
		}
		for _, d := range []Dialect{Chat(), Responses(), Messages()} {
			body, err := d.Whole(&Request{}, reply)
			require.NoError(t, err)
			var v map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(body, &v))
			for _, drop := range []string{"", "shown", "sealed"} {
				var next string
				switch d.Name() {
				case "chat":
					var choices []map[string]json.RawMessage
					require.NoError(t, json.Unmarshal(v["choices"], &choices))
					next = `{"messages":[{"role":"user","content":"x"},` + string(choices[0]["message"]) + `]}`
				case "responses":
					next = `{"input":[{"role":"user","content":"x"},` + string(without(t, v["output"], drop)[1:]) + `}`
				case "messages":
					next = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":` + string(without(t, v["content"], drop)) + `},{"role":"user","content":"y"}]}`
				}
				q, err := d.Parse(http.Header{}, []byte(next))
				require.NoError(t, err, next)
				got := q.Messages[1:]
				if d.Name() == "messages" { // its conversations end with the user
					got = got[:1]
				}
				if reply.Reasoning == "" && reply.Content == "" && len(reply.Calls) == 0 {
					require.Len(t, got, 1)
					continue
				}
				require.Len(t, got, 1)
				for i := range got[0].ToolCalls {
					require.JSONEq(t, string(want.ToolCalls[i].Arguments), string(got[0].ToolCalls[i].Arguments))
					got[0].ToolCalls[i].Arguments = want.ToolCalls[i].Arguments
				}
				require.Equal(t, want, got[0], "%s without %s", d.Name(), drop)
			}
		}
	}
}

// without takes the shown or the sealed form of reasoning out of items or blocks.
func without(t testing.TB, raw json.RawMessage, drop string) json.RawMessage {
	var items []map[string]any
	require.NoError(t, json.Unmarshal(raw, &items))
	for _, item := range items {
		switch {
		case drop == "shown" && item["type"] == "reasoning":
			item["summary"] = []any{}
		case drop == "shown" && item["type"] == "thinking":
			item["thinking"] = ""
		case drop == "sealed" && item["type"] == "reasoning":
			item["encrypted_content"] = "gAAAAA-of-another-server"
		case drop == "sealed" && item["type"] == "thinking":
			item["signature"] = "c2lnbmF0dXJl"
		}
	}
	out, err := json.Marshal(items)
	require.NoError(t, err)
	return out
}
