//go:build torch

package cgo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const overlapSteps, overlapMicro = 4, 2

// playOverlap trains a model whose parts take a while to travel, and prints what it received and how long it waited.
func playOverlap(g *Group) error {
	m, err := NewModel(ModelConfig{VocabSize: 4096, HiddenSize: 64, IntermediateSize: 256, NumLayers: 6, NumHeads: 4, NumKVHeads: 2, HeadDim: 16, RMSNormEps: 1e-5, InvFreq: []float32{1, 0.5, 0.3, 0.1, 0.05, 0.02, 0.01, 0.005}, TieWordEmbeddings: true}, "cpu")
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Init(1, 0.1); err != nil {
		return err
	}
	if os.Getenv("AGENTFLY_TEST_DTYPE") == "bfloat16" {
		if err := m.SetDType(BF16); err != nil {
			return err
		}
	}
	if err := m.AddValueHead(); err != nil {
		return err
	}
	o, err := NewOptimizer(m, DefaultAdamW(), g)
	if err != nil {
		return err
	}
	defer o.Close()
	ids := make([]int32, 160)
	before := g.Traffic()
	for step := range overlapSteps {
		for i := range overlapMicro {
			for k := range ids {
				ids[k] = int32((k*k*31 + 97*k + 1009*step + 53*i + 11*g.Rank()) % 4096)
			}
			if i == overlapMicro-1 {
				if err := o.ExpectLast(); err != nil {
					return err
				}
			}
			if err := accumulate(m, ids); err != nil {
				return err
			}
		}
		if err := o.Send(); err != nil {
			return err
		}
		norm, err := o.Step(1e-2, 1)
		if err != nil {
			return err
		}
		fmt.Printf("norm %d %.9e\n", step, norm)
	}
	last, err := m.Infer(plain(ids, 1), ForwardOptions{Values: true})
	if err != nil {
		return err
	}
	t := g.Traffic().Since(before)
	fmt.Printf("forward %x\n", sha256.Sum256([]byte(encode(last.Logprobs)+encode(last.Values))))
	fmt.Printf("traffic %d %d %d %d\n", t.Sums, t.Gathers, t.Busy, t.Waited)
	if err := o.Gather(); err != nil {
		return err
	}
	if g.Rank() > 0 {
		return nil
	}
	var all strings.Builder
	for _, p := range m.Trained() {
		values, err := m.Parameter(p.Name)
		if err != nil {
			return err
		}
		all.WriteString(encode(values))
	}
	fmt.Printf("parameters %x\n", sha256.Sum256([]byte(all.String())))
	return nil
}

// overlapped are what the ranks of a run printed.
type overlapped struct {
	same    []string // norms, hashes of a forward and of the parameters
	traffic []Traffic
}

func runOverlap(t *testing.T, sharding, dtype string, world int) (o overlapped) {
	t.Setenv("AGENTFLY_TEST_SHARDING", sharding)
	t.Setenv("AGENTFLY_TEST_DTYPE", dtype)
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	for _, p := range startRanks(t, "overlap", world) {
		out := p.wait(t)
		require.Empty(t, errorLine(out), out)
		for line := range strings.Lines(out) {
			var x Traffic
			if n, _ := fmt.Sscanf(line, "traffic %d %d %d %d", &x.Sums, &x.Gathers, &x.Busy, &x.Waited); n == 4 {
				o.traffic = append(o.traffic, x)
			} else if strings.HasPrefix(line, "norm ") || strings.HasPrefix(line, "forward ") || strings.HasPrefix(line, "parameters ") {
				o.same = append(o.same, line)
			}
		}
	}
	require.Len(t, o.traffic, world)
	return o
}

// The table of docs/ranks.md: bytes that a rank receives in an optimizer step, and the share of the time in which something
// travels that it computes meanwhile, which is printed only. Bytes follow from the layout; FSDP computes ZeRO-1's bits, and
// gathers half the bytes in bfloat16.
func TestShardedTraffic(t *testing.T) {
	const elements = 4096*64 + 6*(64+2*64*64+2*32*64+64+3*256*64) + 64 + 64 + 16 // each part ends on a cache line
	for _, world := range []int{2, 3} {
		for _, dtype := range []string{"float32", "bfloat16"} {
			zero1, fsdp, again := runOverlap(t, "zero1", dtype, world), runOverlap(t, "fsdp", dtype, world), runOverlap(t, "fsdp", dtype, world)
			require.Equal(t, zero1.same, fsdp.same)
			require.Equal(t, fsdp.same, again.same)
			for name, o := range map[string]overlapped{"zero1": zero1, "fsdp": fsdp} {
				var sum Traffic
				for _, x := range o.traffic {
					sum.Sums, sum.Gathers, sum.Busy, sum.Waited = sum.Sums+x.Sums, sum.Gathers+x.Gathers, sum.Busy+x.Busy, sum.Waited+x.Waited
				}
				each := int64(4)
				if name == "fsdp" && dtype == "bfloat16" {
					each = 2
				}
				others := int64(overlapSteps * (world - 1))
				require.Equal(t, 4*others*elements, sum.Sums, "%s", name)
				value := int64(64 + 16) // the value head stays float32
				require.Equal(t, others*(each*(elements-value)+4*value), sum.Gathers, "%s", name)
				n := int64(overlapSteps * world)
				t.Logf("%d ranks, %s, %s: a rank receives %d bytes of sums and %d of parameters a step; %v a step on their way, %.0f%% of it behind computing",
					world, dtype, name, sum.Sums/n, sum.Gathers/n, (sum.Busy / time.Duration(n)).Round(10*time.Microsecond), 100*(1-float64(sum.Waited)/float64(sum.Busy)))
			}
		}
	}
}

// withOptimizer calls f with a small model of so many layers and its optimizer over the ranks.
func withOptimizer(g *Group, layers int, f func(m *Model, o *Optimizer) error) error {
	m, err := NewModel(ModelConfig{VocabSize: 64, HiddenSize: 32, IntermediateSize: 64, NumLayers: layers, NumHeads: 2, NumKVHeads: 2, HeadDim: 16, RMSNormEps: 1e-5, InvFreq: make([]float32, 8)}, "cpu")
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.AddValueHead(); err != nil {
		return err
	}
	o, err := NewOptimizer(m, DefaultAdamW(), g)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(m, o)
}

// playLateSum: rank 1 does not come to the sums that rank 0 has begun.
func playLateSum(g *Group) error {
	return withOptimizer(g, 4, func(m *Model, o *Optimizer) error {
		if err := g.Barrier(); err != nil {
			return err
		}
		if g.Rank() == 1 {
			time.Sleep(12 * time.Second)
			return g.Barrier()
		}
		if err := o.ExpectLast(); err != nil {
			return err
		}
		return accumulate(m, []int32{1, 2, 3, 4})
	})
}

// A rank that does not come to a sum is named by who waits for it in the middle of its backward, with the sum that it waits for:
// the third may not begin before the first is through.
func TestRankLateForASum(t *testing.T) {
	t.Parallel() // it waits for its time limit
	out := startRanksWith(t, []string{"AGENTFLY_TEST_SHARDING=fsdp"}, "late sum", 2)[0].wait(t)
	require.Contains(t, errorLine(out), "late at collective 3, reduce-scatter of 48: rank 1 (alive, still at collective 2, barrier)", out)
	require.Contains(t, out, "is ErrRank: true")
}

// Gradients that would come after their sum are refused, not lost.
func TestRankBackwardBehindASum(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_SHARDING", "fsdp")
	for _, p := range startRanks(t, "twice", 2) {
		out := p.wait(t)
		require.Contains(t, errorLine(out), "the gradients of this step are on their way to the other ranks; take the step or drop them first")
		require.Contains(t, out, "dropped\n")
	}
}

// playTwice runs a backward behind the last one of a step, before and after the gradients are dropped.
func playTwice(g *Group) error {
	return withOptimizer(g, 2, func(m *Model, o *Optimizer) error {
		ids := []int32{1, 2, 3, 4}
		last := func() error {
			if err := o.ExpectLast(); err != nil {
				return err
			}
			return accumulate(m, ids)
		}
		if err := last(); err != nil {
			return err
		}
		if err := o.ZeroGrad(); err != nil {
			return err
		}
		if err := accumulate(m, ids); err != nil {
			return err
		}
		fmt.Println("dropped")
		if err := last(); err != nil {
			return err
		}
		return accumulate(m, ids)
	})
}

// Memory that sums still read and write is not released: the sums stay, and so does what the optimizer has.
func TestRankReleaseDuringSums(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_SHARDING", "fsdp")
	for _, p := range startRanks(t, "release", 2) {
		out := p.wait(t)
		require.Empty(t, errorLine(out), out)
		require.Equal(t, 2, strings.Count(out, "the gradients of this step are on their way to the other ranks; take the step or drop them first"), out)
		require.Equal(t, 2, strings.Count(out, "is ErrInput: true"), out)
		var norms []string
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "norm ") {
				norms = append(norms, line)
			}
		}
		require.Len(t, norms, 2, out)
		require.Equal(t, norms[0], norms[1], "with the refused releases and without")
	}
}

// playRelease takes a step with releases behind its last backward, and the same one of another model without.
func playRelease(g *Group) error {
	for _, releases := range []bool{true, false} {
		if err := withOptimizer(g, 2, func(m *Model, o *Optimizer) error {
			if err := m.Init(1, 0.1); err != nil {
				return err
			}
			if err := o.ExpectLast(); err != nil {
				return err
			}
			if err := accumulate(m, []int32{1, 2, 3, 4}); err != nil {
				return err
			}
			if releases {
				for _, release := range []func() error{o.Release, m.Release} {
					err := release()
					fmt.Printf("release: %v\nis ErrInput: %v\n", err, errors.Is(err, ErrInput))
				}
			}
			norm, err := o.Step(1e-2, 1)
			if err != nil {
				return err
			}
			fmt.Printf("norm %.9e\n", norm)
			return errors.Join(o.Release(), o.Restore())
		}); err != nil {
			return err
		}
	}
	return nil
}
