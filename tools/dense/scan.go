package dense

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
)

// scored is a row and its product with the query.
type scored struct {
	row   int
	score float32
}

func better(a, b scored) int {
	if c := cmp.Compare(b.score, a.score); c != 0 {
		return c
	}
	return cmp.Compare(a.row, b.row)
}

const (
	share = 4096 // rows that one goroutine takes at a time
	lanes = 8    // partial sums of a product: independent, so that a processor adds them side by side
)

// nearest are the k rows with the largest products with q, the largest first; equal ones in the order of the rows. It computes every
// product, on all processors; a product does not depend on which of them computes it.
func nearest(ctx context.Context, v Vectors, q []float32, k int) ([]scored, error) {
	if k <= 0 || v.N() == 0 {
		return nil, nil
	}
	workers := min(runtime.GOMAXPROCS(0), (v.N()+share-1)/share)
	parts := make([][]scored, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for from := w * share; from < v.N() && ctx.Err() == nil; from += workers * share {
				for i := from; i < min(from+share, v.N()); i++ {
					parts[w] = insert(parts[w], scored{i, dot(v.Row(i), q)}, k)
				}
			}
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all := slices.Concat(parts...)
	slices.SortFunc(all, better)
	return all[:min(k, len(all))], nil
}

// insert keeps the k best of what it was given, sorted.
func insert(top []scored, s scored, k int) []scored {
	if len(top) == k {
		if better(top[k-1], s) < 0 {
			return top
		}
		top = top[:k-1]
	}
	at, _ := slices.BinarySearchFunc(top, s, better)
	return slices.Insert(top, at, s)
}

// dot is Σ a[i]·b[i] in lanes; both have one length.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	i := 0
	for ; i+lanes <= len(a); i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[lanes]float32)(b[i:])
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		s4 += x[4] * y[4]
		s5 += x[5] * y[5]
		s6 += x[6] * y[6]
		s7 += x[7] * y[7]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
}
