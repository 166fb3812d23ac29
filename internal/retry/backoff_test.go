package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/retry"
)

func TestBackoff(t *testing.T) {
	b := retry.Backoff{First: 300 * time.Millisecond, Most: 2 * time.Second}
	var waits []time.Duration
	for n := range 6 {
		waits = append(waits, b.Wait(n+1))
	}
	const ms = time.Millisecond
	require.Equal(t, []time.Duration{300 * ms, 600 * ms, 1200 * ms, 2000 * ms, 2000 * ms, 2000 * ms}, waits)
	require.Equal(t, 2*time.Second, b.Wait(math.MaxInt), "it is not counted to the end")
	require.Equal(t, 3*time.Second, retry.Backoff{First: 3 * time.Second, Most: time.Second}.Wait(1), "what was asked for")
	require.Zero(t, retry.Backoff{}.Wait(7))
}

func TestAttempts(t *testing.T) {
	fault, gone := errors.New("fault"), errors.New("gone")
	type failure struct {
		after time.Duration
		final bool
	}
	for name, c := range map[string]struct {
		failures []failure // then it succeeds
		endsAt   int       // the wait that ends early; 0: none
		n        int
		err      error
		ended    error
		waits    []time.Duration
	}{
		"at once":                  {n: 1},
		"later":                    {failures: make([]failure, 2), n: 3, waits: []time.Duration{2, 4}},
		"at last":                  {failures: make([]failure, 3), n: 4, waits: []time.Duration{2, 4, 5}},
		"never":                    {failures: make([]failure, 9), n: 4, err: fault, waits: []time.Duration{2, 4, 5}},
		"it cannot help":           {failures: []failure{{}, {final: true}}, n: 2, err: fault, waits: []time.Duration{2}},
		"the other side says when": {failures: []failure{{after: 9}, {after: 1}}, n: 3, waits: []time.Duration{9, 4}},
		"the wait ends":            {failures: make([]failure, 9), endsAt: 2, n: 2, err: fault, ended: gone, waits: []time.Duration{2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var waits []time.Duration
			calls := 0
			a := retry.Attempts{Most: 4, Backoff: retry.Backoff{First: 2, Most: 5}, Sleep: func(_ context.Context, d time.Duration) error {
				if waits = append(waits, d); len(waits) == c.endsAt {
					return gone
				}
				return nil
			}}
			n, err, ended := a.Do(t.Context(), func() (time.Duration, bool, error) {
				if calls++; calls > len(c.failures) {
					return 0, false, nil
				}
				f := c.failures[calls-1]
				return f.after, f.final, fault
			})
			require.Equal(t, c.n, n)
			require.Equal(t, c.n, calls)
			require.Equal(t, c.err, err)
			require.Equal(t, c.ended, ended)
			require.Equal(t, c.waits, waits)
		})
	}
}

// What ends the context also ends the attempts: during one of them, and during a wait.
func TestAttemptsEndWithTheContext(t *testing.T) {
	fault := errors.New("fault")
	a := retry.Attempts{Most: 4, Backoff: retry.Backoff{First: time.Minute, Most: time.Hour}}
	ctx, cancel := context.WithCancel(t.Context())
	n, err, ended := a.Do(ctx, func() (time.Duration, bool, error) { cancel(); return 0, false, fault })
	require.Equal(t, []any{1, fault, nil}, []any{n, err, ended})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		n, err, ended := a.Do(ctx, func() (time.Duration, bool, error) { return 0, false, fault })
		require.Equal(t, []any{2, fault, context.DeadlineExceeded}, []any{n, err, ended})
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, retry.Pause(ctx, 2*time.Minute), context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "it does not begin")
		require.NoError(t, retry.Pause(ctx, time.Second))
		require.Equal(t, time.Second, time.Since(start))
	})
}
