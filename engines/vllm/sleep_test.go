package vllm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// record keeps the paths with their queries.
func (f *fake) record(into *[]string) {
	f.set(func() {
		f.control = func(_ http.ResponseWriter, q *http.Request) bool {
			if p := q.URL.Path; q.Method == http.MethodPost || p == "/is_sleeping" {
				f.set(func() { *into = append(*into, q.URL.RequestURI()) })
			}
			return false
		}
	})
}

// A step's order: nothing is asked of a sleeping server but whether it sleeps and to wake its weights, then to load, then to wake its cache.
func TestSleepOrder(t *testing.T) {
	for level, name := range map[int][]string{1: nil, 2: {"/update_weight_version"}} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			f := newFake(t)
			e := connect(t, func(o *Options) { o.Sleep = level }, f)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			var calls []string
			f.record(&calls)
			require.NoError(t, e.Sleep(t.Context()))
			require.Equal(t, "asleep", e.states())
			f.set(func() {
				require.Equal(t, append([]string{fmt.Sprint("/sleep?mode=keep&level=", level), "/is_sleeping"}, name...), calls)
				calls = nil
				require.Len(t, f.asleep, 2)
			})
			q := request(6, 1, 2, 3)
			var c engines.Completion
			var err error
			var all sync.WaitGroup
			all.Go(func() { c, err = e.Generate(t.Context(), q) }) // waits
			time.Sleep(50 * time.Millisecond)                      // looks at it change nothing
			require.Equal(t, "asleep", e.states())
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
			all.Wait()
			require.NoError(t, err)
			require.Equal(t, wantTokens(3, q), c.TokenIDs)
			require.Equal(t, int32(2), c.Versions[0])
			f.set(func() {
				require.Equal(t, []string{
					"/is_sleeping", "/wake_up?tags=weights", "/update_weight_version", "/collective_rpc", "/collective_rpc", "/update_weight_version",
					"/reset_prefix_cache?reset_running_requests=true", "/wake_up?tags=kv_cache",
				}, calls)
			})
			require.Equal(t, "serving", e.states())
		})
	}
}

// A request in flight sleeps too, and goes on under the new weights.
func TestSleepKeepsWhatIsInFlight(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	var c engines.Completion
	var err error
	var all sync.WaitGroup
	f.started(t, func() { all.Go(func() { c, err = e.Generate(t.Context(), request(100, 1, 2, 3)) }) })
	require.NoError(t, e.Sleep(t.Context()))
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
	all.Wait()
	require.NoError(t, err)
	require.Equal(t, int32(1), c.Versions[0])
	require.Equal(t, int32(2), c.Versions[99])
}

// A replica that does not sleep or wake ends the run with a line that names it, and nothing samples afterwards.
func TestSleepFails(t *testing.T) {
	at := func(path string, f func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, q *http.Request) bool {
			if q.URL.RequestURI() == path {
				f(w, q)
				return true
			}
			return false
		}
	}
	never := func(_ http.ResponseWriter, q *http.Request) { hang(q) }
	says := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	const sleepPath = "/sleep?mode=keep&level=2"
	for name, c := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
		wakes bool // it is the update that fails
	}{
		"does not sleep in time":   {at(sleepPath, never), "sleep: not done after 1s", false},
		"refuses to sleep":         {at(sleepPath, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no cumem", 500) }), "sleep: 500: no cumem", false},
		"does not know":            {at(sleepPath, says("{}")), `sleep: unusable reply: status "", expected sleeping`, false},
		"says that it is awake":    {at("/is_sleeping", says(`{"is_sleeping": false}`)), "is it asleep: the server says that it is not", false},
		"weights never wake":       {at("/wake_up?tags=weights", never), "wake the weights: not done after 1s", true},
		"cache never wakes":        {at("/wake_up?tags=kv_cache", never), "wake the cache: not done after 1s", true},
		"cache stays asleep":       {at("/wake_up?tags=kv_cache", says(`{"status": "sleeping"}`)), "wake the cache: the server says that it still sleeps", true},
		"out of memory on wake-up": {at("/wake_up?tags=kv_cache", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "CUDA out of memory", 500) }), "wake the cache: 500: CUDA out of memory", true},
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := newFake(t), newFake(t)
			e := connect(t, func(o *Options) { o.ControlTimeout, o.HealthTimeout = time.Second, time.Second }, good, bad)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			bad.set(func() { bad.control = c.fault })
			err := e.Sleep(t.Context())
			if c.wakes {
				require.NoError(t, err)
				err = e.Update(t.Context(), fakeWeights(t, 3, 2))
			}
			require.ErrorContains(t, err, bad.URL+": ")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, e.states(), "serving")
			_, err = e.Generate(t.Context(), request(4, 1, 2, 3))
			require.ErrorContains(t, err, c.want)
		})
	}
	f := newFake(t)
	f.routes = allRoutes[:9]
	require.NotContains(t, f.routes, "/sleep")
	e := connect(t, nil, f)
	require.ErrorContains(t, e.Sleep(t.Context()), "start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode")
}

// updateMissed begins an update while the only server of a sleeping engine is missed; it waits for the server. ended waits for the update's error.
func updateMissed(t *testing.T, e *Engine, f *fake) (ended func() error) {
	t.Helper()
	f.set(func() {
		f.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "down" })
	var all sync.WaitGroup
	var err error
	all.Go(func() { err = e.Update(t.Context(), fakeWeights(t, 3, 2)) })
	time.Sleep(20 * time.Millisecond)
	return func() error {
		all.Wait()
		return err
	}
}

// A server that ended while it slept and was started again is awake: the update loads it like any other.
func TestServerIsRestartedAsleep(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	require.NoError(t, e.Sleep(t.Context()))
	updated := updateMissed(t, e, f)
	f.restart()
	f.set(func() { f.control = nil })
	require.NoError(t, updated())
	c, err := e.Generate(t.Context(), request(6, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, wantTokens(3, request(6, 1, 2, 3)), c.TokenIDs)
}

// A server that missed looks and sleeps on, with the name of the weights that it had (level 1), is asked nothing that would wake the weights and the
// cache that it had: its memory is the trainer's, and what it sampled would be of the old weights.
func TestServerComesBackAsleep(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.Sleep = 1 }, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	require.NoError(t, e.Sleep(t.Context()))
	updated := updateMissed(t, e, f)
	var calls []string
	f.record(&calls)
	require.NoError(t, updated())
	f.set(func() {
		require.Equal(t, []string{"/wake_up?tags=weights", "/wake_up?tags=kv_cache"}, slices.DeleteFunc(calls, func(c string) bool { return !strings.HasPrefix(c, "/wake_up") }))
		require.Equal(t, 3.0, f.weights)
	})
	require.Equal(t, "serving", e.states())
}

// A replica that misses a look while it sleeps wakes with the others, if it is there by then.
func TestALookIsMissedAsleep(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, nil, a, b)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	require.NoError(t, e.Sleep(t.Context()))
	var looks atomic.Int32
	b.set(func() {
		b.control = func(w http.ResponseWriter, _ *http.Request) bool {
			missed := looks.Add(1) == 1
			if missed {
				http.Error(w, "busy", http.StatusServiceUnavailable)
			}
			return missed
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "asleep down" })
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
	require.Equal(t, "serving serving", e.states())
	for _, f := range []*fake{a, b} {
		f.set(func() { require.Equal(t, 3.0, f.weights) })
	}

	require.NoError(t, e.Sleep(t.Context()))
	b.set(func() {
		b.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "asleep down" })
	require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 4, 3)), b.URL+": it does not answer", "where it would take memory that nobody knows of")
}

// Servers that another run took over while they were looked at before the sleep are left to it, also where a replica ended meanwhile.
func TestServersAreTakenOverBeforeTheySleep(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("one ends ", ends), func(t *testing.T) {
			a, b := newFake(t), newFake(t)
			e := connect(t, func(o *Options) { o.HealthEvery = time.Hour }, a, b)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			var calls []string
			a.record(&calls)
			var asked atomic.Int32
			b.set(func() {
				b.control = func(w http.ResponseWriter, _ *http.Request) bool {
					if e.states() != "updating updating" { // whether it is there is asked first
						return false
					}
					if asked.Add(1) == 1 { // as a request would
						e.fleet.lose(e.fleet.replicas[1], engines.ErrForeign)
					}
					if ends {
						hangUp(w)
					}
					return ends
				}
			})
			require.ErrorIs(t, e.Sleep(t.Context()), engines.ErrForeign)
			require.Positive(t, asked.Load())
			require.NotContains(t, e.states(), "serving")
			a.set(func() { require.NotContains(t, strings.Join(calls, " "), "/sleep?") })
		})
	}
}

// A server that was started again while it slept may be another server now: it is probed before it is loaded, also where no look missed it, and stays
// out with less context until a server with enough is in its place.
func TestAnotherServerIsThereAfterTheSleep(t *testing.T) {
	for _, missed := range []bool{true, false} {
		t.Run(fmt.Sprint("missed ", missed), func(t *testing.T) {
			a, b := newFake(t), newFake(t)
			e := connect(t, nil, a, b)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			require.NoError(t, e.Sleep(t.Context()))
			if missed {
				b.set(func() {
					b.control = func(w http.ResponseWriter, _ *http.Request) bool {
						hangUp(w)
						return true
					}
				})
				within(t, "it is missed", func() bool { return e.states() == "asleep down" })
			}
			b.set(func() { b.control, b.length, b.routes = nil, fakeContext/2, allRoutes[1:] })
			b.restart()
			require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 3, 2)),
				b.URL+": look what it can do: its context is 64 tokens, it was 128; start it with --max-model-len 128")
			require.NotContains(t, e.states(), "serving")
			require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 3, 2)), "its context is 64 tokens", "it is asked anew")
			b.set(func() { b.length = fakeContext })
			b.restart()
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
			require.Equal(t, "serving serving", e.states())
			require.False(t, e.Servers()[1].Native, "what it can do is known anew")
		})
	}
}

// A server that a killed run left asleep wakes up with weights that nobody trusts.
func TestServerLeftAsleep(t *testing.T) {
	f := newFake(t)
	first := connect(t, nil, f)
	require.NoError(t, first.Update(t.Context(), fakeWeights(t, 2, 1)))
	require.NoError(t, first.Sleep(t.Context()))
	require.NoError(t, first.Close())
	second := connect(t, func(o *Options) { o.Patience = 30 * time.Millisecond }, f)
	require.Equal(t, "behind", second.states())
	_, err := second.Generate(t.Context(), request(2, 1, 2))
	require.ErrorContains(t, err, "an earlier update of this server failed")
	require.NoError(t, second.Update(t.Context(), fakeWeights(t, 3, 2)))
	c, err := second.Generate(t.Context(), request(6, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, wantTokens(3, request(6, 1, 2, 3)), c.TokenIDs)
}

// A replica that is away comes back before anything sleeps: afterwards it would take memory that is the trainer's.
func TestSleepWaitsForEveryReplica(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, nil, a, b)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	b.set(func() {
		b.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "serving down" })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Sleep(ctx), context.DeadlineExceeded)
	b.set(func() { b.control = nil })
	require.NoError(t, e.Sleep(t.Context()))
	require.Equal(t, "asleep asleep", e.states())
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
}

// A sleep that gives up on a replica which is away says what each one does, and why one that does not serve does not.
func TestASleepSaysWhichReplicaIsAway(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, func(o *Options) { o.Patience = 50 * time.Millisecond }, a, b)
	b.set(func() {
		b.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "serving down" })
	err := e.Sleep(t.Context())
	require.ErrorContains(t, err, a.URL+" is serving; "+b.URL+" is down (")
	require.NotContains(t, err.Error(), "nil")
}

// A server that ends while its cache is warmed for the sleep, before any sleeps, is waited for as before the warming: the others serve meanwhile, and all
// go to sleep together.
func TestServerEndsBeforeItSleeps(t *testing.T) {
	for _, level := range []int{1, 2} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			a, b := newFake(t), newFake(t)
			e := connect(t, func(o *Options) { o.Sleep = level }, a, b)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			var ended atomic.Bool
			gone := func(w http.ResponseWriter) bool {
				if ended.Load() {
					hangUp(w)
				}
				return ended.Load()
			}
			b.set(func() {
				b.intercept = func(w http.ResponseWriter, _ *http.Request, n int) bool {
					ended.Store(true)
					return gone(w)
				}
				b.control = func(w http.ResponseWriter, _ *http.Request) bool { return gone(w) }
			})
			var all sync.WaitGroup
			var err error
			all.Go(func() { err = e.Sleep(t.Context()) })
			within(t, "it is missed", func() bool { return e.states() == "serving down" })
			a.set(func() { require.NotContains(t, a.paths, "/sleep") })
			q := request(6, 1, 2, 3)
			c, failed := e.Generate(t.Context(), q)
			require.NoError(t, failed)
			require.Equal(t, wantTokens(2, q), c.TokenIDs)
			b.restart()
			b.set(func() { b.intercept = nil })
			ended.Store(false)
			all.Wait()
			require.NoError(t, err)
			require.Equal(t, "asleep asleep", e.states())
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
			require.Equal(t, "serving serving", e.states())
		})
	}
	f := newFake(t)
	e := connect(t, func(o *Options) { o.Patience = 50 * time.Millisecond }, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			hangUp(w)
			return true
		}
	})
	err := e.Sleep(t.Context())
	require.ErrorContains(t, err, f.URL)
	require.ErrorContains(t, err, "EOF", "it ends each time, and is not waited for longer than a server that is away")
}
