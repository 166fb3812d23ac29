package main

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/orchestrator/rollout"
)

// BenchmarkSample is what a four-turn trajectory costs beside its engine and its store.
func BenchmarkSample(b *testing.B) {
	path := os.Getenv("AGENTFLY_WORKLOAD")
	if path == "" {
		b.Skip("AGENTFLY_WORKLOAD names no workload")
	}
	w, err := read(path)
	require.NoError(b, err)
	w.ToolSeconds = 0
	r, _, err := w.rollout()
	require.NoError(b, err)
	r.Engine = scripted.New(scripted.Options{Decode: r.Decode, Respond: func(engines.Request) (engines.Completion, error) {
		return engines.Completion{TokenIDs: w.Completion, Logprobs: make([]float32, len(w.Completion)), Versions: make([]int32, len(w.Completion))}, nil
	}})
	b.ReportAllocs()
	for b.Loop() {
		t := r.Sample(context.Background(), rollout.Place{Task: w.task("a")})
		require.Empty(b, t.Err)
		require.Len(b, t.Turns, turns)
	}
}
