package serve

import (
	"slices"
	"strings"

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
	format    agents.Format    // of calls
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
	if finish != trajectory.FinishStop || len(c.tokens) == 0 { // a form may be whole, here before any token
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
	case len(c.request.Sampling.Stop) == 1 && c.request.Constraint == nil: // spelt with special tokens that the text leaves out
		c.reason = c.request.Sampling.Stop[0]
	}
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
