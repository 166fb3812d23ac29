package vllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// reply is what both routes answer, in one form.
type reply struct {
	ids      []int32
	logprobs []float32
	reason   string
	spans    []span // versions; nil: the route does not say
	cached   int
	prompt   []float32               // [P-1] prompt logprobs, where asked for
	top      [][]engines.Alternative // [n][at least the likeliest tokens that were asked for], see likeliest; nil: none were
}

// span says which weights sampled the tokens [Start, End).
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

type usage struct {
	Details *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// promptLogprobs is one entry a token: null for the first, then an object whose keys are token ids.
type promptLogprobs []map[string]struct {
	Logprob *float64 `json:"logprob"`
}

// of takes the logprobs of the prompt's own tokens.
func (p promptLogprobs) of(prompt []int32) ([]float32, error) {
	if p == nil {
		return nil, nil
	}
	if len(p) != len(prompt) {
		return nil, fmt.Errorf("%w: %d prompt_logprobs for %d prompt tokens", errReply, len(p), len(prompt))
	}
	out := make([]float32, 0, len(prompt)-1)
	for i, id := range prompt[1:] {
		entry, ok := p[i+1][strconv.Itoa(int(id))]
		if !ok || entry.Logprob == nil {
			return nil, fmt.Errorf("%w: prompt_logprobs[%d] has no token %d", errReply, i+1, id)
		}
		out = append(out, float32(*entry.Logprob))
	}
	return out, nil
}

// nativeReply is that of /inference/v1/generate.
type nativeReply struct {
	Choices []struct {
		TokenIDs []int32 `json:"token_ids"`
		Logprobs *struct {
			Content []struct {
				TokenID *int32   `json:"token_id"`
				Logprob *float64 `json:"logprob"`
				Top     raw      `json:"top_logprobs"`
			} `json:"content"`
		} `json:"logprobs"`
		FinishReason   string `json:"finish_reason"`
		WeightVersions []span `json:"weight_versions"`
	} `json:"choices"`
	PromptLogprobs promptLogprobs `json:"prompt_logprobs"`
	Usage          *usage         `json:"usage"`
}

// parseNative reads a reply to a request that wants so many likeliest tokens.
func parseNative(data []byte, prompt []int32, top int) (reply, error) {
	out, ok := scanNative(data, top > 0)
	var err error
	if ok {
		out, err = out.check(out.cached, prompt)
	} else {
		out, err = decodeNative(data, prompt, top > 0)
	}
	if err != nil {
		return out, err
	}
	return out.likeliest(top, true)
}

// decodeNative reads any reply, and says what is wrong with one.
func decodeNative(data []byte, prompt []int32, tops bool) (reply, error) {
	var in nativeReply
	if err := decode(data, &in); err != nil {
		return reply{}, err
	}
	if len(in.Choices) != 1 {
		return reply{}, fmt.Errorf("%w: %d choices, expected 1", errReply, len(in.Choices))
	}
	c := in.Choices[0]
	out := reply{ids: c.TokenIDs, reason: c.FinishReason, spans: c.WeightVersions}
	if c.Logprobs == nil {
		return out, fmt.Errorf("%w: no logprobs", errReply)
	}
	if len(c.Logprobs.Content) != len(c.TokenIDs) {
		return out, fmt.Errorf("%w: %d logprobs for %d token ids", errReply, len(c.Logprobs.Content), len(c.TokenIDs))
	}
	for i, l := range c.Logprobs.Content {
		if l.TokenID == nil || *l.TokenID != c.TokenIDs[i] || l.Logprob == nil {
			return out, fmt.Errorf("%w: logprob %d is not that of token %d", errReply, i, c.TokenIDs[i])
		}
		out.logprobs = append(out.logprobs, float32(*l.Logprob))
		if !tops {
			continue
		}
		list, err := listedTokens(l.Top)
		if err != nil {
			return out, fmt.Errorf("top_logprobs of token %d: %w", i, err)
		}
		out.top = append(out.top, list)
	}
	return out.rest(in.Usage, in.PromptLogprobs, prompt)
}

// completionsReply is that of /v1/completions with return_token_ids and return_tokens_as_token_ids.
type completionsReply struct {
	Choices []struct {
		TokenIDs []int32 `json:"token_ids"`
		Logprobs *struct {
			Tokens   []string   `json:"tokens"`
			Logprobs []*float64 `json:"token_logprobs"`
			Top      raw        `json:"top_logprobs"`
		} `json:"logprobs"`
		FinishReason   string         `json:"finish_reason"`
		PromptLogprobs promptLogprobs `json:"prompt_logprobs"`
		WeightVersions []span         `json:"weight_versions"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

// parseCompletions reads a reply to a request that wants so many likeliest tokens.
func parseCompletions(data []byte, prompt []int32, top int) (reply, error) {
	var in completionsReply
	if err := decode(data, &in); err != nil {
		return reply{}, err
	}
	if len(in.Choices) != 1 {
		return reply{}, fmt.Errorf("%w: %d choices, expected 1", errReply, len(in.Choices))
	}
	c := in.Choices[0]
	out := reply{ids: c.TokenIDs, reason: c.FinishReason, spans: c.WeightVersions}
	switch {
	case c.TokenIDs == nil:
		return out, fmt.Errorf("%w: no token_ids; the server does not know return_token_ids", errReply)
	case c.Logprobs == nil:
		return out, fmt.Errorf("%w: no logprobs", errReply)
	case len(c.Logprobs.Logprobs) != len(c.TokenIDs) || len(c.Logprobs.Tokens) != len(c.TokenIDs):
		return out, fmt.Errorf("%w: %d logprobs and %d tokens for %d token ids", errReply, len(c.Logprobs.Logprobs), len(c.Logprobs.Tokens), len(c.TokenIDs))
	}
	for i, id := range c.TokenIDs {
		if l := c.Logprobs.Logprobs[i]; l == nil || c.Logprobs.Tokens[i] != "token_id:"+strconv.Itoa(int(id)) {
			return out, fmt.Errorf("%w: logprob %d is not that of token %d", errReply, i, id)
		}
		out.logprobs = append(out.logprobs, float32(*c.Logprobs.Logprobs[i]))
	}
	if top > 0 {
		var named []map[string]float64
		if c.Logprobs.Top != nil {
			if err := decode(c.Logprobs.Top, &named); err != nil {
				return out, fmt.Errorf("top_logprobs: %w", err)
			}
		}
		if len(named) != len(c.TokenIDs) {
			return out, fmt.Errorf("%w: %d top_logprobs for %d token ids", errReply, len(named), len(c.TokenIDs))
		}
		for _, entry := range named {
			list, err := namedTokens(entry)
			if err != nil {
				return out, err
			}
			out.top = append(out.top, list)
		}
	}
	out, err := out.rest(in.Usage, c.PromptLogprobs, prompt)
	if err != nil {
		return out, err
	}
	return out.likeliest(top, false)
}

// rest fills in what both routes have and checks the numbers.
func (r reply) rest(u *usage, p promptLogprobs, prompt []int32) (reply, error) {
	cached := 0
	if u != nil && u.Details != nil {
		cached = u.Details.Cached
	}
	r, err := r.check(cached, prompt)
	if err != nil {
		return r, err
	}
	r.prompt, err = p.of(prompt)
	return r, err
}

func (r reply) check(cached int, prompt []int32) (reply, error) {
	r.cached = max(0, min(cached, len(prompt)))
	for i, v := range r.logprobs {
		if !(v <= 1e-4) || math.IsInf(float64(v), 0) {
			return r, fmt.Errorf("%w: the logprob of token %d is %v", errReply, i, v)
		}
		r.logprobs[i] = min(v, 0) // rounding may leave 1e-8
	}
	return r, nil
}

// finish translates the finish reason. vLLM says length when the last token that fits is a stop token too.
func (r reply) finish(s engines.Sampling) (trajectory.FinishReason, error) {
	n := len(r.ids)
	switch {
	case n == 0:
		return "", fmt.Errorf("%w: no tokens, finish reason %q", errReply, r.reason)
	case n > s.MaxTokens:
		return "", fmt.Errorf("%w: %d tokens, more than the %d asked for", errReply, n, s.MaxTokens)
	case r.reason == "stop" || r.reason == "length" && slices.Contains(s.StopIDs, r.ids[n-1]):
		return trajectory.FinishStop, nil
	case r.reason == "length":
		return trajectory.FinishLength, nil
	case r.reason == "abort":
		return "", errAborted
	}
	return "", fmt.Errorf("%w: finish reason %q", errReply, r.reason)
}

// errAborted says that the server ended the request, by a pause or its own end.
var errAborted = errors.New("the server aborted the request")

// perToken is the version of each token. versions are those that the reply may be of; where a name was given twice, the later number counts.
// Without spans all tokens have the oldest: staleness goes by a trajectory's oldest token. What a replica that came back has before it is loaded
// (see updater.rejoin) has a number below 0: a reply of it is none, and the replica has left those weights meanwhile.
func (r reply) perToken(versions []adopted) ([]int32, error) {
	n := len(r.ids)
	if r.spans == nil && versions[0].number < 0 {
		return nil, errLeft
	}
	if r.spans == nil {
		return slices.Repeat([]int32{versions[0].number}, n), nil
	}
	out := make([]int32, 0, n)
	for _, s := range r.spans {
		at := -1
		for i, v := range versions {
			if v.name == s.Version {
				at = i
			}
		}
		if at < 0 {
			return nil, &versionError{s.Version}
		}
		if versions[at].number < 0 {
			return nil, errLeft
		}
		if s.Start != len(out) || s.End < s.Start || s.End > n {
			return nil, fmt.Errorf("%w: weight_versions %v do not cover %d tokens in order", errReply, r.spans, n)
		}
		for range s.End - s.Start {
			out = append(out, versions[at].number)
		}
	}
	if len(out) != n {
		return nil, fmt.Errorf("%w: weight_versions %v do not cover %d tokens", errReply, r.spans, n)
	}
	return out, nil
}

// versionError says that a server sampled with weights that nobody gave it: it was restarted, or missed an update.
type versionError struct{ version string }

func (e *versionError) Error() string {
	return fmt.Sprintf("the server sampled with weight version %q, which is not what it was given", e.version)
}

// maxSeed is that of vLLM, whose seeds are signed.
const maxSeed = math.MaxInt64

// samplingParams is every sampling parameter under vLLM's names. No server default enters.
func samplingParams(s engines.Sampling, seed uint64) map[string]any {
	p := map[string]any{
		"max_tokens": s.MaxTokens, "temperature": s.Temperature, "top_p": s.TopP, "top_k": s.TopK, "min_p": s.MinP,
		"seed": int64(seed & maxSeed),
		"n":    1, "logprobs": 0, "ignore_eos": true, "stop_token_ids": nonNil(s.StopIDs), "stop": nonNil(s.Stop),
		"presence_penalty": s.Presence, "frequency_penalty": s.Frequency, "repetition_penalty": repetition(s), "min_tokens": s.MinTokens,
		"skip_special_tokens": false, "spaces_between_special_tokens": false, "include_stop_str_in_output": true,
	}
	if s.Temperature == 0 { // greedy: the logprobs are those of temperature 1 without truncation
		p["top_p"], p["top_k"], p["min_p"] = 1.0, 0, 0.0
	}
	return p
}

// repetition is the penalty as vLLM has it, where 1 is off.
func repetition(s engines.Sampling) float64 {
	if !s.Repeats() {
		return 1
	}
	return s.Repetition
}

func nonNil[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

// nativeRequest is the body of /inference/v1/generate.
type nativeRequest struct {
	TokenIDs []int32        `json:"token_ids"`
	Sampling map[string]any `json:"sampling_params"`
	Model    string         `json:"model,omitempty"`
	Stream   bool           `json:"stream"`
}

// raw keeps a reply's bytes for a parser of its own.
type raw = json.RawMessage
