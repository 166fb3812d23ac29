package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

func jsonBody(q *http.Request, v any) error { return json.NewDecoder(q.Body).Decode(v) }

// want is what the fake's weights sample.
func wantTokens(weights float64, q engines.Request) []int32 {
	ids := append([]int32{}, q.Prompt...)
	for range q.Sampling.MaxTokens {
		id, _, _ := fakeSample(weights, fakeParameters{Temperature: 1, Seed: int64(q.Seed)}, ids, false)
		ids = append(ids, id)
	}
	return ids[len(q.Prompt):]
}

func TestUpdateOrder(t *testing.T) {
	for way, want := range map[Way][]string{
		WayDisk: {"/pause", "/update_weight_version", "/collective_rpc", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache", "/resume"},
		WayTransfer: {
			"/pause", "/update_weight_version", "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
			"/update_weight_version", "/reset_prefix_cache", "/resume",
		},
	} {
		t.Run(string(way), func(t *testing.T) {
			f := newFake(t)
			e := connect(t, func(o *Options) { o.Way = way }, f)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
			require.Equal(t, want, f.calls())
			q := request(6, 1, 2, 3)
			c, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, wantTokens(5, q), c.TokenIDs)
			require.Equal(t, []int32{7, 7, 7, 7, 7, 7}, c.Versions)
			require.Equal(t, trajectory.FinishLength, c.FinishReason)
			require.Equal(t, 2, c.CachedTokens)
		})
	}
	left, err := filepath.Glob(filepath.Join(sharedMemory(), "agentfly-shared-"+strconv.Itoa(os.Getpid())+"-*"))
	require.NoError(t, err)
	require.Empty(t, left, "the shared file is removed")
}

// started runs send and returns when the server has sampled a token for it. Its tokens take so long that the request is not done soon.
func (f *fake) started(t *testing.T, send func()) {
	t.Helper()
	f.mu.Lock()
	f.pace = 4 * time.Millisecond
	first := f.sampled
	f.mu.Unlock()
	send()
	within(t, "the request is sampled", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sampled > first
	})
}

// A request in flight goes on under the new weights and says so token by token.
func TestUpdateKeepsWhatIsInFlight(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	var c engines.Completion
	var err error
	var all sync.WaitGroup
	f.started(t, func() { all.Go(func() { c, err = e.Generate(t.Context(), request(100, 1, 2, 3)) }) })
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
	all.Wait()
	require.NoError(t, err)
	require.Len(t, c.TokenIDs, 100)
	require.Equal(t, int32(1), c.Versions[0])
	require.Equal(t, int32(2), c.Versions[99])
	require.IsNonDecreasing(t, c.Versions)
}

// Where replies do not say which weights sampled which token, all tokens of a completion have the oldest version that it saw. It is not sampled
// again: one that lasts longer than the time between two updates would never end.
func TestUpdateWithoutVersionsPerToken(t *testing.T) {
	f := newFake(t)
	f.routes, f.noVersion = allRoutes[1:], true
	e := connect(t, func(o *Options) { o.Attempts = 2 }, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	q := request(100, 1, 2, 3)
	var c engines.Completion
	var err error
	done := make(chan struct{})
	f.started(t, func() { go func() { defer close(done); c, err = e.Generate(t.Context(), q) }() })
	updates := 0
	for ended := false; !ended; {
		require.NoError(t, e.Update(t.Context(), fakeWeights(t, float32(3+updates), int32(2+updates))))
		updates++
		select {
		case <-done:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.NoError(t, err)
	require.Greater(t, updates, 1)
	require.Len(t, c.TokenIDs, 100)
	require.Equal(t, wantTokens(2, q)[0], c.TokenIDs[0])
	require.NotEqual(t, wantTokens(2, q), c.TokenIDs, "it went on under other weights")
	require.Equal(t, slices.Repeat([]int32{1}, 100), c.Versions)
}

// The failures that are known from practice: each is found by the proof, nothing is sampled afterwards, the server stays
// paused, and an update that succeeds repairs it.
func TestProofFinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *fake)
		heal  func(f *fake)
		want  string
	}{
		"stale prefix cache":     {func(f *fake) { f.stale = true }, func(f *fake) { f.stale = false }, "decoding after the prefix cache against computing anew"},
		"weights never arrived":  {func(f *fake) { f.deaf = true }, func(f *fake) { f.deaf = false }, "probe: the logprob of token"},
		"cache is never emptied": {func(f *fake) { f.refuse = 1000 }, func(f *fake) { f.refuse = 0 }, "empty the prefix cache: the server answers 20 times that it could not"},
		"version is lost": {
			func(f *fake) {
				f.control = func(_ http.ResponseWriter, q *http.Request) bool { return q.URL.Path == "/update_weight_version" }
			},
			func(f *fake) { f.control = nil }, `the server reports weight version "mine@1", not "mine@unproven"`,
		},
		"load is refused": {
			func(f *fake) {
				f.control = func(w http.ResponseWriter, q *http.Request) bool {
					if q.URL.Path == "/collective_rpc" {
						http.Error(w, "no such file", http.StatusInternalServerError)
					}
					return q.URL.Path == "/collective_rpc"
				}
			},
			func(f *fake) { f.control = nil }, "load: 500: no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := newFake(t), newFake(t)
			e := connect(t, func(o *Options) { o.Run = "mine" }, good, bad)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			bad.set(func() { c.spoil(bad) })
			err := e.Update(t.Context(), fakeWeights(t, 3, 2))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "vllm: update to version 2: "+bad.URL+": ", "it names the replica")
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, "behind behind", e.states(), "no mix: the replica that proved does not serve either")
			for _, f := range []*fake{good, bad} {
				f.set(func() { require.True(t, f.paused) })
			}
			_, err = e.Generate(t.Context(), request(4, 1, 2, 3))
			require.ErrorContains(t, err, "no replica serves since an update failed")
			require.ErrorContains(t, err, c.want)
			time.Sleep(30 * time.Millisecond) // looks at the replicas change nothing
			require.Equal(t, "behind behind", e.states())
			bad.set(func() { c.heal(bad) })
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
			require.Equal(t, "serving serving", e.states())
			got, err := e.Generate(t.Context(), request(4, 1, 2, 3))
			require.NoError(t, err)
			require.Equal(t, wantTokens(3, request(4, 1, 2, 3)), got.TokenIDs)
		})
	}
}

// A server that was restarted after an update failed takes part in the next one.
func TestRestartAfterAFailedUpdate(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	bad := fakeWeights(t, 3, 2)
	bad.Probe.Logprobs[0]--
	require.Error(t, e.Update(t.Context(), bad))
	e.fleet.replicas[0].standing.set(down, errLeft)
	f.restart()
	within(t, "it answers", func() bool { return e.states() == "behind" })
	_, err := e.Generate(t.Context(), request(4, 1, 2, 3))
	require.ErrorContains(t, err, "no replica serves since an update failed")
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)))
	got, err := e.Generate(t.Context(), request(4, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, wantTokens(3, request(4, 1, 2, 3)), got.TokenIDs)
}

func TestAdapterNeverArrived(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	w := fakeWeights(t, 11, 1) // what the fake's adapter makes of 1
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(w.Path, name), []byte("{}"), 0o644))
	}
	f.set(func() { f.deaf = true })
	var proof *ProofError
	require.ErrorAs(t, e.Update(t.Context(), w), &proof)
	require.Equal(t, "probe", proof.What)
	require.Greater(t, proof.Engine-proof.Trainer, -10.0)
	f.set(func() { f.deaf = false })
	require.NoError(t, e.Update(t.Context(), w))
	require.Contains(t, f.calls(), "/v1/load_lora_adapter")
	require.Equal(t, "agentfly-"+e.options.Run, e.fleet.replicas[0].standing.held().model)
	require.ErrorContains(t, e.Sleep(t.Context()), "level 2 drops the weights that the adapter comes on top of", "and they would not come back")
	require.Equal(t, "serving", e.states())
}

// What unproven weights sampled while the proof ran is dropped.
func TestNothingUnprovenIsReturned(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	var err error
	var all sync.WaitGroup
	f.started(t, func() { all.Go(func() { _, err = e.Generate(t.Context(), request(60, 1, 2, 3)) }) })
	w := fakeWeights(t, 3, 2)
	w.Probe.Logprobs[4]--
	f.set(func() { // the proof takes so long that the request ends meanwhile
		f.control = func(_ http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path == "/weight_info" {
				time.Sleep(500 * time.Millisecond)
			}
			return false
		}
	})
	require.ErrorContains(t, e.Update(t.Context(), w), "token 5")
	all.Wait()
	require.ErrorContains(t, err, "no replica serves since an update failed")
}

// A replica that was away during an update gets the weights before it serves; one that was restarted too.
func TestReturningReplica(t *testing.T) {
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
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 3, 2)), "the others go on")
	b.set(func() {
		require.Equal(t, 2.0, b.weights)
		b.control = nil
	})
	within(t, "it returns", func() bool { return e.states() == "serving serving" })
	b.set(func() { require.Equal(t, 3.0, b.weights) })

	a.restart() // faster than anybody looks
	a.set(func() { require.Equal(t, 1.0, a.weights) })
	for range 20 {
		q := request(6, 4, 2)
		q.Session = ""
		c, err := e.Generate(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, wantTokens(3, q), c.TokenIDs)
		require.Equal(t, int32(2), c.Versions[0])
	}
	within(t, "it is repaired", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.weights == 3
	})
	within(t, "it serves", func() bool { return e.states() == "serving serving" })
}

// A vLLM whose engine dies while it loads answers with an error, and ends afterwards. The update goes on without it, and it is loaded when it was
// started again.
func TestAnEngineThatDiesInALoad(t *testing.T) {
	f, other := newFake(t), newFake(t)
	e := connect(t, nil, f, other)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
	f.diesIn("/collective_rpc", func(m *mortal, w http.ResponseWriter, _ *http.Request) {
		m.dead.Store(true)
		time.AfterFunc(200*time.Millisecond, m.revive)
		http.Error(w, `{"error": {"message": "EngineDeadError"}}`, http.StatusInternalServerError)
	}, abort)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 6, 8)))
	require.Equal(t, "down serving", e.states())
	require.Eventually(t, func() bool { return e.states() == "serving serving" }, 5*time.Second, time.Millisecond)
	f.set(func() { require.Equal(t, 6.0, f.weights) })
}

// A vLLM whose engine dies may leave what the engine had begun without an answer, and waits for it before it ends: it is not healthy meanwhile.
func TestAnEngineThatDiesLeavesALoadWithoutAnAnswer(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.ControlTimeout = time.Second }, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
	f.diesIn("/collective_rpc", func(m *mortal, _ http.ResponseWriter, q *http.Request) {
		m.dead.Store(true)
		_, _ = io.Copy(io.Discard, q.Body) // or the server does not see that the client goes
		<-q.Context().Done()
		m.revive()
	}, nil)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 6, 8)))
	require.Equal(t, "serving", e.states())
	f.set(func() { require.Equal(t, 6.0, f.weights) })
}

// A replica whose load did not end stays paused and computes nothing, because a token would end it, until a later load has ended.
func TestALoadThatDoesNotEnd(t *testing.T) {
	t.Run("the folder is not there yet", func(t *testing.T) {
		a, b := newFake(t), newFake(t)
		e := connect(t, nil, a, b)
		w := fakeWeights(t, 2, 1)
		require.NoError(t, e.Update(t.Context(), w))
		require.NoError(t, os.Rename(w.Path, w.Path+".away"))
		b.restart()
		within(t, "it is missed", func() bool { return e.states() == "serving behind" })
		stays(t, b)
		require.NoError(t, os.Rename(w.Path+".away", w.Path))
		within(t, "it is loaded", func() bool { return e.states() == "serving serving" })
		b.set(func() { require.Equal(t, []any{false, 2.0}, []any{b.died, b.weights}) })
	})
	t.Run("the trainer changes its weights meanwhile", func(t *testing.T) {
		f := newFake(t)
		e := connect(t, func(o *Options) { o.Way = WayIPC }, f)
		taken := func(_ http.ResponseWriter, q *http.Request) bool { return q.URL.Path == "/update_weights" }
		f.set(func() { f.control = taken })
		w, tensors := fakeWeights(t, 1, 7), newMemory(1, "w")
		w.Path, w.Tensors = "", tensors
		require.NoError(t, e.Update(t.Context(), w))
		f.set(func() {
			f.control = func(_ http.ResponseWriter, q *http.Request) bool {
				if q.URL.Path == "/start_weight_update" {
					tensors.change()
				}
				return false
			}
		})
		f.restart()
		within(t, "it is missed", func() bool { return e.states() == "behind" })
		stays(t, f)
		f.set(func() { f.control = taken })
		w.Version, w.Tensors = 8, newMemory(1, "w")
		require.NoError(t, e.Update(t.Context(), w), "which the next update ends")
		require.Equal(t, "serving", e.states())
	})
	t.Run("the process ended", func(t *testing.T) {
		f := newFake(t)
		f.version, f.half = "other-1@unproven", true
		f.pause()
		e := connect(t, nil, f)
		require.Equal(t, "behind", e.states())
		require.Contains(t, e.Summary(), "what it samples is asked after the next update")
		stays(t, f)
		require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
		require.True(t, e.Servers()[0].Processed)
		c, err := e.Generate(t.Context(), request(6, 1, 2, 3))
		require.NoError(t, err)
		require.Equal(t, wantTokens(2, request(6, 1, 2, 3)), c.TokenIDs)
	})
}

// A server that answers whenever it is asked, and ends in each load, is not loaded without a pause while the patience lasts.
func TestLoadsThatEndAtOncePause(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.HealthEvery, o.Patience = 100*time.Millisecond, 500*time.Millisecond }, f)
	var loads atomic.Int32
	f.set(func() {
		f.control = func(w http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path != "/pause" {
				return false
			}
			loads.Add(1)
			hangUp(w)
			return true
		}
	})
	require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 2, 1)), "it does not answer")
	require.LessOrEqual(t, loads.Load(), int32(10))
}

// stays requires that a server whose load did not end lives through many looks.
func stays(t *testing.T, f *fake) {
	t.Helper()
	within(t, "a load begins", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.half
	})
	time.Sleep(100 * time.Millisecond)
	f.set(func() { require.Equal(t, []bool{true, false}, []bool{f.half, f.died}, "%v", f.paths) })
}

// A replica that comes back while the trainer has other weights is not told that a load begins.
func TestNoLoadBeginsWithWeightsThatAreGone(t *testing.T) {
	for _, way := range []Way{WayIPC, WayTransfer, WayGloo, WayNCCL} {
		t.Run(string(way), func(t *testing.T) {
			f, g := newFake(t), &fakeGroup{}
			e := connect(t, func(o *Options) { o.Way, o.Collectives = way, g }, f)
			if way.backend() != "" {
				g.serves(t, f, map[string]string{})
			}
			w, tensors := fakeWeights(t, 5, 7), newMemory(5, "w")
			tensors.change()
			w.Path, w.Tensors = "", tensors
			require.ErrorIs(t, e.Update(t.Context(), w), tensors.err)
			require.NotContains(t, f.calls(), "/start_weight_update")
		})
	}
}

// A server that was started again with less context would refuse what the run may ask, so it stays out; one with more serves, and is asked no more.
func TestContextAfterARestart(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("first ", first), func(t *testing.T) {
			a, b := newFake(t), newFake(t)
			fakes := []*fake{b, a}
			if first {
				fakes = []*fake{a, b}
			}
			e := connect(t, nil, fakes...)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
			a.set(func() { a.length = fakeContext / 2 })
			a.restart()
			within(t, "it is kept out", func() bool {
				return strings.Contains(e.fleet.reasons(), a.URL+" is down (its context is 64 tokens, it was 128; start it with --max-model-len 128)")
			})
			require.Equal(t, fakeContext, e.Capabilities().MaxModelLen)
			_, err := e.Generate(t.Context(), request(2, make([]int32, 100)...))
			require.NoError(t, err)
			a.set(func() { a.length = 2 * fakeContext })
			within(t, "it serves", func() bool { return e.states() == "serving serving" })
			require.Equal(t, fakeContext, e.Capabilities().MaxModelLen)
		})
	}
}

// An update that waits for its only server says why the one that came back meanwhile was not taken.
func TestContextAfterARestartDuringAnUpdate(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.Patience = 300 * time.Millisecond }, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	f.set(func() {
		f.control = func(w http.ResponseWriter, q *http.Request) bool {
			ends := q.URL.Path == "/pause"
			if ends {
				f.set(func() { f.control, f.length = nil, fakeContext/2 })
				f.restart()
				hangUp(w)
			}
			return ends
		}
	})
	err := e.Update(t.Context(), fakeWeights(t, 3, 2))
	require.EqualError(t, err, "vllm: update to version 2: "+f.URL+": its context is 64 tokens, it was 128; start it with --max-model-len 128")
	_, err = e.Generate(t.Context(), request(2, 1, 2))
	require.ErrorContains(t, err, "its context is 64 tokens")
}

// A probe that the server does not answer says nothing of its extension.
func TestAProbeThatFailsIsNoMissingExtension(t *testing.T) {
	refuse := func(text string, status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, text, status) }
	}
	for name, c := range map[string]struct {
		fault func(http.ResponseWriter)
		want  string // "": it has none
	}{
		"connection reset": {hangUp, "/collective_rpc: "},
		"busy":             {refuse("busy", http.StatusServiceUnavailable), "/collective_rpc: 503: busy"},
		"no method":        {refuse("no such method", http.StatusInternalServerError), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			var asked atomic.Bool
			f.control = func(w http.ResponseWriter, q *http.Request) bool {
				first := q.URL.Path == "/collective_rpc" && !asked.Swap(true)
				if first {
					c.fault(w)
				}
				return first
			}
			e, err := New(t.Context(), Options{URLs: []string{f.URL}})
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.False(t, e.Servers()[0].Extension)
			require.NoError(t, e.Close())
		})
	}
}

func TestUpdateRefuses(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	good := fakeWeights(t, 2, 1)
	for want, spoil := range map[string]func(w *engines.Weights){
		"weights need a path":                      func(w *engines.Weights) { w.Path = "" },
		"weights without a probe cannot be proven": func(w *engines.Weights) { w.Probe = nil },
		"the probe has 1 ids and 0 logprobs":       func(w *engines.Weights) { w.Probe = &engines.Probe{TokenIDs: []int32{1}, Tolerance: 1} },
		"the probe's tolerance is 0":               func(w *engines.Weights) { p := *w.Probe; p.Tolerance = 0; w.Probe = &p },
		"the path must be absolute":                func(w *engines.Weights) { w.Path = "here" },
		"a version is at least 0":                  func(w *engines.Weights) { w.Version = -1 },
		"none does not exist":                      func(w *engines.Weights) { w.Path = filepath.Join(w.Path, "none") },
	} {
		w := good
		spoil(&w)
		require.ErrorContains(t, e.Update(t.Context(), w), want)
	}
	require.Empty(t, f.calls(), "no server was touched")
	_, err := e.Generate(t.Context(), request(2, 1, 2))
	require.NoError(t, err, "the old weights serve on")
	require.NoError(t, e.Close())
	f.routes = []string{"/inference/v1/generate"}
	bare := connect(t, nil, f)
	require.ErrorContains(t, bare.Update(t.Context(), good), "VLLM_SERVER_DEV_MODE=1")
}

// A server that an earlier run left with unproven weights is not used before an update.
func TestUnprovenServerWaits(t *testing.T) {
	f := newFake(t)
	first := connect(t, nil, f)
	w := fakeWeights(t, 2, 1)
	w.Probe.Logprobs[0]--
	require.Error(t, first.Update(t.Context(), w))
	require.NoError(t, first.Close())
	second := connect(t, func(o *Options) { o.Patience = 30 * time.Millisecond }, f)
	_, err := second.Generate(t.Context(), request(2, 1, 2))
	require.ErrorContains(t, err, "an earlier update of this server failed")
	require.NoError(t, second.Update(t.Context(), fakeWeights(t, 2, 1)))
	_, err = second.Generate(t.Context(), request(2, 1, 2))
	require.NoError(t, err)
}

func TestWholeGroups(t *testing.T) {
	layer := "model.layers.0.self_attn."
	require.NoError(t, wholeGroups(nil))
	require.NoError(t, wholeGroups([]string{layer + "q_proj.weight", layer + "k_proj.weight", layer + "v_proj.weight", layer + "o_proj.weight", "lm_head.weight"}))
	require.ErrorContains(t, wholeGroups([]string{layer + "q_proj.weight", layer + "v_proj.weight"}), "but not "+layer+"k_proj.weight")
	require.ErrorContains(t, wholeGroups([]string{"model.layers.3.mlp.up_proj.weight"}), "but not model.layers.3.mlp.gate_proj.weight")
	require.ErrorContains(t, wholeGroups([]string{layer + "q_proj.weight", layer + "k_proj.weight", layer + "v_proj.weight", layer + "q_proj.bias"}), layer+"k_proj.bias")
	require.NoError(t, wholeGroups([]string{"model.my_q_proj.weight", "q_projection.weight"}))
}

func TestShareTensors(t *testing.T) {
	w := fakeWeights(t, 5, 1)
	source, done, err := (&updateRun{weights: w}).source()
	require.NoError(t, err)
	defer done()
	plan, remove, err := share(t.Context(), source, chunkBytes)
	require.NoError(t, err)
	defer remove()
	require.Equal(t, []transferTensor{{"w", "F32", []int{1}, 0}}, plan.Tensors)
	data, err := os.ReadFile(plan.File)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0xa0, 0x40}, data)
	require.Equal(t, int64(4), plan.Size)
	_, _, err = (&updateRun{weights: engines.Weights{Path: t.TempDir()}}).source()
	require.Error(t, err)
}
