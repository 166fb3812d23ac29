package serve

import (
	"context"
	"encoding/json"
	"net/http"

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

// prompts reads a text, ids, or a list of either.
func (s *Server) prompts(raw json.RawMessage, addSpecial bool) ([][]int32, error) {
	var (
		text  string
		texts []string
		ids   []int32
		lists [][]int32
	)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, badf("prompt", "the prompt is missing")
	case json.Unmarshal(raw, &text) == nil:
		return [][]int32{s.encode(text, addSpecial)}, nil
	case json.Unmarshal(raw, &ids) == nil:
		if len(ids) == 0 {
			return nil, badf("prompt", "the prompt is empty")
		}
		return [][]int32{ids}, nil
	case json.Unmarshal(raw, &texts) == nil:
		for _, t := range texts {
			lists = append(lists, s.encode(t, addSpecial))
		}
		return lists, nil
	case json.Unmarshal(raw, &lists) == nil:
		return lists, nil
	}
	return nil, badf("prompt", "the prompt must be a string, a list of strings, a list of token ids, or a list of such lists")
}

func (s *Server) encode(text string, addSpecial bool) []int32 {
	ids := s.o.Tokenizer.Encode(text)
	if addSpecial {
		before, after := s.o.Tokenizer.AddedByTemplate()
		ids = append(append(append([]int32(nil), before...), ids...), after...)
	}
	return ids
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
	scores  [][]float32 // of each prompt, where the request wants prompt logprobs
}

func (s *Server) answerCompletion(w http.ResponseWriter, r *http.Request, in *completionRequest) error {
	job, err := s.completionJob(in)
	if err != nil {
		return err
	}
	if job.scores, err = s.scores(r.Context(), job.choices, job.n, in.Prompts != nil || in.Echo && in.Logprobs != nil); err != nil {
		return err
	}
	if in.Stream {
		return s.streamCompletion(w, r, job)
	}
	if !job.echoOnly() {
		if err := s.run(r.Context(), job.choices, job.detail, func(*choice) error { return nil }); err != nil {
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

func (s *Server) completionJob(in *completionRequest) (*completionJob, error) {
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
	prompts, err := s.prompts(in.Prompt, or(in.AddSpecial, true))
	if err != nil {
		return nil, err
	}
	if len(prompts) == 0 {
		return nil, badf("prompt", "the list of prompts is empty")
	}
	least := want
	if in.Echo {
		least = max(want, 1) // of 0 the prompt alone is told
	}
	most := make([]int, len(prompts))
	for i, p := range prompts {
		if most[i], err = s.checkPrompt(p, least, false); err != nil {
			return nil, err
		}
	}
	params, err := in.engine(max(want, 1), s.o.StopIDs)
	if err != nil {
		return nil, err
	}
	if len(prompts)*job.n > s.o.MaxQueue {
		return nil, badf("n", "%d prompts of %d completions each are more than the %d that the queue holds", len(prompts), job.n, s.o.MaxQueue)
	}
	id := s.id("cmpl")
	job.base = completionReply{ID: id, Object: "text_completion", Created: s.o.Now().Unix(), Model: s.o.Models[0]}
	job.choices = s.choices(id, &in.sampling, params, prompts, most)
	return job, nil
}

// echoOnly: nothing is to be sampled.
func (j *completionJob) echoOnly() bool { return j.in.Echo && or(j.in.MaxTokens, 16) == 0 }

// scores gives the logprobs of the prompts' own tokens, where they are wanted.
func (s *Server) scores(ctx context.Context, choices []*choice, n int, wanted bool) ([][]float32, error) {
	if !wanted {
		return nil, nil
	}
	scorer, ok := s.o.Engine.(engines.Scorer)
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
		scores, err := scorer.Score(inner, prompt)
		if err != nil {
			return nil, err
		}
		out = append(out, scores)
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
			c.offset = out.Logprobs.prompt(s, prompt, j.scores[c.index/j.n], j.in.AsIDs)
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
		out.PromptLP = s.promptLogprobs(prompt, j.scores[c.index/j.n])
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
func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, j *completionJob) error {
	e := s.events(w)
	err := s.run(r.Context(), j.choices, j.detail, func(c *choice) error {
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
