package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
)

// completionsAPI answers /v1/completions.
type completionsAPI struct {
	models  *models
	stamp   *stamp
	codec   *codec
	forms   *forms
	queue   *queue
	engine  *completer
	weights *weights
}

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	sampling
	Model      *string         `json:"model"`
	Prompt     json.RawMessage `json:"prompt"`
	Suffix     string          `json:"suffix"`
	Echo       bool            `json:"echo"`
	MaxTokens  *dialects.Whole `json:"max_tokens"`
	Logprobs   *dialects.Whole `json:"logprobs"`
	Stream     bool            `json:"stream"`
	Options    *streamOptions  `json:"stream_options"`
	AddSpecial *bool           `json:"add_special_tokens"`
	AsIDs      bool            `json:"return_tokens_as_token_ids"`
	TokenIDs   bool            `json:"return_token_ids"`
	Embeds     present         `json:"prompt_embeds"`
}

type completionReply struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
	Reason   any                 `json:"stop_reason"`
	TokenIDs []int32             `json:"token_ids,omitempty"`
	Prompt   []int32             `json:"prompt_token_ids,omitempty"`
	PromptLP []promptLogprob     `json:"prompt_logprobs,omitempty"`
	Versions []span              `json:"weight_versions,omitempty"`
}

// prompts reads a text, ids, or a list of either: at most so many prompts as the queue holds with n completions each.
func (a *completionsAPI) prompts(ctx context.Context, raw json.RawMessage, n int, addSpecial bool) ([][]int32, error) {
	texts, lists, err := a.readPrompts(raw, n)
	for _, text := range texts {
		var ids []int32
		if err == nil {
			ids, err = a.codec.encode(ctx, text, addSpecial)
		}
		lists = append(lists, ids)
	}
	return lists, err
}

// readPrompts reads the texts or the ids of a prompt, one element at a time: a list of empty ones takes ten times its text.
func (a *completionsAPI) readPrompts(raw json.RawMessage, n int) (texts []string, lists [][]int32, err error) {
	most := a.queue.most / n
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil, badf("prompt", "the prompt is missing")
	case most == 0:
		return nil, nil, a.queue.tooMany(1, n)
	case raw[0] == '"':
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	case raw[0] != '[':
		return nil, nil, errPrompt
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, nil, errPrompt
	}
	for d.More() {
		if len(texts)+len(lists) == most {
			return nil, nil, a.queue.tooMany(most+1, n)
		}
		switch next := bytes.TrimLeft(raw[d.InputOffset():], ", \t\r\n"); next[0] {
		case '"':
			var text string
			if d.Decode(&text) != nil {
				return nil, nil, errPrompt
			}
			if err := a.codec.checkText("prompt", "the prompt", len(text)); err != nil {
				return nil, nil, err
			}
			texts = append(texts, text)
		case '[':
			var element json.RawMessage
			if d.Decode(&element) != nil {
				return nil, nil, errPrompt
			}
			ids, err := promptIDs(element)
			if err != nil {
				return nil, nil, err
			}
			lists = append(lists, ids)
		default:
			ids, err := promptIDs(raw)
			return nil, [][]int32{ids}, err
		}
	}
	if len(texts) > 0 && len(lists) > 0 {
		return nil, nil, errPrompt
	}
	return texts, lists, nil
}

func promptIDs(raw []byte) ([]int32, error) {
	var ids []int32
	if bytes.Contains(raw, []byte("null")) || json.Unmarshal(raw, &ids) != nil { // of null it would make a 0
		return nil, errPrompt
	}
	return ids, nil
}

var errPrompt = badf("prompt", "the prompt must be a string, a list of strings, a list of token ids, or a list of such lists")

// completionJob is a request of /v1/completions that passed its checks.
type completionJob struct {
	in      *completionRequest
	base    completionReply
	choices []*choice
	detail  engines.Detail
	n       int         // choices a prompt
	prompts [][]float32 // logprobs of each prompt, where the request wants prompt logprobs
}

// answer completes every prompt of a request.
func (a *completionsAPI) answer(w http.ResponseWriter, r *http.Request, p *places, in *completionRequest) error {
	job, err := a.job(r.Context(), in)
	if err != nil {
		return err
	}
	if err := p.need(len(job.choices)); err != nil {
		return err
	}
	if job.prompts, err = a.engine.logprobsOfPrompts(r.Context(), job.choices, job.n, in.Prompts != nil || in.Echo && in.Logprobs != nil); err != nil {
		return err
	}
	if in.Stream {
		return a.stream(w, r, p, job)
	}
	if !job.echoOnly() {
		if err := a.engine.run(r.Context(), p, job.choices, job.detail, func(*choice) error { return nil }); err != nil {
			return err
		}
	}
	out := job.base
	for _, c := range job.choices {
		out.Choices = append(out.Choices, a.choice(job, c, true, true))
	}
	out.Usage = count(job.choices, job.n)
	reply(w, http.StatusOK, out)
	return nil
}

// job checks a request.
func (a *completionsAPI) job(ctx context.Context, in *completionRequest) (*completionJob, error) {
	if err := a.models.check(in.Model); err != nil {
		return nil, err
	}
	if in.Suffix != "" {
		return nil, badf("suffix", "suffix is not supported by this server; leave it out")
	}
	if in.Embeds {
		return nil, badf("prompt_embeds", "prompt_embeds is not supported by this server; leave it out")
	}
	if in.Echo && in.Stream {
		return nil, badf("echo", "echo together with stream is not supported by this server")
	}
	if in.Echo && or(in.Logprobs, 0) > 1 {
		return nil, badf("logprobs", "logprobs is %d; with echo only 0 and 1, the prompt's own tokens, are supported", *in.Logprobs)
	}
	want, err := maxTokens((*int)(in.MaxTokens), 16)
	if err != nil {
		return nil, err
	}
	job := &completionJob{in: in, n: int(or(in.N, 1))}
	if job.detail, err = a.engine.detail(in.Logprobs, "logprobs"); err != nil {
		return nil, err
	}
	params, err := in.engine(max(want, 1), a.codec.stopIDs)
	if err != nil {
		return nil, err
	}
	prompts, err := a.prompts(ctx, in.Prompt, job.n, or(in.AddSpecial, true))
	if err != nil {
		return nil, err
	}
	if len(prompts) == 0 {
		return nil, badf("prompt", "the prompt is empty")
	}
	least := want
	if in.Echo {
		least = max(want, 1) // of 0 the prompt alone is told
	}
	most := make([]int, len(prompts))
	for i, p := range prompts {
		if most[i], err = a.codec.checkPrompt("prompt", p, least); err != nil {
			return nil, err
		}
	}
	id := a.stamp.id("cmpl")
	job.base = completionReply{ID: id, Object: "text_completion", Created: a.stamp.now().Unix(), Model: a.models.names[0]}
	form, err := a.forms.ofText(ctx, &in.sampling)
	if err != nil {
		return nil, err
	}
	job.choices = a.engine.choices(id, &in.sampling, params, prompts, most, form)
	return job, nil
}

// echoOnly: nothing is to be sampled.
func (j *completionJob) echoOnly() bool { return j.in.Echo && or(j.in.MaxTokens, 16) == 0 }

// choice tells what of c has not been told.
func (a *completionsAPI) choice(j *completionJob, c *choice, first, last bool) completionChoice {
	tokens, text := c.news()
	out := completionChoice{Index: c.index, Text: text}
	prompt := c.request.Prompt
	if j.in.Logprobs != nil {
		spell := speller{a.codec.tokenizer, j.in.AsIDs}
		out.Logprobs = &completionLogprobs{Offsets: []int{}, Logprobs: []*float64{}, Tokens: []string{}, Top: []map[string]float64{}}
		if j.in.Echo {
			c.offset = out.Logprobs.prompt(spell, prompt, j.prompts[c.index/j.n])
		}
		c.offset = out.Logprobs.add(spell, tokens, c.offset)
	}
	if j.in.Echo {
		out.Text = a.codec.tokenizer.Decode(prompt, or(j.in.SkipSpecial, true)) + text
	}
	if j.in.TokenIDs {
		out.TokenIDs = ids(tokens)
		if first {
			out.Prompt = prompt
		}
	}
	if j.in.Prompts != nil && first {
		out.PromptLP = speller{tokenizer: a.codec.tokenizer}.prompt(prompt, j.prompts[c.index/j.n])
	}
	if last {
		finish := c.finish
		if j.echoOnly() {
			finish = "length"
		}
		out.Finish, out.Reason = &finish, c.reason
		if j.in.TokenIDs {
			out.Versions = a.weights.spans(c.tokens)
		}
	}
	return out
}

// stream answers with server-sent events.
func (a *completionsAPI) stream(w http.ResponseWriter, r *http.Request, p *places, j *completionJob) error {
	e := newEvents(w)
	err := a.engine.run(r.Context(), p, j.choices, j.detail, func(c *choice) error {
		last := c.finish != ""
		if !last && c.sentText == c.output.Len() && !j.in.TokenIDs && j.in.Logprobs == nil {
			return nil // within a character, or within what may be a stop string
		}
		chunk := j.base
		chunk.Choices = []completionChoice{a.choice(j, c, !c.announced, last)}
		c.announced = true
		if j.in.Options.continuous() {
			chunk.Usage = count([]*choice{c}, 1)
		}
		return e.send(chunk)
	})
	if err == nil && j.in.Options.usage() {
		chunk := j.base
		chunk.Choices, chunk.Usage = []completionChoice{}, count(j.choices, j.n)
		err = e.send(chunk)
	}
	e.close(err)
	return nil
}
