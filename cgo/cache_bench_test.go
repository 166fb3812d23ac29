//go:build torch

package cgo

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// stepFlops counts multiplications and additions of the matrix products of a row, without and with the head.
func stepFlops(c ModelConfig) (row, head float64) {
	d, f, e := float64(c.HiddenSize), float64(c.IntermediateSize), float64(c.HeadDim)
	h, k := float64(c.NumHeads), float64(c.NumKVHeads)
	return 2 * float64(c.NumLayers) * (d*(h+2*k)*e + h*e*d + 3*d*f), 2 * float64(c.VocabSize) * d
}

// benchModel has the shape that AGENTFLY_BENCH_MODEL names, else SmolLM2's, on the device that tests run on.
func benchModel(b *testing.B) *Model {
	b.Helper()
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	SetThreads(runtime.GOMAXPROCS(0))
	c, err := modelShape(cmp.Or(os.Getenv("AGENTFLY_BENCH_MODEL"), "135M"))
	require.NoError(b, err)
	m, err := NewModel(c, testDevice())
	require.NoError(b, err)
	b.Cleanup(func() { m.Close() })
	require.NoError(b, m.Init(1, 0.02))
	return m
}

// benchCaches runs a benchmark with caches that compute in float32, then in bfloat16.
func benchCaches(b *testing.B, run func(b *testing.B, m *Model, bfloat16 bool)) {
	b.Helper()
	m := benchModel(b)
	b.Run("fp32", func(b *testing.B) { run(b, m, false) })
	if testDevice() != "cpu" {
		require.NoError(b, m.SetDType(BF16))
	}
	b.Run("bf16", func(b *testing.B) { run(b, m, true) })
}

// traceStep runs a step of k under libtorch's profiler where the model is on a device: launches and the kernels' time are metrics,
// the busiest are logged.
func traceStep(b *testing.B, k *Cache, s *Step) {
	b.Helper()
	if testDevice() == "cpu" {
		return
	}
	runtime.LockOSThread() // the trace is of one thread
	defer runtime.UnlockOSThread()
	require.NoError(b, startTrace(testDevice()))
	failed := k.Step(s)
	t, err := stopTrace(12)
	require.NoError(b, cmp.Or(failed, err))
	b.ReportMetric(float64(t.Kernels+t.Copies), "launches/op")
	b.ReportMetric(1e3*(t.KernelSeconds+t.CopySeconds), "device-ms/op")
	for _, kernel := range t.Busiest {
		b.Logf("%8.3f ms %4d %.100s", 1e3*kernel.Seconds, kernel.Calls, kernel.Name)
	}
}

// BenchmarkDecode is a step of sequences that all have the same 272 tokens and 28 of their own behind them.
func BenchmarkDecode(b *testing.B) { benchCaches(b, decodeStep) }

func decodeStep(b *testing.B, m *Model, bfloat16 bool) {
	c := m.Config()
	const shared, own = 17, 3 // blocks of 16
	for _, n := range []int{1, 8, 32, 36, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := newCacheOf(b, m, CacheConfig{Blocks: shared + own*n, BlockSize: 16, BFloat16: bfloat16})
			s := &Step{MaxBlocks: shared + own}
			ids := make([]int32, 300)
			for i := range n {
				var blocks []int32
				for j := range shared {
					blocks = append(blocks, int32(j))
				}
				for j := range own {
					blocks = append(blocks, int32(shared+i*own+j))
				}
				fill := &Step{MaxBlocks: shared + own}
				add(fill, ids[:299], 0, blocks)
				require.NoError(b, k.Step(fill))
				s.Outputs = append(s.Outputs, Output{Row: add(s, ids, 299, blocks), Temperature: 1, TopP: 1, Seed: uint64(i)})
			}
			require.NoError(b, k.Step(s)) // packs
			require.NoError(b, k.Step(s)) // on a device, records
			processor := processorSeconds(b)
			for b.Loop() {
				require.NoError(b, k.Step(s))
			}
			row, head := stepFlops(c)
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric((row+head)*float64(n*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			b.ReportMetric(1e3*(processorSeconds(b)-processor)/float64(b.N), "processor-ms/op")
			traceStep(b, k, s)
		})
	}
}

// BenchmarkPrefill computes one prompt.
func BenchmarkPrefill(b *testing.B) { benchCaches(b, prefillStep) }

func prefillStep(b *testing.B, m *Model, bfloat16 bool) {
	c := m.Config()
	for _, n := range []int{100, 512, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := newCacheOf(b, m, CacheConfig{Blocks: 64, BlockSize: 16, BFloat16: bfloat16})
			s := &Step{MaxBlocks: 64}
			var blocks []int32
			for j := range 64 {
				blocks = append(blocks, int32(j))
			}
			s.Outputs = append(s.Outputs, greedy(add(s, make([]int32, n), 0, blocks)))
			require.NoError(b, k.Step(s))
			processor := processorSeconds(b)
			for b.Loop() {
				require.NoError(b, k.Step(s))
			}
			row, head := stepFlops(c)
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric((row*float64(n)+head)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			b.ReportMetric(1e3*(processorSeconds(b)-processor)/float64(b.N), "processor-ms/op")
			traceStep(b, k, s)
		})
	}
}
