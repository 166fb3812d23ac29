package pyenv

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
)

// BenchmarkStep is one step after another of a class that does next to nothing: own is what its step took, measured beside it in the worker, and
// overhead the rest of the round trip.
func BenchmarkStep(b *testing.B) {
	if _, err := exec.LookPath("python3"); err != nil {
		b.Skip(err)
	}
	s, err := Kind().New(b.Context(), resources.New(resources.Options{}), map[string]any{"class": "testdata/worlds.py:Bad"})
	require.NoError(b, err)
	made, err := s.New(b.Context(), "bench")
	require.NoError(b, err)
	e, ok := made.(*environment)
	require.True(b, ok)
	_, err = e.Reset(b.Context(), environments.Start{})
	require.NoError(b, err)
	var own, over []time.Duration
	for b.Loop() {
		begun := time.Now()
		_, err := e.Step(b.Context(), environments.Action{Text: "a"})
		whole := time.Since(begun)
		require.NoError(b, err)
		own, over = append(own, e.own), append(over, whole-e.own)
	}
	report := func(name string, all []time.Duration) {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2])/1e3, name+"-p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100])/1e3, name+"-p99-µs")
	}
	report("own", own)
	report("overhead", over)
	require.NoError(b, e.Close())
	require.NoError(b, s.Close())
}
