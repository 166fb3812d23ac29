package dialects

import (
	"net/http"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Chat is OpenAI's chat completions, with reasoning_content as vLLM and others have it.
func Chat() Dialect { return chat{} }

type chat struct{}

// Name is chat.
func (chat) Name() string { return "chat" }

// Fail answers with an error.
func (chat) Fail(w http.ResponseWriter, err error) { openAIFail(w, err) }

type chatReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *openAIUsage `json:"usage,omitempty"`
}

type chatChoice struct {
	Index    int        `json:"index"`
	Message  *chatSaid  `json:"message,omitempty"`
	Delta    *chatDelta `json:"delta,omitempty"`
	Logprobs *struct{}  `json:"logprobs"` // null
	Finish   *string    `json:"finish_reason"`
	Stop     string     `json:"stop_reason,omitempty"` // vLLM's: the stop string
}

type chatSaid struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []ChatCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []ChatCall `json:"tool_calls,omitempty"`
}

// ChatCall is a call in a chat's reply.
type ChatCall struct {
	Index    *int   `json:"index,omitempty"` // in a delta
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// NewChatCall writes a call; its arguments are the model's own text.
func NewChatCall(c trajectory.ToolCall) ChatCall {
	out := ChatCall{ID: c.ID, Type: "function"}
	out.Function.Name, out.Function.Arguments = c.Name, argumentsText(c.Arguments)
	return out
}

type openAIUsage struct {
	Prompt            int         `json:"prompt_tokens"`
	Completion        int         `json:"completion_tokens"`
	Total             int         `json:"total_tokens"`
	PromptDetails     promptPart  `json:"prompt_tokens_details"`
	CompletionDetails completPart `json:"completion_tokens_details"`
}

type promptPart struct {
	Cached int `json:"cached_tokens"`
}

type completPart struct {
	Reasoning int `json:"reasoning_tokens"`
}

func openAIUsageOf(u Usage) *openAIUsage {
	return &openAIUsage{u.Prompt, u.Completion, u.Prompt + u.Completion, promptPart{u.Cached}, completPart{u.Reasoning}}
}

// openAIFinish is a finish reason in the words of chat and completions. A session whose budget is spent has its agent stop.
func openAIFinish(f Finish) string {
	switch f {
	case FinishLength:
		return "length"
	case FinishCalls:
		return "tool_calls"
	}
	return "stop"
}

// Whole is the body of a reply.
func (chat) Whole(_ *Request, r Reply) ([]byte, error) {
	said := &chatSaid{Role: "assistant", Reasoning: r.Reasoning}
	for _, c := range r.Calls {
		said.Calls = append(said.Calls, NewChatCall(c))
	}
	if r.Content != "" || len(r.Calls) == 0 {
		said.Content = &r.Content
	}
	out, finish := chatBase(r, "chat.completion"), openAIFinish(r.Finish)
	out.Choices = []chatChoice{{Message: said, Finish: &finish, Stop: r.Stop}}
	out.Usage = openAIUsageOf(r.Usage)
	return wording.JSON(out)
}

func chatBase(r Reply, object string) chatReply {
	return chatReply{ID: "chatcmpl-" + r.ID, Object: object, Created: r.Created.Unix(), Model: r.Model}
}

// Stream begins a streamed reply.
func (chat) Stream(w http.ResponseWriter, q *Request, base Reply) Writer {
	return &chatWriter{events: NewEvents(w), usage: q.StreamUsage, base: chatBase(base, "chat.completion.chunk")}
}

type chatWriter struct {
	events *Events
	usage  bool
	base   chatReply
	told   bool // the role
	calls  int
}

// Ping writes a comment.
func (w *chatWriter) Ping() error { return w.events.Comment("ping") }

func (w *chatWriter) send(c chatChoice) error {
	if !w.told {
		w.told = true
		empty := ""
		if err := w.send(chatChoice{Delta: &chatDelta{Role: "assistant", Content: &empty}}); err != nil {
			return err
		}
	}
	chunk := w.base
	chunk.Choices = []chatChoice{c}
	return w.events.Send("", chunk)
}

// Piece writes a delta.
func (w *chatWriter) Piece(p Piece) error {
	delta := &chatDelta{Reasoning: p.Reasoning}
	switch {
	case p.Call != nil:
		call, index := NewChatCall(*p.Call), w.calls
		w.calls++
		call.Index = &index
		delta.Calls = []ChatCall{call}
	case p.Content != "":
		delta.Content = &p.Content
	case p.Reasoning == "":
		return nil
	}
	return w.send(chatChoice{Delta: delta})
}

// End writes the finish reason, the usage where it is wanted, and [DONE].
func (w *chatWriter) End(r Reply) error {
	finish := openAIFinish(r.Finish)
	if err := w.send(chatChoice{Delta: &chatDelta{}, Finish: &finish, Stop: r.Stop}); err != nil {
		return err
	}
	if w.usage {
		chunk := w.base
		chunk.Choices, chunk.Usage = []chatChoice{}, openAIUsageOf(r.Usage)
		if err := w.events.Send("", chunk); err != nil {
			return err
		}
	}
	return w.events.Raw("", []byte("[DONE]"))
}

// Fail writes the error as an event, or answers with it.
func (w *chatWriter) Fail(err error) { openAIFailIn(w.events, err) }

// openAIFailIn ends a stream of chat or completions with an error.
func openAIFailIn(e *Events, err error) {
	if !e.Begun() {
		openAIFail(e.w, err)
		return
	}
	if e.Send("", openAIBody(asError(err))) == nil {
		_ = e.Raw("", []byte("[DONE]")) // the client may be gone
	}
}
