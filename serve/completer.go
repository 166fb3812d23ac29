package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// completer samples the choices of requests: it passes the gate, asks the engine, and counts.
type completer struct {
	engine      engines.Engine
	tokenizer   Tokenizer
	gate        *gate
	metrics     *metrics
	now         func() time.Time
	seed        func() uint64 // of requests without one
	warn        func(text string)
	rawLogprobs bool // at temperature 1, untruncated
	maxLogprobs int
}

// choices makes the n choices of each prompt, in a form that is nil where they are free.
func (e *completer) choices(id string, p *sampling, params engines.Sampling, prompts [][]int32, maxTokens []int, form engines.Constraint) []*choice {
	n := int(or(p.N, 1))
	var out []*choice
	for i, prompt := range prompts {
		for _, seed := range e.seeds(p, n) {
			sampling := params
			sampling.MaxTokens = maxTokens[i]
			sampling.MinTokens = min(sampling.MinTokens, sampling.MaxTokens) // which the context may have lowered
			c := &choice{index: len(out), text: &textStream{
				tokenizer: e.tokenizer, skipSpecial: or(p.SkipSpecial, true), stops: params.Stop, includeStop: p.IncludeStop, least: params.MinTokens,
			}}
			c.request = engines.Request{ID: fmt.Sprintf("%s-%d", id, c.index), Session: id, Prompt: prompt, Sampling: sampling, Seed: seed, Constraint: form}
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
func (e *completer) run(ctx context.Context, p *places, choices []*choice, d engines.Detail, tell func(*choice) error) error {
	defer p.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, c := range choices {
		wait.Go(func() {
			defer e.recovered(c, cancel)
			if err := e.complete(ctx, c, d, &mu, tell); err != nil {
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
func (e *completer) recovered(c *choice, cancel context.CancelCauseFunc) {
	if p := recover(); p != nil {
		e.metrics.finished("error", len(c.request.Prompt), 0)
		cancel(panicked(e.warn, fmt.Sprintf("completion %d", c.index), p))
	}
}

// complete runs one choice to its end.
func (e *completer) complete(ctx context.Context, c *choice, d engines.Detail, mu *sync.Mutex, tell func(*choice) error) error {
	begin := e.now()
	inner, leave, err := e.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var last time.Time
	var failed error
	inner, stop := context.WithCancel(inner)
	defer stop()
	completion, err := e.stream(inner, c.request, d, func(tokens []engines.Token) {
		mu.Lock()
		defer mu.Unlock()
		now := e.now()
		e.metrics.tokens(len(tokens), now.Sub(begin), last, now)
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
		e.metrics.finished("abort", len(c.request.Prompt), e.now().Sub(begin))
		return context.Cause(ctx)
	case err != nil:
		e.metrics.finished("error", len(c.request.Prompt), e.now().Sub(begin))
		return err
	default:
		c.end(completion.FinishReason, completion.CachedTokens)
	}
	e.metrics.finished(c.finish, len(c.request.Prompt), e.now().Sub(begin))
	return tell(c)
}

// stream asks the engine; one that does not stream gives all at once, and cannot list alternatives.
func (e *completer) stream(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	if streamer, ok := e.engine.(engines.Streamer); ok {
		return streamer.Stream(ctx, r, d, on)
	}
	if d.Top > 0 || d.Raw && (r.Sampling.Temperature != 1 && r.Sampling.Temperature != 0 || r.Sampling.TopP != 1 || r.Sampling.TopK != 0 || r.Sampling.MinP != 0 || r.Sampling.Penalized()) {
		return engines.Completion{}, badf("logprobs", "this engine tells the logprobs of sampled tokens alone, of the distribution that was sampled")
	}
	completion, err := e.engine.Generate(ctx, r)
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

// detail says what the engine is to tell.
func (e *completer) detail(logprobs *dialects.Whole, param string) (engines.Detail, error) {
	n := int(or(logprobs, 0))
	if n < 0 || n > e.maxLogprobs {
		return engines.Detail{}, badf(param, "%s is %d, allowed are 0 to %d", param, n, e.maxLogprobs)
	}
	return engines.Detail{Raw: e.rawLogprobs, Top: n}, nil
}

// logprobsOfPrompts gives the logprobs of the prompts' own tokens, where they are wanted.
func (e *completer) logprobsOfPrompts(ctx context.Context, choices []*choice, n int, wanted bool) ([][]float32, error) {
	if !wanted {
		return nil, nil
	}
	prober, ok := e.engine.(engines.Logprober)
	if !ok {
		return nil, badf("prompt_logprobs", "this engine does not tell the logprobs of prompts")
	}
	inner, leave, err := e.gate.enter(ctx)
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
		switch {
		case err != nil && errors.Is(context.Cause(inner), errAborted): // the engine's own error says only that it was told to stop
			return nil, e.gate.refusal()
		case err != nil:
			return nil, err
		}
		out = append(out, logprobs)
	}
	return out, nil
}

// givenLogprobs are the logprobs of a request's only prompt, where they are wanted.
func (e *completer) givenLogprobs(ctx context.Context, choices []*choice, wanted bool) ([]promptLogprob, error) {
	logprobs, err := e.logprobsOfPrompts(ctx, choices, len(choices), wanted)
	if err != nil || logprobs == nil {
		return nil, err
	}
	return speller{tokenizer: e.tokenizer}.prompt(choices[0].request.Prompt, logprobs[0]), nil
}

// seeds gives the seed of each of the n choices of a prompt: vLLM's rule where one is given.
func (e *completer) seeds(p *sampling, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		if p.Seed != nil {
			out[i] = uint64(*p.Seed) + uint64(i)
		} else {
			out[i] = e.seed()
		}
	}
	return out
}
