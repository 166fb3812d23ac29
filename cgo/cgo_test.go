package cgo

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func goodBatch() *Batch {
	return &Batch{
		Tokens: []int32{1, 2, 3, 4, 5}, Positions: []int32{0, 1, 2, 2, 3}, SegmentStart: []int32{0, 2, 3}, SegmentLength: []int32{2, 1, 2},
		SegmentParent: []int32{-1, 0, 0}, RowToken: []int32{1, 1, 3}, RowTarget: []int32{3, 4, 5}, Temperature: 1,
	}
}

func TestBatchValidate(t *testing.T) {
	require.NoError(t, goodBatch().Validate(6))
	for want, change := range map[string]func(b *Batch){
		"Tokens[4] is 5, allowed are 0 to 4":                          func(b *Batch) { b.RowTarget[2] = 0 }, // vocabulary 5, below
		"it has no tokens":                                            func(b *Batch) { b.Tokens = nil },
		"it has no rows":                                              func(b *Batch) { b.RowToken = nil },
		"5 tokens have 4 positions":                                   func(b *Batch) { b.Positions = b.Positions[:4] },
		"Positions[2] is -1, allowed are 0 to 2147483646":             func(b *Batch) { b.Positions[2] = -1 },
		"3 segment starts have 2 lengths and 3 parents":               func(b *Batch) { b.SegmentLength = b.SegmentLength[:2] },
		"SegmentStart[1] is 1, the segments before it end at 2":       func(b *Batch) { b.SegmentStart[1] = 1 },
		"SegmentLength[2] is 3, allowed are 1 to 2":                   func(b *Batch) { b.SegmentLength[2] = 3 },
		"SegmentLength[0] is 0, allowed are 1 to 5":                   func(b *Batch) { b.SegmentLength[0] = 0 },
		"SegmentParent[1] is 1, allowed are -1 and earlier segments":  func(b *Batch) { b.SegmentParent[1] = 1 },
		"SegmentParent[2] is -2, allowed are -1 and earlier segments": func(b *Batch) { b.SegmentParent[2] = -2 },
		"the segments cover 4 of 5 tokens":                            func(b *Batch) { b.SegmentLength[2] = 1 },
		"RowToken[0] is 5, allowed are 0 to 4":                        func(b *Batch) { b.RowToken[0] = 5 },
		"RowTarget[1] is -7, allowed are 0 to 5":                      func(b *Batch) { b.RowTarget[1] = -7 },
		"3 rows have 1 targets":                                       func(b *Batch) { b.RowTarget = b.RowTarget[:1] },
		"temperature is 0, it must be above 0":                        func(b *Batch) { b.Temperature = 0 },
		"temperature is NaN, it must be above 0":                      func(b *Batch) { b.Temperature = math.NaN() },
	} {
		b, vocab := goodBatch(), 6
		if want[0] == 'T' {
			vocab = 5
		}
		change(b)
		err := b.Validate(vocab)
		require.ErrorIs(t, err, ErrInput)
		require.EqualError(t, err, "cgo: batch: "+want+" (bad input)")
	}
}

func TestDTypeSizes(t *testing.T) {
	for d, want := range map[DType]int{F32: 4, F16: 2, BF16: 2, I32: 4, I64: 8, F64: 8, Bool: 1, DType(99): 0} {
		require.Equal(t, want, d.Size(), d)
	}
	require.Equal(t, int64(6), ParameterInfo{Shape: []int64{2, 3}}.Elements())
}

func TestWorker(t *testing.T) {
	w := NewWorker()
	ctx := context.Background()
	var running, most atomic.Int32
	errs := make(chan error, 20)
	for range 20 {
		go func() {
			errs <- w.Do(ctx, func() error {
				most.Store(max(most.Load(), running.Add(1)))
				runtime.Gosched()
				running.Add(-1)
				return nil
			})
		}()
	}
	for range 20 {
		require.NoError(t, <-errs)
	}
	require.Equal(t, int32(1), most.Load(), "functions overlapped")

	boom := errors.New("boom")
	require.ErrorIs(t, w.Do(ctx, func() error { return boom }), boom)
	var p *PanicError
	err := w.Do(ctx, func() error { panic("torch says no") })
	require.ErrorAs(t, err, &p)
	require.EqualError(t, err, "cgo: panic in worker: torch says no")
	require.Contains(t, string(p.Stack), "TestWorker")
	require.EqualError(t, w.Do(ctx, func() error { runtime.Goexit(); return nil }), "cgo: worker: the function ended its goroutine")
	require.NoError(t, w.Do(ctx, func() error { return nil }), "the worker must survive")

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, w.Do(cancelled, func() error { t.Error("ran"); return nil }), context.Canceled)

	// A waiting call gives up; the running one is not disturbed.
	release, started := make(chan struct{}), make(chan struct{})
	go func() { errs <- w.Do(ctx, func() error { close(started); <-release; return nil }) }()
	<-started
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Do(short, func() error { t.Error("ran"); return nil }), context.DeadlineExceeded)
	close(release)
	require.NoError(t, <-errs)

	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Do(ctx, func() error { return nil }), ErrClosed)
}
