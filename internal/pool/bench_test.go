package pool

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

type plain struct{}

func (plain) Close() error { return nil }

// store is AgentFly's pattern: one lock over all members and one condition, which wakes all who wait when a member comes back. Whoever wants one
// makes a round trip over HTTP; giving it back is a call in the process, which favours it.
type store struct {
	mu   sync.Mutex
	cond *sync.Cond
	free []int
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	for len(s.free) == 0 {
		s.cond.Wait()
	}
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.mu.Unlock()
	_, _ = io.WriteString(w, strconv.Itoa(n)) // who asked is there
}

func (s *store) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, n)
	s.cond.Broadcast()
}

// leases has holders take 10,000 leases of members that do nothing, and returns the time of one: all of it is the pool's.
func leases(b *testing.B, holders int, lease func() error) time.Duration {
	const total = 10_000
	var all sync.WaitGroup
	errs := make([]error, holders)
	start := time.Now()
	for h := range holders {
		all.Go(func() {
			for n := h; n < total && errs[h] == nil; n += holders {
				errs[h] = lease()
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	return took / total
}

// BenchmarkLease compares the cost of a lease with that of AgentFly's pattern on the same members, eight of them, in one run. It fails when a lease
// costs more than 20 µs.
func BenchmarkLease(b *testing.B) {
	const size = 8
	p, err := New(Options{Name: "bench", Size: size, Warm: size, Lease: time.Minute, Make: func(context.Context) (Member, error) { return plain{}, nil }})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	s := &store{free: []int{0, 1, 2, 3, 4, 5, 6, 7}}
	s.cond = sync.NewCond(&s.mu)
	server := httptest.NewServer(s)
	defer server.Close()
	client := server.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 1024
	ours := func() error {
		l, err := p.Acquire(b.Context(), Owner{Name: "a"})
		if err == nil {
			l.Return()
		}
		return err
	}
	theirs := func() error {
		r, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r.Body)
		n, bad := strconv.Atoi(string(text))
		if err = errors.Join(err, bad, r.Body.Close()); err == nil {
			s.give(n)
		}
		return err
	}
	for _, holders := range []int{1, 8, 256} {
		b.Run("holders="+strconv.Itoa(holders), func(b *testing.B) {
			var a, other []time.Duration
			for b.Loop() {
				a = append(a, leases(b, holders, ours))
				other = append(other, leases(b, holders, theirs))
			}
			slices.Sort(a)
			slices.Sort(other)
			mine, beside := a[len(a)/2], other[len(other)/2]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(mine.Nanoseconds()), "ns/lease")
			b.ReportMetric(float64(beside.Nanoseconds()), "ns/lease-over-HTTP")
			b.ReportMetric(float64(beside)/float64(mine), "ratio")
			if mine > 20*time.Microsecond {
				b.Errorf("a lease costs %s, more than 20 µs", mine)
			}
		})
	}
}
