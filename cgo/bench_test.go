//go:build torch

package cgo

import (
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// smolLM2 is the shape of SmolLM2-135M.
func smolLM2() ModelConfig {
	c := ModelConfig{
		VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9, NumKVHeads: 3, HeadDim: 64,
		RMSNormEps: 1e-5, TieWordEmbeddings: true,
	}
	for i := range 32 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(100000, -float64(i)/32)))
	}
	return c
}

// mainJob is a step of examples/calculator.yaml: one root of 230 tokens, 6 children of 40, 6 leaves of 45 tokens with 30
// predicted ones under each.
func mainJob(vocab int) *Batch {
	b := &Batch{Temperature: 1}
	add := func(parent, length, position, rows int) int {
		start := len(b.Tokens)
		b.SegmentStart = append(b.SegmentStart, int32(start))
		b.SegmentLength = append(b.SegmentLength, int32(length))
		b.SegmentParent = append(b.SegmentParent, int32(parent))
		for i := range length {
			b.Tokens = append(b.Tokens, int32((start+i)*7919%vocab))
			b.Positions = append(b.Positions, int32(position+i))
			if i >= length-rows-1 && i < length-1 {
				b.RowToken = append(b.RowToken, int32(start+i))
				b.RowTarget = append(b.RowTarget, int32((start+i+1)*7919%vocab))
			}
		}
		return len(b.SegmentStart) - 1
	}
	root := add(-1, 230, 0, 0)
	for range 6 {
		child := add(root, 40, 230, 0)
		for range 6 {
			add(child, 45, 270, 30)
		}
	}
	return b
}

// flops counts multiplications and additions of the matrix products of forward and backward.
func flops(c ModelConfig, b *Batch) float64 {
	d, f, e := float64(c.HiddenSize), float64(c.IntermediateSize), float64(c.HeadDim)
	h, k := float64(c.NumHeads), float64(c.NumKVHeads)
	layer := d*(h+2*k)*e + h*e*d + 3*d*f
	linear := 6 * float64(c.NumLayers) * layer * float64(len(b.Tokens))
	head := 8 * float64(c.VocabSize) * d * float64(len(b.RowToken)) // the logits twice
	return linear + head + 14*pairsOf(b)*h*e*float64(c.NumLayers)
}

// processorSeconds is the time that the process's threads have spent on processors: on a busy machine it says more than
// the clock, with -cpu 1.
func processorSeconds(b *testing.B) float64 {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}

// inBoth runs a benchmark with a model that computes in float32, then in bfloat16.
func inBoth(b *testing.B, c ModelConfig, device string, run func(b *testing.B, m *Model)) {
	b.Helper()
	for _, t := range []struct {
		name  string
		dtype DType
	}{{"fp32", F32}, {"bf16", BF16}} {
		b.Run(t.name, func(b *testing.B) {
			m, err := NewModel(c, device)
			require.NoError(b, err)
			defer m.Close()
			require.NoError(b, m.Init(1, 0.04))
			require.NoError(b, m.SetDType(t.dtype))
			run(b, m)
		})
	}
}

// BenchmarkTrainStep runs forward, backward and AdamW with as many threads as -cpu says.
func BenchmarkTrainStep(b *testing.B) { inBoth(b, smolLM2(), testDevice(), trainStep) }

func trainStep(b *testing.B, m *Model) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	SetThreads(runtime.GOMAXPROCS(0))
	c := m.Config()
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(b, err)
	defer o.Close()
	batch := mainJob(c.VocabSize)
	weight := make([]float32, len(batch.RowToken))
	for i := range weight {
		weight[i] = float32(i%7-3) / float32(len(weight))
	}
	w, err := FromFloats(m, weight)
	require.NoError(b, err)
	defer CloseTensor(w)
	var forward, backward, step time.Duration
	processor := processorSeconds(b)
	for b.Loop() {
		start := time.Now()
		out, err := m.Forward(batch, ForwardOptions{Grad: true})
		require.NoError(b, err)
		loss, err := MaskedSum(out.Logprobs, w)
		require.NoError(b, err)
		t1 := time.Now()
		require.NoError(b, Backward(loss))
		t2 := time.Now()
		_, err = o.Step(1e-5, 1)
		require.NoError(b, err)
		t3 := time.Now()
		CloseTensor(loss)
		out.Close()
		forward += t1.Sub(start)
		backward += t2.Sub(t1)
		step += t3.Sub(t2)
	}
	n := float64(b.N)
	b.ReportMetric(forward.Seconds()/n, "forward-s")
	b.ReportMetric(backward.Seconds()/n, "backward-s")
	b.ReportMetric(step.Seconds()/n, "optimizer-s")
	b.ReportMetric(flops(c, batch)*n/(forward+backward).Seconds()/1e9, "GFLOP/s")
	b.ReportMetric((processorSeconds(b)-processor)/n, "processor-s")
	b.ReportMetric(float64(len(batch.Tokens)), "tokens")
}
