package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// choice is one completion of a request. While it runs, the request's lock guards it.
type choice struct {
	index   int
	request engines.Request
	eos     []int32 // of the request's stop ids, those that are not named in it: no stop reason is told for them
	text    *textStream

	tokens []engines.Token
	output strings.Builder // the text so far
	finish string          // "" while it runs
	reason any             // stop_reason: nil, the stop token's id or the stop string
	cached int

	sent      int              // tokens that the stream has told of
	sentText  int              // bytes of output
	offset    int              // of the next token's text, for text_offset
	calls     *agents.Splitter // nil: calls are not looked for
	announced bool
}

// news is what a choice has that the stream has not told yet.
func (c *choice) news() (tokens []engines.Token, text string) {
	tokens, text = c.tokens[c.sent:], c.output.String()[c.sentText:]
	c.sent, c.sentText = len(c.tokens), c.output.Len()
	return tokens, text
}

// ids is never nil, so that none is written as an empty list.
func ids(tokens []engines.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}

// take adds sampled tokens. The stop token is not part of the text unless the request wants it.
func (c *choice) take(tokens []engines.Token) {
	for _, t := range tokens {
		t.Top = slices.Clone(t.Top)
		c.tokens = append(c.tokens, t)
		if slices.Contains(c.request.Sampling.StopIDs, t.ID) && !c.text.includeStop {
			continue
		}
		c.output.WriteString(c.text.push(t.ID))
	}
}

// end closes the choice.
func (c *choice) end(finish trajectory.FinishReason, cached int) {
	c.output.WriteString(c.text.end())
	c.finish, c.cached = string(finish), cached
	if finish != trajectory.FinishStop {
		return
	}
	last := c.tokens[len(c.tokens)-1].ID
	switch {
	case c.text.matched != "":
		c.reason = c.text.matched
	case slices.Contains(c.request.Sampling.StopIDs, last):
		if !slices.Contains(c.eos, last) {
			c.reason = last
		}
	case len(c.request.Sampling.Stop) == 1: // spelt with special tokens that the text leaves out
		c.reason = c.request.Sampling.Stop[0]
	}
}

// choices makes the n choices of each prompt.
func (s *Server) choices(id string, p *sampling, params engines.Sampling, prompts [][]int32, maxTokens []int) []*choice {
	n := or(p.N, 1)
	var out []*choice
	for i, prompt := range prompts {
		for _, seed := range s.seeds(p, n) {
			sampling := params
			sampling.MaxTokens = maxTokens[i]
			sampling.MinTokens = min(sampling.MinTokens, sampling.MaxTokens) // which the context may have lowered
			c := &choice{index: len(out), text: &textStream{
				tokenizer: s.o.Tokenizer, skipSpecial: or(p.SkipSpecial, true), stops: params.Stop, includeStop: p.IncludeStop, least: params.MinTokens,
			}}
			c.request = engines.Request{ID: fmt.Sprintf("%s-%d", id, c.index), Session: id, Prompt: prompt, Sampling: sampling, Seed: seed}
			for _, stop := range params.StopIDs {
				if !slices.Contains(p.StopIDs, stop) {
					c.eos = append(c.eos, stop)
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// run completes the choices in their places, and leaves these. tell is called, under one lock, after each piece and once at
// the end of each choice; its error ends the run. The first failure ends the others and is returned; a panic is one.
func (s *Server) run(ctx context.Context, p *places, choices []*choice, d engines.Detail, tell func(*choice) error) error {
	defer p.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, c := range choices {
		wait.Go(func() {
			defer s.recovered(c, cancel)
			if err := s.complete(ctx, c, d, &mu, tell); err != nil {
				cancel(err)
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// recovered ends the run with what a choice panicked with: the other requests have no part in it.
func (s *Server) recovered(c *choice, cancel context.CancelCauseFunc) {
	if p := recover(); p != nil {
		s.metrics.finished("error", len(c.request.Prompt), 0)
		cancel(s.panicked(fmt.Sprintf("completion %d", c.index), p))
	}
}

// complete runs one choice to its end.
func (s *Server) complete(ctx context.Context, c *choice, d engines.Detail, mu *sync.Mutex, tell func(*choice) error) error {
	begin := s.o.Now()
	inner, leave, err := s.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var last time.Time
	var failed error
	inner, stop := context.WithCancel(inner)
	defer stop()
	completion, err := s.stream(inner, c.request, d, func(tokens []engines.Token) {
		mu.Lock()
		defer mu.Unlock()
		now := s.o.Now()
		s.metrics.tokens(len(tokens), now.Sub(begin), last, now)
		last = now
		c.take(tokens)
		if failed == nil {
			if failed = tell(c); failed != nil {
				stop()
			}
		}
	})
	mu.Lock()
	defer mu.Unlock()
	switch {
	case failed != nil:
		return failed
	case err != nil && errors.Is(context.Cause(inner), errAborted):
		c.end(trajectory.FinishAbort, 0)
	case err != nil && ctx.Err() != nil:
		s.metrics.finished("abort", len(c.request.Prompt), s.o.Now().Sub(begin))
		return context.Cause(ctx)
	case err != nil:
		s.metrics.finished("error", len(c.request.Prompt), s.o.Now().Sub(begin))
		return err
	default:
		c.end(completion.FinishReason, completion.CachedTokens)
	}
	s.metrics.finished(c.finish, len(c.request.Prompt), s.o.Now().Sub(begin))
	return tell(c)
}

// stream asks the engine; one that does not stream gives all at once, and cannot list alternatives.
func (s *Server) stream(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	if streamer, ok := s.o.Engine.(engines.Streamer); ok {
		return streamer.Stream(ctx, r, d, on)
	}
	if d.Top > 0 || d.Raw && (r.Sampling.Temperature != 1 && r.Sampling.Temperature != 0 || r.Sampling.TopP != 1 || r.Sampling.TopK != 0 || r.Sampling.MinP != 0 || r.Sampling.Penalized()) {
		return engines.Completion{}, badf("logprobs", "this engine tells the logprobs of sampled tokens alone, of the distribution that was sampled")
	}
	completion, err := s.o.Engine.Generate(ctx, r)
	if err != nil {
		return completion, err
	}
	tokens := make([]engines.Token, len(completion.TokenIDs))
	for i, id := range completion.TokenIDs {
		tokens[i] = engines.Token{ID: id, Logprob: completion.Logprobs[i], Version: completion.Versions[i]}
	}
	on(tokens)
	return completion, nil
}

// span says which weights sampled the tokens from Start to End.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// spans joins the versions of tokens.
func (s *Server) spans(tokens []engines.Token) []span {
	out := []span{}
	for i, t := range tokens {
		label := s.weights.label(t.Version)
		if n := len(out); n > 0 && out[n-1].Version == label {
			out[n-1].End = i + 1
		} else {
			out = append(out, span{label, i, i + 1})
		}
	}
	return out
}

// usage counts tokens as OpenAI does: a prompt of several choices once.
type usage struct {
	Prompt     int           `json:"prompt_tokens"`
	Total      int           `json:"total_tokens"`
	Completion int           `json:"completion_tokens"`
	Details    *cachedTokens `json:"prompt_tokens_details"`
}

type cachedTokens struct {
	Cached int `json:"cached_tokens"`
}

func count(choices []*choice, n int) *usage {
	u := &usage{Details: &cachedTokens{}}
	for i, c := range choices {
		if i%n == 0 {
			u.Prompt += len(c.request.Prompt)
			u.Details.Cached += c.cached
		}
		u.Completion += len(c.tokens)
	}
	u.Total = u.Prompt + u.Completion
	return u
}
