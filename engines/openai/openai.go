// Package openai is an engine for rollout and evaluation on any OpenAI-compatible chat endpoint, hosted models too. Such an
// endpoint takes and returns text, so there are no token ids, logprobs or versions of what was sampled: Capabilities says so
// and training refuses it. The ids that it returns are the policy's tokenizer's for the text. Safe for concurrent use.
//
// It does not take weights, so no run trains with it.
package openai

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/hosted"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// Options configure an engine. A zero value takes the default in brackets.
type Options struct {
	URL         string                    // with /v1 at the end
	Model       string                    // the endpoint's name of the model
	APIKey      string                    //
	Encode      func(text string) []int32 // the policy's tokenizer
	MaxModelLen int                       // [131072]
	Attempts    int                       // [6]
	Backoff     time.Duration             // before the second attempt, then doubled up to 30 s [500 ms]
	Transport   http.RoundTripper         // [http.DefaultTransport]
}

// Engine implements engines.Engine.
type Engine struct {
	options Options
	client  *openai.Client
	pause   func(ctx context.Context, d time.Duration) error // between attempts
	ctx     context.Context                                  // ends at Close
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

var _ engines.Engine = (*Engine)(nil)

// New returns an engine; nothing is sent before the first request.
func New(o Options) (*Engine, error) {
	switch {
	case !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://"):
		return nil, fmt.Errorf("openai: the url is %q; it must begin with http:// or https://, such as http://127.0.0.1:8000/v1", o.URL)
	case o.Model == "":
		return nil, errors.New("openai: the model's name is missing")
	case o.Encode == nil:
		return nil, errors.New("openai: a tokenizer is needed")
	}
	if o.MaxModelLen == 0 {
		o.MaxModelLen = 1 << 17
	}
	if o.Attempts == 0 {
		o.Attempts = 6
	}
	if o.Backoff == 0 {
		o.Backoff = 500 * time.Millisecond
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	config := openai.DefaultConfig(o.APIKey)
	config.BaseURL = strings.TrimRight(o.URL, "/")
	config.HTTPClient = &http.Client{Transport: retry.Noting{Base: o.Transport}}
	e := &Engine{options: o, client: openai.NewClientWithConfig(config), pause: retry.Sleep}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Capabilities implements engines.Engine.
func (e *Engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{MaxModelLen: e.options.MaxModelLen}
}

// Update implements engines.Engine: the endpoint's weights are not ours.
func (e *Engine) Update(context.Context, engines.Weights) error {
	return errors.New("openai: the endpoint's weights cannot be changed; training needs engine local or vllm")
}

// Close implements engines.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.running.Wait()
	return nil
}

// Generate implements engines.Engine. It needs the request's Messages.
func (e *Engine) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	c, err := e.generate(ctx, q)
	if err != nil && e.ctx.Err() != nil {
		err = engines.ErrClosed
	}
	if err != nil {
		return engines.Completion{}, fmt.Errorf("openai: request %s: %w", q.ID, err)
	}
	return c, nil
}

func (e *Engine) generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	if err := check(q, e.options.Model); err != nil {
		return engines.Completion{}, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return engines.Completion{}, engines.ErrClosed
	}
	e.running.Add(1)
	e.mu.Unlock()
	defer e.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.ctx, cancel)
	defer stop()
	body, err := request(q, e.options.Model)
	if err != nil {
		return engines.Completion{}, err
	}
	watchdog.Move(ctx, "engine "+e.options.URL)
	var reply openai.ChatCompletionResponse
	attempts := retry.Attempts{Most: e.options.Attempts, Backoff: retry.Backoff{First: e.options.Backoff, Most: mostBackoff}, Sleep: e.pause}
	n, err, late := attempts.Do(ctx, func() (after time.Duration, final bool, err error) {
		var note retry.Noted
		reply, err = e.client.CreateChatCompletion(retry.Note(ctx, &note), body)
		return note.After, err != nil && !note.Passing(err), err
	})
	switch {
	case err == nil:
		return e.completion(q, reply)
	case late != nil:
		return engines.Completion{}, fmt.Errorf("%w; the last attempt: %w", late, retry.OneLine(err))
	case ctx.Err() != nil:
		return engines.Completion{}, ctx.Err()
	}
	return engines.Completion{}, fmt.Errorf("after %d attempts: %w", n, retry.OneLine(err))
}

const mostBackoff = 30 * time.Second

// check refuses what the protocol cannot say.
func check(q engines.Request, model string) error {
	if err := q.ValidateFree(); err != nil {
		return err
	}
	if err := q.ValidateTop(0); err != nil {
		return err
	}
	switch s := q.Sampling; {
	case q.Sampled != 0:
		return errors.New("an endpoint cannot go on within a completion as if it had not ended")
	case len(q.Messages) == 0:
		return errors.New("the request has no messages, and a chat endpoint takes no token ids")
	case s.TopK != 0 || s.MinP != 0:
		return errors.New("top_k and min_p are not part of the OpenAI protocol; leave them off")
	case s.Repeats() || s.MinTokens != 0:
		return errors.New("repetition_penalty and min_tokens are not part of the OpenAI protocol; leave them off")
	case hosted.FixedSampling(model) && (s.Temperature != 1 || s.TopP != 1):
		return fmt.Errorf("the model %s samples at temperature 1 and top_p 1 only; the request has %v and %v", model, s.Temperature, s.TopP)
	}
	return nil
}

func request(q engines.Request, model string) (openai.ChatCompletionRequest, error) {
	seed := int(q.Seed & math.MaxInt32)
	r := openai.ChatCompletionRequest{
		Model: model, MaxCompletionTokens: q.Sampling.MaxTokens, Seed: &seed,
		PresencePenalty: float32(q.Sampling.Presence), FrequencyPenalty: float32(q.Sampling.Frequency),
	}
	if !hosted.FixedSampling(model) {
		r.Temperature, r.TopP = float32(q.Sampling.Temperature), float32(q.Sampling.TopP)
		if r.Temperature == 0 {
			r.Temperature = math.SmallestNonzeroFloat32 // the library leaves a 0 out, and the endpoint would take its default
		}
	}
	for _, m := range q.Messages {
		text, err := m.TextContent()
		if err != nil {
			return r, err
		}
		sent := openai.ChatCompletionMessage{Role: m.Role, Content: text, Name: m.Name, ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			sent.ToolCalls = append(sent.ToolCalls, openai.ToolCall{
				ID: c.ID, Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: c.Name, Arguments: string(c.Arguments)},
			})
		}
		r.Messages = append(r.Messages, sent)
	}
	return r, nil
}

// completion cuts the text after the first stop string. It is not sent, because an endpoint leaves it out of the text
// without saying which it was.
func (e *Engine) completion(q engines.Request, reply openai.ChatCompletionResponse) (engines.Completion, error) {
	if len(reply.Choices) != 1 {
		return engines.Completion{}, fmt.Errorf("the endpoint returned %d choices, expected 1", len(reply.Choices))
	}
	if reply.Choices[0].FinishReason == openai.FinishReasonContentFilter {
		return engines.Completion{}, errors.New("the endpoint's content filter ended the completion, so it is not what the model would have said")
	}
	text, cut := cutAfter(reply.Choices[0].Message.Content, q.Sampling.Stop)
	ids := e.options.Encode(text)
	c := engines.Completion{TokenIDs: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), FinishReason: trajectory.FinishStop}
	if !cut && reply.Choices[0].FinishReason == openai.FinishReasonLength {
		c.FinishReason = trajectory.FinishLength
	}
	if len(ids) == 0 && c.FinishReason != trajectory.FinishLength {
		return engines.Completion{}, errors.New("the endpoint returned no text")
	}
	return c, nil
}

// cutAfter cuts a text after the stop string that ends first.
func cutAfter(text string, stops []string) (string, bool) {
	end := -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (end < 0 || i+len(s) < end) {
			end = i + len(s)
		}
	}
	if end < 0 {
		return text, false
	}
	return text[:end], true
}
