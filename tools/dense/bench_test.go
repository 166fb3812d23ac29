package dense

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkScan compares a query with 100,000 vectors of 256 numbers, one query at a time.
func BenchmarkScan(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	v, q := random(r, 100_000, 256), random(r, 1, 256).Values
	var took []float64
	for b.Loop() {
		start := time.Now()
		if _, err := nearest(b.Context(), v, q, 3); err != nil {
			b.Fatal(err)
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/1e6)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
	b.ReportMetric(took[len(took)*99/100], "p99-ms")
}
