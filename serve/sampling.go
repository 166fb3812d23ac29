package serve

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/agentfly/agentfly/dialects"
	forming "github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
)

// sampling are the parameters that all routes share, under vLLM's names. A missing one has vLLM's neutral default: the
// model's generation_config.json is not read.
type sampling struct {
	N           *dialects.Whole    `json:"n"`
	Seed        *dialects.Whole64  `json:"seed"`
	Temperature *float64           `json:"temperature"`
	TopP        *float64           `json:"top_p"`
	TopK        *dialects.Whole    `json:"top_k"`
	MinP        *float64           `json:"min_p"`
	Stop        stopList           `json:"stop"`
	StopIDs     []int32            `json:"stop_token_ids"`
	IgnoreEOS   bool               `json:"ignore_eos"`
	IncludeStop bool               `json:"include_stop_str_in_output"`
	SkipSpecial *bool              `json:"skip_special_tokens"`
	MinTokens   *dialects.Whole    `json:"min_tokens"`
	Presence    *float64           `json:"presence_penalty"`
	Frequency   *float64           `json:"frequency_penalty"`
	Repetition  *float64           `json:"repetition_penalty"`
	BestOf      *dialects.Whole    `json:"best_of"`
	BeamSearch  bool               `json:"use_beam_search"`
	Prompts     *dialects.Whole    `json:"prompt_logprobs"`
	LogitBias   present            `json:"logit_bias"`
	Allowed     present            `json:"allowed_token_ids"`
	BadWords    present            `json:"bad_words"`
	LogprobIDs  present            `json:"logprob_token_ids"`
	Structured  forming.Structured `json:"structured_outputs"`
	Format      json.RawMessage    `json:"response_format"`
	Schema      *dialects.Schema   `json:"-"` // response_format, where a dialect has read it
	Truncate    *dialects.Whole    `json:"truncate_prompt_tokens"`
	Thinking    *dialects.Whole    `json:"thinking_token_budget"`
	Repeats     present            `json:"repetition_detection"`
	Processors  present            `json:"logits_processors"`
	Watermark   bool               `json:"watermarking"`
	LoRA        present            `json:"lora_request"`
}

// present is a field that may be there as long as it says nothing.
type present = forming.Present

// stopList is a string or a list of strings.
type stopList []string

func (l *stopList) UnmarshalJSON(data []byte) error {
	var one string
	if data[0] == '"' {
		err := json.Unmarshal(data, &one)
		*l = stopList{one}
		return err
	}
	var list dialects.List
	var long *dialects.Error
	if errors.As(json.Unmarshal(data, &list), &long) {
		return long
	}
	var texts []string
	if json.Unmarshal(data, &texts) != nil {
		return badf("stop", "stop must be a string or a list of strings")
	}
	*l = texts
	return nil
}

// Limits on lists, as vLLM has none and a request must not cost without bound.
const (
	maxStops   = 64
	maxStopIDs = 4096
	maxChoices = 256  // n
	maxStop    = 4096 // bytes of a stop string
	maxName    = 256  // bytes of a name that the server keeps, repeats or makes others of
)

// refuse names the first parameter that cannot be honoured.
func (p *sampling) refuse() error {
	not := func(param string) error {
		return badf(param, "%s is not supported by this server; leave it out", param)
	}
	switch {
	case p.BestOf != nil && *p.BestOf != 1 && (p.N == nil || *p.BestOf != *p.N):
		return not("best_of")
	case p.BeamSearch:
		return not("use_beam_search")
	case p.Prompts != nil && *p.Prompts != 0:
		return badf("prompt_logprobs", "prompt_logprobs is %d; only 0, the prompt's own tokens, is supported", *p.Prompts)
	case p.Truncate != nil:
		return not("truncate_prompt_tokens")
	case p.Thinking != nil && *p.Thinking != -1:
		return not("thinking_token_budget")
	case p.Watermark:
		return not("watermarking")
	}
	for _, f := range []struct {
		set  present
		name string
	}{
		{p.LogitBias, "logit_bias"},
		{p.Allowed, "allowed_token_ids"},
		{p.BadWords, "bad_words"},
		{p.LogprobIDs, "logprob_token_ids"},
		{p.Repeats, "repetition_detection"},
		{p.Processors, "logits_processors"},
		{p.LoRA, "lora_request"},
	} {
		if f.set {
			return not(f.name)
		}
	}
	return nil
}

func or[T any](v *T, value T) T {
	if v != nil {
		return *v
	}
	return value
}

// engine gives the engine's parameters. stops are the ids that end a completion by themselves; maxTokens < 0 stands for as many as fit.
func (p *sampling) engine(maxTokens int, stops []int32) (engines.Sampling, error) {
	if maxTokens < 0 {
		maxTokens = math.MaxInt32
	}
	out := engines.Sampling{
		MaxTokens: maxTokens, Temperature: or(p.Temperature, 1), TopP: or(p.TopP, 1), TopK: int(max(or(p.TopK, 0), 0)), MinP: or(p.MinP, 0),
		StopIDs: slices.Clone(p.StopIDs), Stop: p.Stop,
		MinTokens: int(or(p.MinTokens, 0)), Presence: or(p.Presence, 0), Frequency: or(p.Frequency, 0), Repetition: or(p.Repetition, 1),
	}
	if err := p.refuse(); err != nil {
		return out, err
	}
	switch n := or(p.N, 1); {
	case n < 1 || n > maxChoices:
		return out, badf("n", "n is %d, allowed are 1 to %d", n, maxChoices)
	case n > 1 && out.Temperature == 0:
		return out, badf("n", "n is %d, but greedy sampling (temperature 0) gives the same completion each time; n must be 1", n)
	case len(p.Stop) > maxStops:
		return out, badf("stop", "stop holds %d strings, at most %d are allowed", len(p.Stop), maxStops)
	case len(p.StopIDs) > maxStopIDs:
		return out, badf("stop_token_ids", "stop_token_ids holds %d ids, at most %d are allowed", len(p.StopIDs), maxStopIDs)
	case out.Repetition == 0:
		return out, badf("repetition_penalty", "repetition_penalty is 0, it must be above 0; 1 is off")
	case p.TopK != nil && *p.TopK < -1:
		return out, badf("top_k", "top_k is %d, it must be at least 0 (off); -1 is off too", *p.TopK)
	}
	if !p.IgnoreEOS {
		for _, id := range stops {
			if !slices.Contains(out.StopIDs, id) {
				out.StopIDs = append(out.StopIDs, id)
			}
		}
	}
	for i, stop := range p.Stop {
		if len(stop) > maxStop {
			return out, badf("stop", "stop[%d] has %d bytes, at most %d are allowed", i, len(stop), maxStop)
		}
	}
	if err := out.Validate(); err != nil {
		return out, badf("", "%v", err)
	}
	return out, nil
}

// maxTokens refuses a negative number.
func maxTokens(v *int, value int) (int, error) {
	if v != nil && *v < 0 {
		return 0, badf("max_tokens", "max_tokens is %d, it must be at least 1", *v)
	}
	return or(v, value), nil
}

// checkName bounds a name.
func checkName(param, name string) error {
	if len(name) > maxName {
		return badf(param, "%s has %d bytes, at most %d are allowed", param, len(name), maxName)
	}
	return nil
}
