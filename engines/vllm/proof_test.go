package vllm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rounding moves a few tokens far, other weights move all of them: a proof counts the tokens beyond the tolerance and looks at the mean.
func TestCompareCountsAndLooksAtTheMean(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		tokens int             // whose trainer's logprob is -5
		all    float64         // the engine's of all tokens, but of
		some   map[int]float64 // these
		want   string          // error; "" for none
	}{
		"one of 32 far":                      {32, -5.1, map[int]float64{7: -9}, ""},
		"one of 63 far":                      {63, -5.05, map[int]float64{40: -10.64}, ""},
		"two of 64 far":                      {64, -5.05, map[int]float64{0: -9, 63: -2.5}, ""},
		"at the tolerance is not beyond it":  {63, -5.05, map[int]float64{1: -7, 2: -7, 3: -7}, ""},
		"two of 63 far":                      {63, -5, map[int]float64{40: -7.1, 41: -7.2}, "probe: the logprob of token 42 is -7.200000, the trainer's -5.000000: 2.2 apart, more than the tolerance of 2; 2 tokens of 63 are, 1 may be"},
		"three of 64 far":                    {64, -5, map[int]float64{0: -2.9, 30: -7.3, 63: -7.2}, "probe: the logprob of token 31 is -7.300000, the trainer's -5.000000: 2.3 apart, more than the tolerance of 2; 3 tokens of 64 are, 2 may be"},
		"one of 31 far":                      {31, -5, map[int]float64{30: -7.1}, "probe: the logprob of token 31 is -7.100000, the trainer's -5.000000: 2.1 apart, more than the tolerance of 2"},
		"one of four far":                    {4, -5, map[int]float64{0: -2.9}, "probe: the logprob of token 1 is -2.900000, the trainer's -5.000000: 2.1 apart, more than the tolerance of 2"},
		"one so far that the mean is too":    {63, -5, map[int]float64{40: -21}, "probe: the logprobs are 0.254 apart on average, more than 0.25, an eighth of the tolerance"},
		"one far, the others not near":       {63, -5.2, map[int]float64{40: -10.64}, "probe: the logprobs are 0.286 apart on average, more than 0.25, an eighth of the tolerance"},
		"all moved, none far":                {63, -5.5, nil, "probe: the logprobs are 0.5 apart on average, more than 0.25, an eighth of the tolerance"},
		"all moved, few":                     {31, -5.5, nil, ""},
		"all moved far":                      {63, -8, nil, "probe: the logprob of token 1 is -8.000000, the trainer's -5.000000: 3 apart, more than the tolerance of 2; 63 tokens of 63 are, 1 may be"},
		"one is no number":                   {63, -5, map[int]float64{40: nan}, "probe: the logprob of token 41 is NaN, the trainer's -5.000000: their difference is not finite"},
		"one of few is no number":            {4, -5, map[int]float64{3: nan}, "probe: the logprob of token 4 is NaN, the trainer's -5.000000: their difference is not finite"},
		"one is infinite":                    {64, -5, map[int]float64{0: -inf}, "probe: the logprob of token 1 is -Inf, the trainer's -5.000000: their difference is not finite"},
		"one is infinite and others are far": {64, -9, map[int]float64{9: inf}, "probe: the logprob of token 10 is +Inf, the trainer's -5.000000: their difference is not finite"},
	} {
		t.Run(name, func(t *testing.T) {
			trainer, engine := make([]float32, c.tokens), make([]float32, c.tokens)
			for i := range trainer {
				trainer[i], engine[i] = -5, float32(c.all)
				if far, ok := c.some[i]; ok {
					engine[i] = float32(far)
				}
			}
			for range 2 { // whichever of the two is far
				err := Compare("probe", engine, trainer, 1, 2)
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
				}
				engine, trainer = trainer, engine
			}
			if c.want != "" {
				require.EqualError(t, Compare("probe", engine, trainer, 1, 2), c.want)
			}
		})
	}
	both := []float32{float32(inf)}
	require.EqualError(t, Compare("probe", both, both, 1, 2), "probe: the logprob of token 1 is +Inf, the trainer's +Inf: their difference is not finite")
	require.ErrorIs(t, Compare("probe", both, nil, 1, 2), errReply)
}
