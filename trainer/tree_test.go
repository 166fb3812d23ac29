//go:build torch

package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// treeBatch is the trees of one task: leaves that fork off each other, before turns and within them, as rollouts make them.
func treeBatch(t testing.TB, tr *Trainer, seed uint64, leaves int) (b Batch, unique int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	next := int32(0)
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			next++
			ids[i] = 3 + (next*7+rng.Int32N(3))%(tinyVocab-3)
		}
		return ids
	}
	prompt := random(6)
	group := &trajectory.Group{}
	for i := range leaves {
		t := &trajectory.Trajectory{ID: fmt.Sprint("leaf-", i), Index: i, Reward: float64(rng.IntN(4)), StopReason: trajectory.StopAnswer}
		s, begun := &trajectory.Sample{}, []trajectory.Begun(nil)
		if i > 0 {
			parent := group.Trajectories[rng.IntN(i)]
			t.Forked = rng.IntN(len(parent.Turns))
			t.Turns = append(t.Turns, parent.Turns[:t.Forked]...)
			of, end := parent.Samples[0], 0
			if t.Forked > 0 {
				end = parent.Turns[t.Forked-1].ObservationEnd
			}
			if turn := parent.Turns[t.Forked]; rng.IntN(2) == 0 {
				t.ForkedAt = 1 + rng.IntN(turn.CompletionEnd-turn.CompletionStart-1)
				for _, b := range turn.Begun {
					if n := len(begun); n == 0 || begun[n-1].End < t.ForkedAt {
						begun = append(begun, trajectory.Begun{Shared: b.Shared, End: min(b.End, t.ForkedAt)})
					}
				}
				if n := len(begun); n == 0 || begun[n-1].End < t.ForkedAt {
					begun = append(begun, trajectory.Begun{Shared: turn.Shared, End: t.ForkedAt})
				}
				end = turn.CompletionStart + t.ForkedAt
			}
			if end > 0 {
				s.TokenIDs, s.ResponseMask = append(s.TokenIDs, of.TokenIDs[:end]...), append(s.ResponseMask, of.ResponseMask[:end]...)
				s.SamplingLogprobs, s.PolicyVersion = append(s.SamplingLogprobs, of.SamplingLogprobs[:end]...), append(s.PolicyVersion, of.PolicyVersion[:end]...)
			}
		}
		if s.Len() == 0 {
			s.AppendObservation(prompt)
		}
		for k := t.Forked; k < t.Forked+1+rng.IntN(3) || k == t.Forked; k++ {
			turn := trajectory.Turn{CompletionStart: s.Len(), Shared: trajectory.SharedName(t.ID, k)}
			if k == t.Forked {
				turn.CompletionStart, turn.Begun = s.Len()-t.ForkedAt, begun
			}
			n := 2 + rng.IntN(4)
			if err := s.AppendResponse(random(n), make([]float32, n), make([]int32, n)); err != nil {
				panic(err)
			}
			turn.CompletionEnd = s.Len()
			s.AppendObservation(random(rng.IntN(3)))
			turn.ObservationEnd = s.Len()
			t.Turns = append(t.Turns, turn)
		}
		t.Samples = []*trajectory.Sample{s}
		group.Trajectories = append(group.Trajectories, t)
	}
	group.Trajectories[0].Reward, group.Trajectories[leaves-1].Reward = 0, 3
	b.Groups = []*trajectory.Group{group}
	samples := make([]*trajectory.Sample, leaves)
	seen := map[string]bool{}
	for i, t := range group.Trajectories {
		samples[i] = t.Samples[0]
		last := t.Turns[len(t.Turns)-1].CompletionEnd - 1 // predicted, and not computed
		for at := range last {                            // a token is what it is and what stands before it
			if key := fmt.Sprint(samples[i].TokenIDs[:at+1]); !seen[key] {
				seen[key] = true
				unique++
			}
		}
	}
	scores, err := tr.Logprobs(context.Background(), samples, tr.config.Temperature)
	require.NoError(t, err)
	for i, s := range samples {
		for j, on := range s.ResponseMask {
			if on {
				s.SamplingLogprobs[j] = float32(math.Min(0, float64(scores[i].Logprobs[j])))
			}
		}
	}
	return b, unique
}

// What the estimator is told of a batch of trees is who shares each token, whether the leaves fork before a turn or within one: along the path of a leaf
// the steps of value add up to r - V(root), with values by who sampled it.
func TestStepsOfValueAddUpWithinTurns(t *testing.T) {
	p := policytest.Make(t, 1)
	a := resolveBlock(t, "{advantage: {name: tree, inter: 0, intra: 0, local: 1, normalize: mean}}")
	global := resolveBlock(t, "{advantage: {name: tree, inter: 0, intra: 0, global: 1, normalize: mean}}")
	hard := resolveBlock(t, "{advantage: {name: arpo, mode: hard}}")
	config := tinyConfig()
	within := 0
	for seed := range uint64(20) {
		b, _ := treeBatch(t, makeTrainer(t, p, resolveBlock(t, "{}"), config), seed, 2+int(seed))
		plan, err := newPlan(a, b)
		require.NoError(t, err)
		steps, err := a.Advantages(plan.records)
		require.NoError(t, err)
		values, err := global.Advantages(plan.records)
		require.NoError(t, err)
		means, err := hard.Advantages(plan.records)
		require.NoError(t, err)
		all := b.Groups[0].Trajectories
		root, through := 0.0, map[string][]int{} // leaves by who sampled a token
		for i, tr := range all {
			root += tr.Reward / float64(len(all))
			for at, on := range tr.Samples[0].ResponseMask {
				if on {
					key := samplerOf(tr, at)
					through[key] = append(through[key], i)
				}
			}
			if tr.ForkedAt > 0 {
				within++
			}
		}
		for i, tr := range all {
			sum, before, nth := 0.0, "", 0
			for at, on := range tr.Samples[0].ResponseMask {
				if !on {
					continue
				}
				leaves := through[samplerOf(tr, at)]
				value := 0.0
				for _, k := range leaves {
					value += all[k].Reward / float64(len(leaves))
				}
				require.InDelta(t, value-root, values[0][i][nth], 1e-9, "token %d of %s", at, tr.ID)
				if key := fmt.Sprint(leaves); key != before {
					sum, before = sum+steps[0][i][nth], key
				}
				require.InDelta(t, means[0][leaves[0]][nth], means[0][i][nth], 1e-9, "a shared token has one credit")
				nth++
			}
			require.InDelta(t, tr.Reward-root, sum, 1e-9)
		}
	}
	require.Greater(t, within, 50)
}

// samplerOf names a sampled token: by the turn that it was sampled for, and its place.
func samplerOf(tr *trajectory.Trajectory, at int) string {
	for _, turn := range tr.Turns {
		if at < turn.CompletionStart || at >= turn.CompletionEnd {
			continue
		}
		for _, b := range turn.Begun {
			if at < turn.CompletionStart+b.End {
				return fmt.Sprint(b.Shared, " ", at)
			}
		}
		return fmt.Sprint(turn.Shared, " ", at)
	}
	return ""
}

// The gradient of a tree is that of its leaves one by one; soft and hard attribution have the same with token-mean, and another one with seq-mean. The
// forward computes every token once, whatever shares it.
func TestTreesAreTrained(t *testing.T) {
	p := policytest.Make(t, 1)
	plain := tinyConfig()
	plain.MicroBatchTokens, plain.minShared = 1, 1000 // every leaf alone
	packed := tinyConfig()
	packed.MicroBatchTokens, packed.minShared = 100000, 1
	of := func(block string, c Config, b Batch) map[string][]float32 {
		return gradients(t, makeTrainer(t, p, resolveBlock(t, block), c), b)
	}
	differ := 0.0
	for seed := range uint64(6) {
		b, unique := treeBatch(t, makeTrainer(t, p, resolveBlock(t, "{}"), plain), seed, 3+int(seed)*2)
		for _, block := range []string{"{advantage: arpo}", "{advantage: {name: tree, local: 1, global: 1, shared: sqrt}}", "{advantage: {name: tree, shared: once, normalize: leave-one-out}, loss: gspo}"} {
			sameGradients(t, of(block, plain, b), of(block, packed, b), 3e-6)
		}
		hard, soft := of("{advantage: {name: arpo, mode: hard}}", packed, b), of("{advantage: {name: arpo, mode: soft}}", packed, b)
		sameGradients(t, hard, soft, 1e-5) // of sums of float32; the oracle in package algorithms is exact to 1e-6
		differ = max(differ, worstDistance(of("{advantage: {name: arpo, mode: hard}, aggregation: seq-mean-token-mean}", packed, b), of("{advantage: {name: arpo, mode: soft}, aggregation: seq-mean-token-mean}", packed, b)))
		m, err := makeTrainer(t, policytest.Make(t, 1), resolveBlock(t, "{advantage: arpo, loss: reinforce, entropy: 0.1}"), packed).Step(context.Background(), b)
		require.NoError(t, err)
		require.Equal(t, unique, m.PackedTokens, "every token is computed once")
		require.Greater(t, m.UnpackedTokens, m.PackedTokens)
	}
	require.Greater(t, differ, 1e-2)
}

// benchTrees is a task of 16 leaves of 60 tokens each that go on from a trunk of 1,000: a prompt, two turns and their results, or, sampled, a prompt of
// 20 tokens and one turn.
func benchTrees(t *testing.T, sampled bool) Batch {
	rng := rand.New(rand.NewPCG(16, 1000))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = 1000 + rng.Int32N(40000)
		}
		return ids
	}
	say := func(s *trajectory.Sample, ids []int32) {
		require.NoError(t, s.AppendResponse(ids, make([]float32, len(ids)), make([]int32, len(ids))))
	}
	prompt, call, result, long := random(500), random(40), random(210), random(980)
	group := &trajectory.Group{}
	for i := range 16 {
		s := &trajectory.Sample{}
		tr := &trajectory.Trajectory{ID: fmt.Sprint(i), Index: i, Samples: []*trajectory.Sample{s}, Reward: float64(i % 2), StopReason: trajectory.StopAnswer}
		if sampled {
			s.AppendObservation(prompt[:20])
			say(s, long)
			tr.Turns = []trajectory.Turn{{CompletionStart: 20, CompletionEnd: 1000, ObservationEnd: 1000, Shared: "0:0"}}
		} else {
			s.AppendObservation(prompt)
			for k := range 2 {
				say(s, call[k:])
				s.AppendObservation(append(append([]int32{}, result...), call[:k]...))
			}
			tr.Turns = []trajectory.Turn{
				{CompletionStart: 500, CompletionEnd: 540, ObservationEnd: 750, Shared: "0:0"},
				{CompletionStart: 750, CompletionEnd: 789, ObservationEnd: 1000, Shared: "0:1"},
			}
		}
		require.Equal(t, 1000, s.Len())
		say(s, random(60))
		tr.Turns = append(tr.Turns, trajectory.Turn{CompletionStart: 1000, CompletionEnd: 1060, ObservationEnd: 1060, Shared: trajectory.SharedName(tr.ID, len(tr.Turns))})
		group.Trajectories = append(group.Trajectories, tr)
	}
	return Batch{Groups: []*trajectory.Group{group}}
}

// TestBenchTree is make bench-tree: seconds of whole steps on SmolLM2-135M over one task with 16 leaves that share 1,000 tokens, as the trees are
// packed and with each leaf alone, in one run that takes turns, AGENTFLY_BENCH_ROUNDS times; with few of the shared tokens sampled, and with nearly all.
func TestBenchTree(t *testing.T) {
	out := os.Getenv("AGENTFLY_BENCH_TREE")
	if out == "" {
		t.Skip("minutes on an idle machine: run by make bench-tree, which sets AGENTFLY_BENCH_TREE")
	}
	p, err := policy.Load("HuggingFaceTB/SmolLM2-135M-Instruct", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	config := Config{Schedule: Schedule{LearningRate: 1e-6}, ClipGrad: 1, Temperature: 1, MicroBatchTokens: 4096}
	trees := makeTrainer(t, p, resolveBlock(t, "{advantage: tree}"), config)
	config.minShared = 1 << 20
	alone := makeTrainer(t, p, resolveBlock(t, "{advantage: tree}"), config)
	rounds, _ := strconv.Atoi(os.Getenv("AGENTFLY_BENCH_ROUNDS"))
	figures := map[string]map[string]any{}
	for _, name := range []string{"prompt, turns and results", "nearly all sampled"} {
		batch := benchTrees(t, name == "nearly all sampled")
		step := func(tr *Trainer) (Metrics, float64) {
			start := time.Now()
			m, err := tr.Step(context.Background(), batch)
			require.NoError(t, err)
			return m, time.Since(start).Seconds()
		}
		step(trees) // the first allocates
		best := [2]float64{math.Inf(1), math.Inf(1)}
		var tokens [2]int
		for range max(1, rounds) {
			for side, tr := range []*Trainer{trees, alone} {
				m, seconds := step(tr)
				best[side], tokens[side] = min(best[side], seconds), m.PackedTokens
				t.Logf("%s: %v computes %d tokens in %.1f s", name, [...]string{"packed", "alone"}[side], m.PackedTokens, seconds)
			}
		}
		figures[name] = map[string]any{"packed_seconds": best[0], "unpacked_seconds": best[1], "ratio": best[1] / best[0], "packed_tokens": tokens[0], "unpacked_tokens": tokens[1]}
	}
	text, err := json.MarshalIndent(figures, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(out, append(text, '\n'), 0o644))
	t.Logf("16 leaves that share 1,000 tokens: %s", text)
}
