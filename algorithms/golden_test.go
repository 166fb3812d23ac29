//go:build torch

package algorithms

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGoldensOfTRLAndVerl answers the lines of scripts/goldens/losses.py as `inspect loss` does.
func TestGoldensOfTRLAndVerl(t *testing.T) {
	f, err := os.Open("testdata/losses.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var cases []struct {
		Source    string
		Tolerance float64 // of the advantages
		Line      json.RawMessage
		Want      inspectResult // without a loss where only the gradients agree
	}
	require.NoError(t, json.NewDecoder(z).Decode(&cases))
	count := map[string]int{}
	for i, c := range cases {
		count[c.Source]++
		lines, err := inspectLines(t, string(c.Line))
		require.NoError(t, err)
		var got inspectResult
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
		if c.Want.Loss != nil {
			require.InDelta(t, *c.Want.Loss, *got.Loss, 1e-7, "case %d of %s", i, c.Source)
		}
		require.Len(t, got.Advantages, len(c.Want.Advantages))
		for j := range c.Want.Advantages {
			require.InDeltaSlice(t, c.Want.Advantages[j], got.Advantages[j], c.Tolerance)
			require.InDeltaSlice(t, c.Want.GradCurrent[j], got.GradCurrent[j], 1e-6, "case %d of %s", i, c.Source)
		}
	}
	require.Equal(t, map[string]int{"trl": 24, "verl": 116}, count)
}

// TestGoldensOfVerlsCritic holds the critic's term against verl's compute_value_loss.
func TestGoldensOfVerlsCritic(t *testing.T) {
	data, err := os.ReadFile("testdata/values.json")
	require.NoError(t, err)
	var cases []struct {
		Values, Old, Returns, Gradient []float64
		Mask                           []float64
		Loss                           float64
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 20)
	a := resolve(t, "{advantage: gae, loss: reinforce, value: {coefficient: 1, clip: 0.2}}")
	for _, c := range cases {
		n, tokens := len(c.Values), 0.0
		for _, on := range c.Mask {
			tokens += on
		}
		zero := make([]float64, n)
		b := batch{at: point{zero, zero, c.Values}, trajectory: make([]int, n), rows: Rows{
			Old: zero, Sampling: zero, Advantage: zero, Weight: c.Mask, OldValue: c.Old, Return: c.Returns, ValueWeight: 1 / tokens,
		}}
		value, gradient := evaluateAt(t, a, b)
		require.InDelta(t, c.Loss, value, 1e-7)
		require.InDeltaSlice(t, c.Gradient, gradient[2*n:], 1e-6)
	}
}
