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
		Source string
		Line   json.RawMessage
		Want   inspectResult
	}
	require.NoError(t, json.NewDecoder(z).Decode(&cases))
	count := map[string]int{}
	for i, c := range cases {
		count[c.Source]++
		lines, err := inspectLines(t, string(c.Line))
		require.NoError(t, err)
		var got inspectResult
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
		require.InDelta(t, *c.Want.Loss, *got.Loss, 1e-7, "case %d of %s: %s", i, c.Source, c.Line)
		require.Len(t, got.Advantages, len(c.Want.Advantages))
		for j := range c.Want.Advantages {
			require.InDeltaSlice(t, c.Want.Advantages[j], got.Advantages[j], 1e-12)
			require.InDeltaSlice(t, c.Want.GradCurrent[j], got.GradCurrent[j], 1e-6, "case %d of %s: %s", i, c.Source, c.Line)
		}
	}
	require.Equal(t, map[string]int{"trl": 20, "verl": 68}, count)
}
