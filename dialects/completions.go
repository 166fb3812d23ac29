package dialects

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/agentfly/agentfly/internal/wording"
)

// Completions is OpenAI's completions of a text or of token ids.
func Completions() Dialect { return completions{} }

type completions struct{}

// Name is completions.
func (completions) Name() string { return "completions" }

// Fail answers with an error.
func (completions) Fail(w http.ResponseWriter, err error) { openAIFail(w, err) }

// Parse reads a completion's request. It has one prompt.
func (completions) Parse(_ http.Header, body []byte) (*Request, error) {
	var in struct {
		parameters
		Prompt   json.RawMessage `json:"prompt"`
		Logprobs *Whole          `json:"logprobs"`
		Suffix   json.RawMessage `json:"suffix"`
		BestOf   *Whole          `json:"best_of"`
	}
	if err := Decode(body, &in); err != nil {
		return nil, err
	}
	q, err := in.request()
	if err != nil {
		return nil, err
	}
	switch {
	case given(in.Suffix):
		return nil, unsupported("suffix")
	case in.BestOf != nil && *in.BestOf > 1:
		return nil, unsupported("best_of")
	}
	if q.Prompt, err = prompt(in.Prompt); err != nil {
		return nil, err
	}
	if in.Logprobs != nil {
		q.Logprobs, q.TopLogprobs = true, int(*in.Logprobs)
	}
	if q.MaxTokens == nil {
		n := 16 // OpenAI's default
		q.MaxTokens = &n
	}
	return q, q.finish(body, "prompt")
}

// prompt reads a text, token ids, or a list with one of them.
func prompt(raw json.RawMessage) (p Prompt, err error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return p, badf("prompt", "prompt is missing")
	case raw[0] == '"':
		return p, decodeAt("prompt", raw, &p.Text)
	case raw[0] != '[':
		return p, badf("prompt", "prompt must be a text, a list of token ids, or a list with one of them")
	}
	if bytes.IndexByte(raw, 'n') < 0 && json.Unmarshal(raw, &p.IDs) == nil { // a null would be read as 0
		if len(p.IDs) == 0 {
			return p, badf("prompt", "prompt is empty")
		}
		return p, nil
	}
	var elements List
	if err := decodeAt("prompt", raw, &elements); err != nil {
		return Prompt{}, err
	}
	if first := elements[0]; len(elements) != 1 || first[0] != '"' && first[0] != '[' {
		return Prompt{}, badf("prompt", "prompt is a list of %d; it must be a text, a list of token ids, or a list with one of them", len(elements))
	}
	if elements[0][0] == '[' {
		var inner []int32
		err := decodeAt("prompt[0]", elements[0], &inner)
		if err == nil && bytes.IndexByte(elements[0], 'n') >= 0 {
			err = badf("prompt", "prompt holds null, a token id is needed")
		}
		if err == nil && len(inner) == 0 {
			err = badf("prompt", "prompt is empty")
		}
		return Prompt{IDs: inner}, err
	}
	return prompt(elements[0])
}

type completionReply struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *openAIUsage       `json:"usage,omitempty"`
}

type completionChoice struct {
	Index    int       `json:"index"`
	Text     string    `json:"text"`
	Logprobs *struct{} `json:"logprobs"` // null
	Finish   *string   `json:"finish_reason"`
	Stop     string    `json:"stop_reason,omitempty"` // vLLM's: the stop string
}

func completionBase(r Reply) completionReply {
	return completionReply{ID: "cmpl-" + r.ID, Object: "text_completion", Created: r.Created.Unix(), Model: r.Model}
}

// Whole is the body of a reply: its content alone, as a completion knows neither reasoning nor calls.
func (completions) Whole(_ *Request, r Reply) ([]byte, error) {
	out, finish := completionBase(r), completionFinish(r.Finish)
	out.Choices, out.Usage = []completionChoice{{Text: r.Content, Finish: &finish, Stop: r.Stop}}, openAIUsageOf(r.Usage)
	return wording.JSON(out)
}

func completionFinish(f Finish) string {
	if f == FinishLength {
		return "length"
	}
	return "stop"
}

// Stream begins a streamed reply.
func (completions) Stream(w http.ResponseWriter, q *Request, base Reply) Writer {
	return &completionWriter{events: NewEvents(w), usage: q.StreamUsage, base: completionBase(base)}
}

type completionWriter struct {
	events *Events
	usage  bool
	base   completionReply
}

// Ping writes a comment.
func (w *completionWriter) Ping() error { return w.events.Comment("ping") }

func (w *completionWriter) send(c completionChoice) error {
	chunk := w.base
	chunk.Choices = []completionChoice{c}
	return w.events.Send("", chunk)
}

// Piece writes the content.
func (w *completionWriter) Piece(p Piece) error {
	if p.Content == "" {
		return nil
	}
	return w.send(completionChoice{Text: p.Content})
}

// End writes the finish reason, the usage where it is wanted, and [DONE].
func (w *completionWriter) End(r Reply) error {
	finish := completionFinish(r.Finish)
	if err := w.send(completionChoice{Finish: &finish, Stop: r.Stop}); err != nil {
		return err
	}
	if w.usage {
		chunk := w.base
		chunk.Choices, chunk.Usage = []completionChoice{}, openAIUsageOf(r.Usage)
		if err := w.events.Send("", chunk); err != nil {
			return err
		}
	}
	return w.events.Raw("", []byte("[DONE]"))
}

// Fail writes the error as an event, or answers with it.
func (w *completionWriter) Fail(err error) { openAIFailIn(w.events, err) }
