package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// chatAPI answers /v1/chat/completions.
type chatAPI struct {
	models  *models
	stamp   *stamp
	codec   *codec
	talks   *conversations
	engine  *completer
	weights *weights
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	sampling
	Model        *string         `json:"model"`
	Messages     dialects.List   `json:"messages"`
	Tools        dialects.List   `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Parallel     *bool           `json:"parallel_tool_calls"`
	MaxTokens    *dialects.Whole `json:"max_tokens"`
	MaxComplete  *dialects.Whole `json:"max_completion_tokens"`
	Logprobs     bool            `json:"logprobs"`
	Top          *dialects.Whole `json:"top_logprobs"`
	Stream       bool            `json:"stream"`
	Options      *streamOptions  `json:"stream_options"`
	AddPrompt    *bool           `json:"add_generation_prompt"`
	AddSpecial   bool            `json:"add_special_tokens"`
	Continue     bool            `json:"continue_final_message"`
	Echo         bool            `json:"echo"`
	Template     present         `json:"chat_template"`
	TemplateArgs present         `json:"chat_template_kwargs"`
	Documents    present         `json:"documents"`
	Functions    present         `json:"functions"`
	Audio        present         `json:"audio"`
	AsIDs        bool            `json:"return_tokens_as_token_ids"`
	TokenIDs     bool            `json:"return_token_ids"`
}

type chatReply struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Created  int64           `json:"created"`
	Model    string          `json:"model"`
	Choices  []chatChoice    `json:"choices"`
	Usage    *usage          `json:"usage,omitempty"`
	Prompt   []int32         `json:"prompt_token_ids,omitempty"`
	PromptLP []promptLogprob `json:"prompt_logprobs,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatMessage  `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	Reason   any           `json:"stop_reason"`
	TokenIDs []int32       `json:"token_ids,omitempty"`
	Versions []span        `json:"weight_versions,omitempty"`
}

// chatMessage is a whole message, whose content is a string or null, or a delta, which leaves out what it does not add.
type chatMessage struct {
	Role    string              `json:"role,omitempty"`
	Content *content            `json:"content,omitempty"`
	Calls   []dialects.ChatCall `json:"tool_calls,omitempty"`
}

type content struct {
	text string
	null bool
}

func (c *content) MarshalJSON() ([]byte, error) {
	if c.null {
		return []byte("null"), nil
	}
	return wording.JSON(c.text)
}

// chatJob is a request that passed its checks.
type chatJob struct {
	in      *chatRequest
	base    chatReply
	choices []*choice
	detail  engines.Detail
}

// answer completes a conversation.
func (a *chatAPI) answer(w http.ResponseWriter, r *http.Request, p *places, in *chatRequest) error {
	j, err := a.job(r.Context(), in)
	if err != nil {
		return err
	}
	if err := p.need(len(j.choices)); err != nil {
		return err
	}
	if j.base.PromptLP, err = a.engine.givenLogprobs(r.Context(), j.choices, in.Prompts != nil); err != nil {
		return err
	}
	if in.TokenIDs {
		j.base.Prompt = j.choices[0].request.Prompt
	}
	if in.Stream {
		return a.stream(w, r, p, j)
	}
	if err := a.engine.run(r.Context(), p, j.choices, j.detail, func(*choice) error { return nil }); err != nil {
		return err
	}
	out := j.base
	out.Object = "chat.completion"
	for _, c := range j.choices {
		out.Choices = append(out.Choices, a.choice(j, c))
	}
	out.Usage = count(j.choices, len(j.choices))
	reply(w, http.StatusOK, out)
	return nil
}

// job checks a request.
func (a *chatAPI) job(ctx context.Context, in *chatRequest) (*chatJob, error) {
	if err := a.models.check(in.Model); err != nil {
		return nil, err
	}
	if err := in.refuse(); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		set  bool
		name string
	}{
		{bool(in.Template), "chat_template"},
		{bool(in.TemplateArgs), "chat_template_kwargs"},
		{bool(in.Documents), "documents"},
		{bool(in.Functions), "functions"},
		{bool(in.Audio), "audio"},
		{in.Continue, "continue_final_message"},
		{in.Echo, "echo"},
	} {
		if f.set {
			return nil, badf(f.name, "%s is not supported by this server; leave it out", f.name)
		}
	}
	j := &chatJob{in: in}
	var err error
	if in.Top != nil && *in.Top > 0 && !in.Logprobs {
		return nil, badf("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	if j.detail, err = a.engine.detail(in.Top, "top_logprobs"); err != nil {
		return nil, err
	}
	talk, err := in.conversation(a.codec)
	if err != nil {
		return nil, err
	}
	id := a.stamp.id("chatcmpl")
	j.base = chatReply{ID: id, Object: "chat.completion.chunk", Created: a.stamp.now().Unix(), Model: a.models.names[0]}
	j.choices, _, err = a.talks.choices(ctx, talk, id, &in.sampling)
	return j, err
}

// conversation reads the messages and the tools.
func (in *chatRequest) conversation(c *codec) (*conversation, error) {
	if err := c.checkParts("messages", len(in.Messages)+len(in.Tools)); err != nil {
		return nil, err
	}
	messages, err := dialects.ParseMessages(in.Messages)
	if err != nil {
		return nil, err
	}
	choice, err := dialects.ParseChoice(in.ToolChoice, in.Tools)
	limit := in.MaxComplete
	if limit == nil {
		limit = in.MaxTokens
	}
	return &conversation{
		messages: messages, param: "messages", tools: in.Tools, choice: choice, oneCall: !or(in.Parallel, true),
		noPrompt: !or(in.AddPrompt, true), special: in.AddSpecial, maxTokens: (*int)(limit),
	}, err
}

// call writes a call of a choice, with an id of its own.
func (a *chatAPI) call(of *choice, c *trajectory.ToolCall) dialects.ChatCall {
	named := *c
	named.ID = callID(of.format, a.stamp.id("chatcmpl-tool"))
	return dialects.NewChatCall(named)
}

// choice tells a whole choice.
func (a *chatAPI) choice(j *chatJob, c *choice) chatChoice {
	message := &chatMessage{Role: "assistant", Content: &content{text: c.output.String()}}
	finish := c.finish
	if c.calls != nil {
		var text strings.Builder
		for _, e := range append(c.calls.Push(c.output.String()), c.calls.End()...) {
			if e.Call != nil {
				message.Calls = append(message.Calls, a.call(c, e.Call))
			}
			text.WriteString(e.Content)
		}
		message.Content = &content{text: text.String(), null: text.Len() == 0 && len(message.Calls) > 0}
		if len(message.Calls) > 0 && finish == string(trajectory.FinishStop) {
			finish = "tool_calls"
		}
	}
	out := chatChoice{Index: c.index, Message: message, Finish: &finish, Reason: c.reason}
	if j.in.Logprobs {
		out.Logprobs = speller{a.codec.tokenizer, j.in.AsIDs}.chat(c.tokens)
	}
	if j.in.TokenIDs {
		out.TokenIDs, out.Versions = ids(c.tokens), a.weights.spans(c.tokens)
	}
	return out
}

// stream answers with server-sent events: the role of every choice in the order of their indices, as OpenAI's client counts on, then content and
// calls, each call whole.
func (a *chatAPI) stream(w http.ResponseWriter, r *http.Request, p *places, j *chatJob) error {
	e := newEvents(w)
	send := func(c *choice, out chatChoice) error {
		out.Index = c.index
		chunk := j.base
		chunk.Choices = []chatChoice{out}
		if out.Delta.Role == "" { // the prompt was told with the role
			chunk.Prompt, chunk.PromptLP = nil, nil
		}
		if j.in.Options.continuous() {
			chunk.Usage = count([]*choice{c}, 1)
		}
		return e.send(chunk)
	}
	announced := false
	err := a.engine.run(r.Context(), p, j.choices, j.detail, func(c *choice) error {
		if !announced {
			announced = true
			for _, each := range j.choices {
				if err := send(each, chatChoice{Delta: &chatMessage{Role: "assistant", Content: &content{}}}); err != nil {
					return err
				}
			}
		}
		for _, out := range a.deltas(j, c) {
			if err := send(c, out); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && j.in.Options.usage() {
		chunk := j.base
		chunk.Choices, chunk.Usage, chunk.Prompt, chunk.PromptLP = []chatChoice{}, count(j.choices, len(j.choices)), nil, nil
		err = e.send(chunk)
	}
	e.close(err)
	return nil
}

// deltas are the chunks for what c has not told. Logprobs and ids go with the first of them.
func (a *chatAPI) deltas(j *chatJob, c *choice) []chatChoice {
	tokens, text := c.news()
	parts := []agents.Piece{{Content: text}}
	if c.calls != nil {
		before := c.calls.Calls()
		parts = c.calls.Push(text)
		if c.finish != "" {
			parts = append(parts, c.calls.End()...)
		}
		c.offset = before // calls told so far
	}
	var out []chatChoice
	index := c.offset
	for _, p := range parts {
		switch {
		case p.Call != nil:
			call := a.call(c, p.Call)
			at := index
			call.Index = &at
			index++
			out = append(out, chatChoice{Delta: &chatMessage{Calls: []dialects.ChatCall{call}}})
		case p.Content != "":
			out = append(out, chatChoice{Delta: &chatMessage{Content: &content{text: p.Content}}})
		}
	}
	tell := len(tokens) > 0 && (j.in.Logprobs || j.in.TokenIDs)
	// The finish reason has no chunk with a call: OpenAI's client takes a call for whole when a further chunk comes.
	closing := c.finish != "" && (len(out) == 0 || out[len(out)-1].Delta.Calls != nil)
	if closing || tell && len(out) == 0 {
		out = append(out, chatChoice{Delta: &chatMessage{Content: &content{}}})
	}
	if tell {
		if j.in.Logprobs {
			out[0].Logprobs = speller{a.codec.tokenizer, j.in.AsIDs}.chat(tokens)
		}
		if j.in.TokenIDs {
			out[0].TokenIDs = ids(tokens)
		}
	}
	if c.finish != "" {
		last, finish := &out[len(out)-1], c.finish
		if c.calls != nil && c.calls.Calls() > 0 && finish == string(trajectory.FinishStop) {
			finish = "tool_calls"
		}
		last.Finish, last.Reason = &finish, c.reason
		if j.in.TokenIDs {
			last.Versions = a.weights.spans(c.tokens)
		}
	}
	return out
}
