package environments

import (
	"math"
	"time"
)

// times counts durations in buckets, each 1/8 of a doubling wide, so that a quantile is right within 9%.
type times struct {
	n       int64
	buckets [8 * 64]int64
}

func (t *times) add(d time.Duration) {
	t.n++
	t.buckets[int(8*math.Log2(float64(max(d, 1))))]++
}

// quantile is the middle of the bucket that holds it; 0 where nothing was counted.
func (t *times) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(t.n)))
	var seen int64
	for i, n := range t.buckets {
		if seen += n; seen >= rank && n > 0 {
			return time.Duration(math.Exp2((float64(i) + 0.5) / 8))
		}
	}
	return 0
}
