package vllm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Rounding moves a few tokens far, other weights move all of them: a proof looks at the largest difference and at the mean.
func TestCompareLooksAtLargestAndMean(t *testing.T) {
	trainer, engine := make([]float32, 63), make([]float32, 63)
	for i := range trainer {
		trainer[i], engine[i] = -5, -5.2
	}
	engine[40] = -6.9
	require.NoError(t, compare("probe", engine, trainer, 1, 2), "one far, the others near")
	engine[40] = -7.1
	require.EqualError(t, compare("probe", engine, trainer, 1, 2),
		"probe: the logprob of token 41 is -7.100000, the trainer's -5.000000: 2.1 apart, more than the tolerance of 2")
	for i := range engine {
		engine[i] = -5.5
	}
	require.EqualError(t, compare("probe", engine, trainer, 1, 2), "probe: the logprobs are 0.5 apart on average, more than 0.25, an eighth of the tolerance")
	require.NoError(t, compare("probe", engine[:8], trainer[:8], 1, 2), "a mean of so few says nothing")
}
