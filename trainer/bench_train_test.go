//go:build torch

package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// benchShape is a batch that bench-train runs, here and in scripts/bench_train.py.
type benchShape struct {
	Name         string            `json:"name"`
	MicroBatches int               `json:"micro_batches"` // of 8 padded trajectories that the other side is timed on; the rest are like them
	Trajectories []benchTrajectory `json:"trajectories"`
}

type benchTrajectory struct {
	IDs    []int32 `json:"ids"`
	Mask   []bool  `json:"mask"`   // sampled tokens
	Reward float64 `json:"reward"` // 8 trajectories in a row are a group
}

// benchShapes are the same on each call. Responses are 30 to 150 tokens long.
func benchShapes() []benchShape {
	rng := rand.New(rand.NewPCG(20, 25))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = 1000 + rng.Int32N(40000)
		}
		return ids
	}
	length := func() int { return 30 + rng.IntN(121) }
	groups := func(prompt int, answer func(t *benchTrajectory)) (all []benchTrajectory) {
		for range 8 {
			shared := random(prompt)
			for i := range 8 {
				t := benchTrajectory{Reward: float64(i % 2)}
				t.add(shared, false)
				answer(&t)
				all = append(all, t)
			}
		}
		return all
	}
	single := func(t *benchTrajectory) { t.add(random(length()), true) }
	turns := func(t *benchTrajectory) {
		for turn := range 3 {
			if turn > 0 {
				t.add(random(150), false)
			}
			t.add(random(length()/2), true)
		}
	}
	var dense []benchTrajectory
	for i := range 8 {
		t := benchTrajectory{Reward: float64(i % 2)}
		t.add(random(1), false)
		t.add(random(255), true)
		dense = append(dense, t)
	}
	return []benchShape{
		{"prompt_200", 4, groups(200, single)},
		{"prompt_1000", 2, groups(1000, single)},
		{"three_turns", 2, groups(200, turns)},
		{"dense_8x256", 1, dense},
	}
}

func (t *benchTrajectory) add(ids []int32, sampled bool) {
	t.IDs = append(t.IDs, ids...)
	t.Mask = append(t.Mask, slices.Repeat([]bool{sampled}, len(ids))...)
}

func (s benchShape) groups(t *testing.T) (groups []*trajectory.Group) {
	for chunk := range slices.Chunk(s.Trajectories, 8) {
		group := &trajectory.Group{}
		for i, tr := range chunk {
			sample := &trajectory.Sample{}
			for from := 0; from < len(tr.IDs); {
				to := from
				for to < len(tr.IDs) && tr.Mask[to] == tr.Mask[from] {
					to++
				}
				run := tr.IDs[from:to]
				if tr.Mask[from] {
					require.NoError(t, sample.AppendResponse(run, make([]float32, len(run)), make([]int32, len(run))))
				} else {
					sample.AppendObservation(run)
				}
				from = to
			}
			group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{ID: fmt.Sprint(len(groups), "/", i), Samples: []*trajectory.Sample{sample}, Reward: tr.Reward})
		}
		groups = append(groups, group)
	}
	return groups
}

// TestBenchTrain is this side of make bench-train: seconds of whole steps (forward, loss, backward, AdamW) on SmolLM2.
// AGENTFLY_BENCH_OUT takes a JSON line a figure, AGENTFLY_BENCH_SHAPES the batches for the other side. AGENTFLY_BENCH_ONLY
// is the name of a shape, which is timed after a step of two trajectories, as on the other side; or memory: one step of
// prompt_200 with micro-batches of 8 padded trajectories' tokens, and the peak of the process's memory; or none.
// AGENTFLY_BENCH_DTYPE is float32 or bfloat16.
func TestBenchTrain(t *testing.T) {
	out := os.Getenv("AGENTFLY_BENCH_OUT")
	if out == "" {
		t.Skip("minutes on an idle machine: run by make bench-train, which sets AGENTFLY_BENCH_OUT")
	}
	f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer f.Close()
	report := func(what string, value float64) {
		t.Logf("%s: %.4g", what, value)
		require.NoError(t, json.NewEncoder(f).Encode(map[string]any{"engine": "agentfly", "what": what, "dtype": os.Getenv("AGENTFLY_BENCH_DTYPE"), "value": value}))
	}
	shapes := benchShapes()
	if path := os.Getenv("AGENTFLY_BENCH_SHAPES"); path != "" {
		data, err := json.Marshal(shapes)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	only, dtype := os.Getenv("AGENTFLY_BENCH_ONLY"), os.Getenv("AGENTFLY_BENCH_DTYPE")
	if only == "none" {
		return
	}
	p, err := policy.Load("HuggingFaceTB/SmolLM2-135M-Instruct", policy.Options{Device: "cpu", BFloat16: dtype == "bfloat16"})
	require.NoError(t, err)
	defer p.Close()
	c := Config{Schedule: Schedule{LearningRate: 1e-6}, ClipGrad: 1, Temperature: 1, MicroBatchTokens: 4096}
	if only == "memory" {
		c.MicroBatchTokens = 8 * 350 // the longest prompt and response, padded
	}
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo}"), c)
	step := func(s benchShape) (Metrics, float64) {
		start := time.Now()
		m, err := tr.Step(context.Background(), Batch{Groups: s.groups(t)})
		require.NoError(t, err)
		require.Equal(t, len(s.Trajectories), m.Trajectories)
		return m, time.Since(start).Seconds()
	}
	if only == "memory" {
		step(shapes[0])
		report("peak_memory_mib", peakMemory(t))
		return
	}
	at := slices.IndexFunc(shapes, func(s benchShape) bool { return s.Name == only })
	require.GreaterOrEqual(t, at, 0, "AGENTFLY_BENCH_ONLY: no shape %q", only)
	dense := shapes[len(shapes)-1]
	dense.Trajectories = dense.Trajectories[:2]
	step(dense)
	m, seconds := step(shapes[at])
	report(only+"_seconds", seconds)
	report(only+"_packed_tokens", float64(m.PackedTokens))
	report(only+"_tokens", float64(m.UnpackedTokens))
}

// peakMemory is the most that the process held, in MiB (Linux).
func peakMemory(t *testing.T) float64 {
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	t.Fatal("no VmHWM in /proc/self/status")
	return 0
}
