//go:build torch

package trainer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// BenchmarkStep is one GRPO step of the calculator job's shape on SmolLM2: 6 groups of 8, a prompt of 273 + 40 tokens of
// which 273 are common to all, and per trajectory two turns of 15 tokens with an observation of 12.
func BenchmarkStep(b *testing.B) {
	p, err := policy.Load("HuggingFaceTB/SmolLM2-135M-Instruct", policy.Options{Device: "cpu"})
	if err != nil {
		b.Skipf("SmolLM2 is not on this machine: %v", err)
	}
	defer p.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(49152)
		}
		return ids
	}
	system := random(273)
	var groups []*trajectory.Group
	for g := range 6 {
		group, prompt := &trajectory.Group{}, slices.Concat(system, random(40))
		for i := range 8 {
			s := &trajectory.Sample{}
			s.AppendObservation(prompt)
			for range 2 {
				require.NoError(b, s.AppendResponse(random(15), make([]float32, 15), make([]int32, 15)))
				s.AppendObservation(random(12))
			}
			group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{ID: fmt.Sprint(g, "/", i), Samples: []*trajectory.Sample{s}, Reward: float64(i % 2)})
		}
		groups = append(groups, group)
	}
	tr := makeTrainer(b, p, resolveBlock(b, "{advantage: dr_grpo}"), Config{Schedule: Schedule{LearningRate: 1e-6}, ClipGrad: 1, Temperature: 1, MicroBatchTokens: 4096})
	var m Metrics
	for b.Loop() {
		m, err = tr.Step(context.Background(), Batch{Groups: groups})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(m.PackedTokens), "packed_tokens")
	b.ReportMetric(float64(m.UnpackedTokens), "unpacked_tokens")
	b.ReportMetric(float64(m.UnpackedTokens)*float64(b.N)/b.Elapsed().Seconds(), "unpacked_tokens/s")
}
