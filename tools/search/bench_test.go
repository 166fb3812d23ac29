package search

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkQuery asks an index of 100,000 generated passages of 30 to 170 words for three hits, one query at a time: short queries
// (2 to 9 words, as a model writes them) and long ones (30 words), each the first time after the index was opened and again.
func BenchmarkQuery(b *testing.B) {
	passages, text := corpusOf(100_000, 1)
	path := write(b, passages)
	var x *Index
	var err error
	var cache string
	all := b // whose folders outlive one measurement
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			if x != nil {
				require.NoError(b, x.Close())
			}
			cache = all.TempDir()
			x, err = Open(b.Context(), []string{path}, cache, Options{})
			require.NoError(b, err)
		}
	})
	for _, c := range []struct {
		name  string
		words func(i int) int
	}{{"short", func(i int) int { return 2 + i%8 }}, {"long", func(int) int { return 30 }}} {
		queries := make([]string, 1000)
		for i := range queries {
			queries[i] = text(c.words(i))
		}
		b.Run(c.name+"/first", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, x.Close())
				start := time.Now()
				x, err = Open(b.Context(), []string{path}, cache, Options{Warn: func(text string) { b.Error(text) }})
				require.NoError(b, err)
				b.ReportMetric(float64(time.Since(start).Milliseconds()), "open-ms")
				b.StartTimer()
				measure(b, x, queries)
			}
		})
		b.Run(c.name+"/again", func(b *testing.B) {
			for b.Loop() {
				measure(b, x, queries)
			}
		})
	}
	require.NoError(b, x.Close())
}

// measure asks each query once.
func measure(b *testing.B, x *Index, queries []string) {
	took := make([]float64, len(queries))
	for i, q := range queries {
		start := time.Now()
		if _, err := x.Query(b.Context(), q, 3); err != nil {
			b.Fatal(err)
		}
		took[i] = float64(time.Since(start).Nanoseconds()) / 1e6
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[len(took)*99/100], "p99-ms")
}
