package pool

import (
	"math"
	"math/bits"
	"time"
)

// Durations is a histogram of durations with sixteen buckets between powers of two: what it gives is within 4% of what was added. Adding allocates
// nothing.
type Durations struct {
	n       int64
	buckets [60 * 16]int64
}

// Add counts a duration; one below 0 counts as 0.
func (d *Durations) Add(t time.Duration) {
	v := uint64(max(t, 0))
	power := max(0, bits.Len64(v)-5) // v>>power is below 32, and at least 16 where power is not 0
	d.buckets[power*16+int(v>>power)]++
	d.n++
}

// Since is what was added to d after before was copied from it.
func (d Durations) Since(before Durations) Durations {
	d.n -= before.n
	for i, n := range before.buckets {
		d.buckets[i] -= n
	}
	return d
}

// Count is how many were added.
func (d *Durations) Count() int64 { return d.n }

// Quantile is the duration that q of all are at most, 0 of none.
func (d *Durations) Quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(d.n)))
	for i, n := range d.buckets {
		if rank -= n; rank <= 0 {
			power := max(0, i/16-1)
			return time.Duration((uint64(i-power*16)<<power + (1<<power)/2))
		}
	}
	return 0
}
