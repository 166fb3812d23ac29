package serve

import (
	"context"
	"runtime"

	"github.com/agentfly/agentfly/dialects"
)

// codec turns text into the model's tokens and back, and refuses what is too much for the model before it costs anything.
type codec struct {
	tokenizer Tokenizer
	renderer  Renderer // nil: the model has no chat template
	stopIDs   []int32  // that end a completion unless ignore_eos
	vocab     int
	maxLen    int           // tokens of a context
	maxText   int           // bytes of a text that is tokenized
	slots     chan struct{} // holds one token for each text that is being tokenized
}

func newCodec(o Options, maxLen int) *codec {
	return &codec{
		tokenizer: o.Tokenizer, renderer: o.Renderer, stopIDs: o.StopIDs, vocab: o.Vocab, maxLen: maxLen,
		maxText: textLimit(o.Tokenizer, o.Vocab, maxLen), slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// do calls f, which turns text into tokens or tokens into text. Few do so at once: it takes a processor whole, and
// cannot be interrupted.
func (c *codec) do(ctx context.Context, f func()) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	f()
	return nil
}

// checkText refuses a text of so many bytes that it cannot fit, before it is tokenized.
func (c *codec) checkText(param, what string, bytes int) error {
	if bytes > c.maxText {
		return badf(param, "%s has %d bytes; at most %d are tokenized, as this model's maximum context length is %d tokens", what, bytes, c.maxText, c.maxLen)
	}
	return nil
}

// checkParts refuses a conversation of more messages, calls and tools than the context has tokens.
func (c *codec) checkParts(param string, parts int) error {
	if parts > c.maxLen {
		return badf(param, "the conversation has %d messages, calls and tools; this model's maximum context length is %d tokens", parts, c.maxLen)
	}
	return nil
}

// leastText is how many bytes of text are always tokenized, however short the context is: /tokenize counts them.
const leastText = 1 << 20

// textLimit is how many bytes of text a request may bring: a context of the longest tokens.
func textLimit(t Tokenizer, vocab, maxLen int) int {
	longest := 1
	for id := range int32(vocab) {
		longest = max(longest, len(t.Bytes(id)))
	}
	return max(leastText, maxLen*longest)
}

func (c *codec) encode(ctx context.Context, text string, addSpecial bool) (ids []int32, err error) {
	if err := c.do(ctx, func() { ids = c.tokenizer.Encode(text) }); err != nil {
		return nil, err
	}
	if addSpecial {
		before, after := c.tokenizer.AddedByTemplate()
		ids = append(append(append([]int32(nil), before...), ids...), after...)
	}
	return ids, nil
}

// checkPrompt refuses what the engine cannot take; param is what the request calls the prompt. It returns how many tokens are sampled at most:
// those that are wanted, or that fit; maxTokens < 0 stands for as many as fit. Agents ask for tens of thousands, whatever the model, and would take
// an error for a reason to shorten their history.
func (c *codec) checkPrompt(param string, prompt []int32, maxTokens int) (int, error) {
	if len(prompt) == 0 {
		return 0, badf(param, "the prompt is empty")
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= c.vocab {
			return 0, badf(param, "prompt token %d is %d, allowed are 0 to %d", i, id, c.vocab-1)
		}
	}
	room := c.maxLen - len(prompt)
	switch {
	case room < 1:
		e := dialects.Overflow(c.maxLen, len(prompt))
		e.Param = param
		return 0, e
	case maxTokens < 0:
		return room, nil
	case maxTokens == 0:
		return 0, badf("max_tokens", "max_tokens is 0, it must be at least 1")
	}
	return min(maxTokens, room), nil
}
