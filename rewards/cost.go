package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type toolCostParams struct {
	PerCall     float64 `json:"per_call"`
	PerFailed   float64 `json:"per_failed"`      // more for each call that failed
	PerSecond   float64 `json:"per_second"`      // of the calls' duration
	PerThousand float64 `json:"per_1000_tokens"` // of what the policy sampled
	Free        int     `json:"free"`            // the first so many calls cost nothing
	Tool        string  `json:"tool"`            // only calls of this tool cost; default all
	Max         float64 `json:"max"`             // the cost is at most this; 0: no limit
}

var _ = declareReward("tool_cost", newToolCost, "minus what calls, failed calls, seconds and tokens cost")

// newToolCost makes tool_cost, which is 0 or below: −(per_call · calls beyond the free ones + per_failed · failed calls + per_second · seconds
// + per_1000_tokens · response tokens / 1000), at least −max. Seconds are as measured: with per_second a run does not repeat bit for bit.
// Calls are all that were asked for, those that could not be read included.
func newToolCost(_ *Builder, params map[string]any) (Reward, error) {
	var p toolCostParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	for name, v := range map[string]float64{"per_call": p.PerCall, "per_failed": p.PerFailed, "per_second": p.PerSecond, "per_1000_tokens": p.PerThousand, "max": p.Max, "free": float64(p.Free)} {
		if v < 0 {
			return nil, fmt.Errorf("the parameter %s is %v; it must be 0 or more, for the value is a penalty already", name, v)
		}
	}
	if p.PerCall == 0 && p.PerFailed == 0 && p.PerSecond == 0 && p.PerThousand == 0 {
		return nil, errors.New("no price is given; set per_call, per_failed, per_second or per_1000_tokens")
	}
	return NewFuncParts("tool_cost", func(_ context.Context, in Input) (Score, error) {
		calls, failed, seconds := 0, 0, 0.0
		for _, t := range in.Trajectory.Turns {
			for _, r := range t.Results {
				if p.Tool != "" && r.Call.Name != p.Tool {
					continue
				}
				calls++
				seconds += r.Duration.Seconds()
				if r.Failed {
					failed++
				}
			}
		}
		tokens := in.Trajectory.ResponseTokens()
		cost := p.PerCall*float64(max(0, calls-p.Free)) + p.PerFailed*float64(failed) + p.PerSecond*seconds + p.PerThousand*float64(tokens)/1000
		if p.Max > 0 {
			cost = min(cost, p.Max)
		}
		return Score{0 - cost, map[string]float64{"calls": float64(calls), "failed": float64(failed), "seconds": seconds}}, nil
	}), nil
}

type lengthParams struct {
	Budget int    `json:"budget"` // up to here the value is 0
	Buffer int    `json:"buffer"` // beyond the budget; at its end the value is -1
	Of     string `json:"of"`     // tokens (the default), turns, or characters of the completions
}

var _ = declareReward("length", newLength, "0 up to a budget, falling to -1 behind it")

// newLength makes length: linear beyond a budget. With n response tokens it is 0 for n ≤ budget, (budget − n)/buffer up to budget +
// buffer, and −1 beyond: the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13), whose L_max is budget + buffer and
// L_cache is buffer.
func newLength(_ *Builder, params map[string]any) (Reward, error) {
	p := lengthParams{Of: "tokens"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Budget < 0 || p.Buffer <= 0 {
		return nil, errors.New("the parameters budget (0 or more) and buffer (above 0) are needed, in units of what is counted")
	}
	if p.Of != "tokens" && p.Of != "turns" && p.Of != "characters" {
		return nil, fmt.Errorf("the parameter of is %q; allowed: tokens, turns, characters", p.Of)
	}
	return NewFunc("length", func(_ context.Context, in Input) (float64, error) {
		over := float64(lengthOf(in.Trajectory, p.Of)-p.Budget) / float64(p.Buffer)
		return 0 - min(1, max(0, over)), nil
	}), nil
}

func lengthOf(t *trajectory.Trajectory, of string) int {
	switch of {
	case "turns":
		return len(t.Turns)
	case "characters":
		n := 0
		for _, turn := range t.Turns {
			n += len([]rune(turn.Completion))
		}
		return n
	}
	return t.ResponseTokens()
}

type cosineParams struct {
	If           any     `json:"if"`            // a reward: right where it is 1 or more
	MaxTokens    int     `json:"max_tokens"`    // L_max
	RightShort   float64 `json:"right_short"`   // of a right answer of no length
	RightLong    float64 `json:"right_long"`    // of one of L_max
	WrongShort   float64 `json:"wrong_short"`   //
	WrongLong    float64 `json:"wrong_long"`    //
	BeyondLength float64 `json:"beyond_length"` // of any answer of L_max or more
}

var _ = declareReward("cosine_length", newCosineLength, "by length and correctness, along a cosine")

// newCosineLength makes cosine_length (arXiv 2502.03373, equation 1 of section 4): with n response tokens
//
//	long + ½ (short − long) (1 + cos(π n / L_max))   for n < L_max, with short and long of a right or a wrong answer
//	beyond_length                                     else
//
// so that among right answers the short ones, and among wrong answers the long ones, earn more. The defaults are TRL's and open-r1's
// (right 1 … 0.5, wrong −1 … −0.5), beyond_length −1.
func newCosineLength(b *Builder, params map[string]any) (Reward, error) {
	p := cosineParams{RightShort: 1, RightLong: 0.5, WrongShort: -1, WrongLong: -0.5, BeyondLength: -1}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.MaxTokens <= 0 {
		return nil, errors.New("the parameter max_tokens is needed: the length at which the value no longer changes")
	}
	right, err := b.nested("if", p.If)
	if err != nil {
		return nil, err
	}
	return needsOf(NewFuncParts("cosine_length", func(ctx context.Context, in Input) (Score, error) {
		s, err := run(ctx, right, in)
		if err != nil {
			return Score{}, err
		}
		n := in.Trajectory.ResponseTokens()
		value := p.BeyondLength
		if n < p.MaxTokens {
			short, long := p.WrongShort, p.WrongLong
			if s.Value >= 1 {
				short, long = p.RightShort, p.RightLong
			}
			value = long + 0.5*(short-long)*(1+math.Cos(math.Pi*float64(n)/float64(p.MaxTokens)))
		}
		return Score{value, withParts(map[string]float64{"tokens": float64(n)}, right.Name(), s)}, nil
	}), right), nil
}

type repetitionParams struct {
	Words int `json:"words"` // of an n-gram; default 20
}

var _ = declareReward("repetition", newRepetition, "different n-grams / n-grams - 1")

// newRepetition makes repetition, from −1 to 0: different n-grams / n-grams − 1, over the words of each completion in lower case; 0 where
// there are no n-grams (arXiv 2502.03373, appendix C.2, with a weight of its own in place of a maximum).
func newRepetition(_ *Builder, params map[string]any) (Reward, error) {
	p := repetitionParams{Words: 20}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Words < 1 {
		return nil, errors.New("the parameter words must be 1 or more")
	}
	return NewFunc("repetition", func(_ context.Context, in Input) (float64, error) {
		all, different := 0, map[string]bool{}
		for _, t := range in.Trajectory.Turns {
			words := strings.FieldsFunc(strings.ToLower(t.Completion), space)
			for i := 0; i+p.Words <= len(words); i++ {
				all++
				different[strings.Join(words[i:i+p.Words], " ")] = true
			}
		}
		if all == 0 {
			return 0, nil
		}
		return float64(len(different))/float64(all) - 1, nil
	}), nil
}
