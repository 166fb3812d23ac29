package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/engines"
)

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	sampling
	Model      *string         `json:"model"`
	Prompt     json.RawMessage `json:"prompt"`
	Suffix     string          `json:"suffix"`
	Echo       bool            `json:"echo"`
	MaxTokens  *int            `json:"max_tokens"`
	Logprobs   *int            `json:"logprobs"`
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
func (s *Server) prompts(ctx context.Context, raw json.RawMessage, n int, addSpecial bool) ([][]int32, error) {
	texts, lists, err := s.readPrompts(raw, n)
	for _, text := range texts {
		var ids []int32
		if err == nil {
			ids, err = s.encode(ctx, text, addSpecial)
		}
		lists = append(lists, ids)
	}
	return lists, err
}

// readPrompts reads the texts or the ids of a prompt, one element at a time: a list of empty ones takes ten times its text.
func (s *Server) readPrompts(raw json.RawMessage, n int) (texts []string, lists [][]int32, err error) {
	most := s.o.MaxQueue / n
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil, badf("prompt", "the prompt is missing")
	case most == 0:
		return nil, nil, s.tooMany(1, n)
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
			return nil, nil, s.tooMany(most+1, n)
		}
		switch next := bytes.TrimLeft(raw[d.InputOffset():], ", \t\r\n"); next[0] {
		case '"':
			var text string
			if d.Decode(&text) != nil {
				return nil, nil, errPrompt
			}
			if err := s.checkText("prompt", "the prompt", len(text)); err != nil {
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

// tooMany refuses more completions than the queue ever holds.
func (s *Server) tooMany(prompts, n int) error {
	return badf("n", "%d prompts or more of %d completions each are more than the %d that the queue holds", prompts, n, s.o.MaxQueue)
}

func (s *Server) encode(ctx context.Context, text string, addSpecial bool) (ids []int32, err error) {
	if err := s.withText(ctx, func() { ids = s.o.Tokenizer.Encode(text) }); err != nil {
		return nil, err
	}
	if addSpecial {
		before, after := s.o.Tokenizer.AddedByTemplate()
		ids = append(append(append([]int32(nil), before...), ids...), after...)
	}
	return ids, nil
}

// detail says what the engine is to tell.
func (s *Server) detail(logprobs *int, param string) (engines.Detail, error) {
	n := or(logprobs, 0)
	if n < 0 || n > s.o.MaxLogprobs {
		return engines.Detail{}, badf(param, "%s is %d, allowed are 0 to %d", param, n, s.o.MaxLogprobs)
	}
	return engines.Detail{Raw: s.o.RawLogprobs, Top: n}, nil
}

// completionJob is a request of /v1/completions that passed its checks.
type completionJob struct {
	in      *completionRequest
	base    completionReply
	choices []*choice
	detail  engines.Detail
	n       int         // choices a prompt
	prompts [][]float32 // logprobs of each prompt, where the request wants prompt logprobs
}

func (s *Server) answerCompletion(w http.ResponseWriter, r *http.Request, p *places, in *completionRequest) error {
	job, err := s.completionJob(r.Context(), in)
	if err != nil {
		return err
	}
	if err := p.need(len(job.choices)); err != nil {
		return err
	}
	if job.prompts, err = s.logprobsOfPrompts(r.Context(), job.choices, job.n, in.Prompts != nil || in.Echo && in.Logprobs != nil); err != nil {
		return err
	}
	if in.Stream {
		return s.streamCompletion(w, r, p, job)
	}
	if !job.echoOnly() {
		if err := s.run(r.Context(), p, job.choices, job.detail, func(*choice) error { return nil }); err != nil {
			return err
		}
	}
	out := job.base
	for _, c := range job.choices {
		out.Choices = append(out.Choices, s.completionChoice(job, c, true, true))
	}
	out.Usage = count(job.choices, job.n)
	s.reply(w, http.StatusOK, out)
	return nil
}

func (s *Server) completionJob(ctx context.Context, in *completionRequest) (*completionJob, error) {
	if err := s.checkModel(in.Model); err != nil {
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
	want, err := maxTokens(in.MaxTokens, 16)
	if err != nil {
		return nil, err
	}
	job := &completionJob{in: in, n: or(in.N, 1)}
	if job.detail, err = s.detail(in.Logprobs, "logprobs"); err != nil {
		return nil, err
	}
	params, err := in.engine(max(want, 1), s.o.StopIDs)
	if err != nil {
		return nil, err
	}
	prompts, err := s.prompts(ctx, in.Prompt, job.n, or(in.AddSpecial, true))
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
		if most[i], err = s.checkPrompt(p, least); err != nil {
			return nil, err
		}
	}
	id := s.id("cmpl")
	job.base = completionReply{ID: id, Object: "text_completion", Created: s.o.Now().Unix(), Model: s.o.Models[0]}
	job.choices = s.choices(id, &in.sampling, params, prompts, most)
	return job, nil
}

// echoOnly: nothing is to be sampled.
func (j *completionJob) echoOnly() bool { return j.in.Echo && or(j.in.MaxTokens, 16) == 0 }

// logprobsOfPrompts gives the logprobs of the prompts' own tokens, where they are wanted.
func (s *Server) logprobsOfPrompts(ctx context.Context, choices []*choice, n int, wanted bool) ([][]float32, error) {
	if !wanted {
		return nil, nil
	}
	prober, ok := s.o.Engine.(engines.Logprober)
	if !ok {
		return nil, badf("prompt_logprobs", "this engine does not tell the logprobs of prompts")
	}
	inner, leave, err := s.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var out [][]float32
	for i := 0; i < len(choices); i += n {
		prompt := choices[i].request.Prompt
		if len(prompt) < 2 {
			out = append(out, []float32{})
			continue
		}
		logprobs, err := prober.Logprobs(inner, prompt)
		if err != nil {
			return nil, err
		}
		out = append(out, logprobs)
	}
	return out, nil
}

// completionChoice tells what of c has not been told.
func (s *Server) completionChoice(j *completionJob, c *choice, first, last bool) completionChoice {
	tokens, text := c.news()
	out := completionChoice{Index: c.index, Text: text}
	prompt := c.request.Prompt
	if j.in.Logprobs != nil {
		out.Logprobs = &completionLogprobs{Offsets: []int{}, Logprobs: []*float64{}, Tokens: []string{}, Top: []map[string]float64{}}
		if j.in.Echo {
			c.offset = out.Logprobs.prompt(s, prompt, j.prompts[c.index/j.n], j.in.AsIDs)
		}
		c.offset = out.Logprobs.add(s, tokens, c.offset, j.in.AsIDs)
	}
	if j.in.Echo {
		out.Text = s.o.Tokenizer.Decode(prompt, or(j.in.SkipSpecial, true)) + text
	}
	if j.in.TokenIDs {
		out.TokenIDs = ids(tokens)
		if first {
			out.Prompt = prompt
		}
	}
	if j.in.Prompts != nil && first {
		out.PromptLP = s.promptLogprobs(prompt, j.prompts[c.index/j.n])
	}
	if last {
		finish := c.finish
		if j.echoOnly() {
			finish = "length"
		}
		out.Finish, out.Reason = &finish, c.reason
		if j.in.TokenIDs {
			out.Versions = s.spans(c.tokens)
		}
	}
	return out
}

// streamCompletion answers with server-sent events.
func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, p *places, j *completionJob) error {
	e := newEvents(s, w)
	err := s.run(r.Context(), p, j.choices, j.detail, func(c *choice) error {
		last := c.finish != ""
		if !last && c.sentText == c.output.Len() && !j.in.TokenIDs && j.in.Logprobs == nil {
			return nil // within a character, or within what may be a stop string
		}
		chunk := j.base
		chunk.Choices = []completionChoice{s.completionChoice(j, c, !c.announced, last)}
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
