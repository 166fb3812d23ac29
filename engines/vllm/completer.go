package vllm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/engines"
)

// completer asks a server for completions: over /inference/v1/generate where it is native, else over /v1/completions.
type completer struct {
	client *client
	openai *openai.Client
	direct *direct // nil: native ones go through client
}

func newCompleter(c *client, transport http.RoundTripper, o Options) *completer {
	config := openai.DefaultConfig(o.APIKey)
	config.BaseURL = c.url + "/v1"
	config.HTTPClient = &http.Client{Transport: tapTransport{transport}}
	return &completer{client: c, openai: openai.NewClientWithConfig(config), direct: newDirect(c.url, nativePath, o)}
}

// send asks for a completion by the best route that the server offers. Of likeliest tokens it tells none.
func (c *completer) send(ctx context.Context, native bool, model string, prompt []int32, params map[string]any) (reply, error) {
	if native {
		var data raw
		if err := c.client.call(ctx, http.MethodPost, nativePath, nativeRequest{prompt, params, model, false}, &data); err != nil {
			return reply{}, err
		}
		return parseNative(data, prompt, 0)
	}
	return c.complete(ctx, model, prompt, params, 0)
}

// sendNative is send for what a rollout asks, without detours. logprobs is how many of a token the reply shall list, of which q.Top are wanted.
func (c *completer) sendNative(ctx context.Context, model string, q engines.Request, logprobs int) (out reply, err error) {
	body := func(b []byte) []byte {
		return appendNative(b, model, q.Prompt, q.Sampling, q.Seed, logprobs)
	}
	use := func(data []byte) error {
		out, err = parseNative(data, q.Prompt, q.Top)
		return err
	}
	if c.direct == nil {
		err = c.client.exchange(ctx, http.MethodPost, nativePath, body(nil), use)
		return out, err
	}
	buffer := c.client.buffer()
	defer c.client.free(buffer)
	status, header, err := c.direct.post(ctx, body, buffer)
	if err != nil {
		return out, err
	}
	if status/100 == 3 { // http.Client knows where to go
		err = c.client.exchange(ctx, http.MethodPost, nativePath, body(nil), use)
		return out, err
	}
	if status != http.StatusOK {
		return out, newStatusError(status, header, buffer.Bytes())
	}
	err = use(buffer.Bytes())
	return out, err
}

const nativePath = "/inference/v1/generate"

// sendCompletions is sendNative over /v1/completions.
func (c *completer) sendCompletions(ctx context.Context, model string, q engines.Request, logprobs int) (reply, error) {
	params := samplingParams(q.Sampling, q.Seed)
	params["logprobs"] = logprobs
	return c.complete(ctx, model, q.Prompt, params, q.Top)
}

// complete asks /v1/completions through go-openai; top likeliest tokens of what the reply lists are wanted.
func (c *completer) complete(ctx context.Context, model string, prompt []int32, params map[string]any, top int) (reply, error) {
	t := &tap{extra: map[string]any{
		"model": model, "prompt": prompt, "return_token_ids": true, "return_tokens_as_token_ids": true, "echo": false, "stream": false, "add_special_tokens": false,
	}}
	for key, value := range params {
		t.extra[key] = value
	}
	request := openai.CompletionRequest{Prompt: ""} // extra has the ids, and the model: the library refuses names of OpenAI's models of chats
	_, err := c.openai.CreateCompletion(context.WithValue(ctx, tapKey{}, t), request)
	switch {
	case t.status == 0:
		return reply{}, err
	case t.status != http.StatusOK:
		return reply{}, newStatusError(t.status, t.header, t.body)
	}
	return parseCompletions(t.body, prompt, top)
}

// logprobs are the server's logprobs of ids but the first, computed anew: prompt logprobs are never read from the prefix cache.
func (c *completer) logprobs(ctx context.Context, native bool, model string, ids []int32) ([]float32, error) {
	got, err := c.sendLogprobs(ctx, native, model, ids)
	return got.prompt, err
}

func (c *completer) sendLogprobs(ctx context.Context, native bool, model string, ids []int32) (reply, error) {
	params := samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0)
	params["prompt_logprobs"] = 0
	got, err := c.send(ctx, native, model, ids, params)
	if err == nil && got.prompt == nil {
		err = fmt.Errorf("%w: no prompt_logprobs", errReply)
	}
	return got, err
}
