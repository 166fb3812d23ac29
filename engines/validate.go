package engines

import (
	"errors"
	"fmt"
	"math"

	"github.com/agentfly/agentfly/trajectory"
)

// Validate reports the first parameter that is out of its range.
func (s Sampling) Validate() error {
	switch {
	case s.MaxTokens < 1:
		return fmt.Errorf("max_tokens is %d, it must be at least 1", s.MaxTokens)
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature is %v, it must be at least 0", s.Temperature)
	case !(s.TopP > 0 && s.TopP <= 1):
		return fmt.Errorf("top_p is %v, it must be above 0 and at most 1 (off)", s.TopP)
	case s.TopK < 0:
		return fmt.Errorf("top_k is %d, it must be at least 0 (off)", s.TopK)
	case !(s.MinP >= 0 && s.MinP < 1):
		return fmt.Errorf("min_p is %v, it must be at least 0 (off) and below 1", s.MinP)
	case s.MinTokens < 0 || s.MinTokens > s.MaxTokens:
		return fmt.Errorf("min_tokens is %d, it must be at least 0 (off) and at most max_tokens, %d", s.MinTokens, s.MaxTokens)
	case !(s.Presence >= -2 && s.Presence <= 2):
		return fmt.Errorf("presence_penalty is %v, it must be from -2 to 2; 0 is off", s.Presence)
	case !(s.Frequency >= -2 && s.Frequency <= 2):
		return fmt.Errorf("frequency_penalty is %v, it must be from -2 to 2; 0 is off", s.Frequency)
	case !(s.Repetition >= 0) || s.Repetition > 1e6 || s.Repetition != 0 && s.Repetition < 1e-6:
		return fmt.Errorf("repetition_penalty is %v, it must be from 1e-6 to 1e6; 1 (or 0) is off", s.Repetition)
	}
	for i, stop := range s.Stop {
		if stop == "" {
			return fmt.Errorf("stop[%d] is empty, it would end every completion", i)
		}
	}
	return nil
}

// Validate reports what no engine can take. The error names neither package nor request: the engine does.
func (r Request) Validate() error {
	if len(r.Prompt) == 0 {
		return errors.New("the prompt is empty")
	}
	if r.Sampled < 0 || r.Sampled >= len(r.Prompt) {
		return fmt.Errorf("%d tokens of the prompt were sampled, it has %d", r.Sampled, len(r.Prompt))
	}
	if err := trajectory.CheckMedia(r.Media, len(r.Prompt)-r.Sampled); err != nil {
		return err
	}
	if r.Constraint != nil && r.Sampling.MinTokens > 0 {
		return fmt.Errorf("min_tokens is %d, but where the completion is held to a form, the form says when it ends; leave min_tokens out", r.Sampling.MinTokens)
	}
	return r.Sampling.Validate()
}

// ValidateText is Validate for an engine that takes text only.
func (r Request) ValidateText() error {
	if err := r.Validate(); err != nil {
		return err
	}
	if len(r.Media) > 0 {
		return fmt.Errorf("the first (%s) is at token %d: %w", r.Media[0].Kind, r.Media[0].At, ErrMedia)
	}
	return nil
}

// ValidateFree is ValidateText for an engine that does not constrain decoding either.
func (r Request) ValidateFree() error {
	if err := r.ValidateText(); err != nil {
		return err
	}
	if r.Constraint != nil {
		return ErrConstraint
	}
	return nil
}

// ValidateTop reports a Top that an engine which tells so many likeliest tokens does not tell.
func (r Request) ValidateTop(most int) error {
	if r.Top < 0 || r.Top > most {
		return fmt.Errorf("the request asks for the %d likeliest tokens (Top), and the engine tells 0 to %d", r.Top, most)
	}
	return nil
}

// Validate reports a probe that proves nothing.
func (p *Probe) Validate() error {
	switch {
	case p == nil:
		return errors.New("weights without a probe cannot be proven")
	case len(p.TokenIDs) < 2 || len(p.Logprobs) != len(p.TokenIDs)-1:
		return fmt.Errorf("the probe has %d ids and %d logprobs; it needs at least 2 ids, and a logprob of each but the first", len(p.TokenIDs), len(p.Logprobs))
	case !(p.Tolerance > 0) || math.IsInf(p.Tolerance, 0):
		return fmt.Errorf("the probe's tolerance is %v, it must be above 0 and finite", p.Tolerance)
	}
	for i, v := range p.Logprobs {
		if !(v <= 0) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("the probe's logprob %d is %v, which is no log probability", i, v)
		}
	}
	return nil
}
