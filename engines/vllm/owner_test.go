package vllm

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// fakeAdapter writes a PEFT folder whose probe is what the fake's adapter makes of weights.
func fakeAdapter(t *testing.T, weights float32, version int32) engines.Weights {
	w := fakeWeights(t, weights, version)
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(w.Path, name), []byte("{}"), 0o644))
	}
	return w
}

// Two runs on one server, both at version 1: the second takes the server over, and whatever the first one does next says so.
// Neither a completion nor a score nor an update of the first one is lost in silence, and it does not touch the server again.
func TestTwoRunsOnOneServer(t *testing.T) {
	const slow = time.Hour // no look at the server comes first
	ways := map[string]func(o *Options){
		"disk": func(o *Options) { o.Way = WayDisk }, "transfer": func(o *Options) { o.Way = WayTransfer }, "lora": func(o *Options) { o.Way = WayLoRA },
	}
	weights := func(way string, t *testing.T, n int) engines.Weights {
		if way == "lora" {
			return fakeAdapter(t, float32(1+10*n), 1) // the fake's adapters add up
		}
		return fakeWeights(t, float32(1+10*n), 1)
	}
	does := map[string]func(t *testing.T, e *Engine, way string) error{
		"completion": func(t *testing.T, e *Engine, _ string) error {
			_, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			return err
		},
		"score": func(t *testing.T, e *Engine, _ string) error {
			_, err := e.Logprobs(t.Context(), []int32{1, 2, 3})
			return err
		},
		"update": func(t *testing.T, e *Engine, way string) error { return e.Update(t.Context(), weights(way, t, 3)) },
	}
	for way, choose := range ways {
		for what, do := range does {
			for _, routes := range [][]string{allRoutes, allRoutes[1:]} { // the second do not say which weights sampled
				t.Run(way+" "+what+" "+routes[0], func(t *testing.T) {
					f := newFake(t)
					f.routes, f.noVersion = routes, routes[0] == "/v1/completions"
					quiet := func(o *Options) { choose(o); o.HealthEvery, o.ControlTimeout = slow, time.Second }
					first, second := connect(t, quiet, f), connect(t, quiet, f)
					require.NoError(t, first.Update(t.Context(), weights(way, t, 1)))
					_, err := first.Generate(t.Context(), request(6, 1, 2, 3))
					require.NoError(t, err)
					require.NoError(t, second.Update(t.Context(), weights(way, t, 2)))
					calls := len(f.calls())
					require.ErrorContains(t, do(t, first, way), "another run")
					require.Len(t, f.calls(), calls, "it does not touch what is another run's")
					for _, do := range does {
						require.ErrorContains(t, do(t, first, way), "another run", "for good")
					}
					got, err := second.Generate(t.Context(), request(6, 1, 2, 3))
					require.NoError(t, err, "the other run goes on")
					require.Equal(t, wantTokens(21, request(6, 1, 2, 3)), got.TokenIDs)
				})
			}
		}
	}
}

// Looks at the servers notice a takeover also while nothing is sampled, and do not fight for the server.
func TestALookNoticesAnotherRun(t *testing.T) {
	a, b := newFake(t), newFake(t)
	second := connect(t, func(o *Options) { o.HealthEvery = time.Hour }, b)
	first := connect(t, nil, a, b)
	require.NoError(t, first.Update(t.Context(), fakeWeights(t, 2, 1)))
	require.NoError(t, second.Update(t.Context(), fakeWeights(t, 3, 1)))
	within(t, "it is noticed", func() bool { return first.states() == "behind behind" })
	_, err := first.Generate(t.Context(), request(6, 1, 2, 3))
	require.ErrorContains(t, err, "another run")
	require.ErrorContains(t, err, b.URL, "it names the replica")
	time.Sleep(50 * time.Millisecond)
	b.set(func() { require.Equal(t, 3.0, b.weights) })
	require.Equal(t, "serving", second.states())
}

// The second run comes while the first one's update is under way.
func TestAnotherRunDuringAnUpdate(t *testing.T) {
	for _, at := range []string{"/collective_rpc", "/reset_prefix_cache", "/resume"} {
		t.Run(at, func(t *testing.T) {
			f := newFake(t)
			quiet := func(o *Options) { o.HealthEvery = time.Hour }
			first, second := connect(t, quiet, f), connect(t, quiet, f)
			require.NoError(t, first.Update(t.Context(), fakeWeights(t, 2, 1)))
			second.fleet.replicas[0].standing.set(behind, errLeft) // else it would first ask for tokens, which the paused server gives nobody
			done := false
			f.set(func() {
				f.control = func(_ http.ResponseWriter, q *http.Request) bool {
					if q.URL.Path == at && !done {
						done = true
						require.NoError(t, second.Update(t.Context(), fakeWeights(t, 3, 2)))
					}
					return false
				}
			})
			err := first.Update(t.Context(), fakeWeights(t, 2, 2)) // for all that the proof can see, its own weights did not change
			require.ErrorContains(t, err, "another run")
		})
	}
}

// The name of a run's weights is not that of another run's of the same job, and what a killed process of the same run left is its own.
func TestNamesOfRuns(t *testing.T) {
	require.NotEqual(t, NewRun("calculator"), NewRun("calculator"))
	require.Regexp(t, `^calculator-[0-9a-f]{12}$`, NewRun("calculator"))
	require.Regexp(t, `^a_b_c-[0-9a-f]{12}$`, NewRun("a b@c"))
	require.Regexp(t, `^run-[0-9a-f]{12}$`, NewRun(""))

	f := newFake(t)
	run := func(o *Options) { o.Run, o.HealthEvery = "mine-1", time.Hour }
	first := connect(t, run, f)
	require.NoError(t, first.Update(t.Context(), fakeWeights(t, 2, 7)))
	f.set(func() { require.Equal(t, "mine-1@7", f.version) })
	again := connect(t, run, f) // the run is resumed, and the server has its weights
	c, err := again.Generate(t.Context(), request(2, 1, 2))
	require.NoError(t, err)
	require.Equal(t, []int32{7, 7}, c.Versions)
	require.NotContains(t, again.Summary(), "another run")
	other := connect(t, nil, f)
	require.Contains(t, other.Summary(), `has weights "mine-1@7" (another run's`)
}

// A server whose weights only serve, such as a teacher's, must keep those that it had.
func TestWeightsThatChangeUnderATeacher(t *testing.T) {
	f := newFake(t)
	quiet := func(o *Options) { o.HealthEvery = time.Hour }
	run, teacher := connect(t, quiet, f), connect(t, func(o *Options) { quiet(o); o.Frozen = true }, f)
	_, err := teacher.Logprobs(t.Context(), []int32{1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, run.Update(t.Context(), fakeWeights(t, 2, 1)))
	_, err = teacher.Logprobs(t.Context(), []int32{1, 2, 3})
	require.ErrorContains(t, err, "another run")
}

// A server without the routes of vLLM's development mode, such as a teacher's, is used by the name of the weights that its replies tell.
func TestAServerWithoutTheNameOfItsWeights(t *testing.T) {
	for _, frozen := range []bool{true, false} {
		for _, name := range []string{fresh, "v2"} {
			for _, routes := range [][]string{allRoutes[:2], allRoutes[1:2]} {
				t.Run(fmt.Sprintf("%s, %s, frozen %t", routes[0], name, frozen), func(t *testing.T) {
					f := newFake(t)
					f.routes, f.version, f.tells = routes, name, true
					e := connect(t, func(o *Options) { o.Frozen = frozen }, f)
					_, err := e.Logprobs(t.Context(), []int32{1, 2, 3})
					require.NoError(t, err)
					c, err := e.Generate(t.Context(), request(6, 1, 2, 3))
					require.NoError(t, err)
					require.Equal(t, wantTokens(1, request(6, 1, 2, 3)), c.TokenIDs)
					require.Equal(t, []int32{0, 0, 0, 0, 0, 0}, c.Versions)
					require.Contains(t, e.Summary(), fmt.Sprintf("has weights %q", name))
				})
			}
		}
	}
}

// A request that meets a replica which has just come back, and has no weights of this run yet, is asked again: nothing has tokens of version -1.
func TestNoTokenIsOfAReplicaThatIsNotLoaded(t *testing.T) {
	back := []adopted{{0, fresh, -1}, {1, "r@3", 3}}
	for _, spans := range [][]span{nil, {{fresh, 0, 1}}} {
		got, err := reply{ids: []int32{1}, spans: spans}.perToken(back)
		require.ErrorIs(t, err, errLeft)
		require.Nil(t, got)
	}
	got, err := reply{ids: []int32{1}, spans: []span{{"r@3", 0, 1}}}.perToken(back)
	require.NoError(t, err)
	require.Equal(t, []int32{3}, got)
	_, err = reply{ids: []int32{1}, spans: []span{{"r@2", 0, 1}}}.perToken(back)
	var wrong *versionError
	require.ErrorAs(t, err, &wrong)
}

// A server that had another run's weights is started again before this run's first update: the update loads it all the same.
func TestRestartBeforeTheFirstUpdate(t *testing.T) {
	f := newFake(t)
	f.version = "other-1@3"
	e := connect(t, nil, f)
	f.restart()
	r := e.fleet.replicas[0]
	within(t, "the start is noticed and the server serves", func() bool {
		return r.standing.serves(fresh)
	})
	require.NoError(t, e.fleet.isLost())
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	c, err := e.Generate(t.Context(), request(2, 1, 2))
	require.NoError(t, err)
	require.Equal(t, []int32{1, 1}, c.Versions)

	f.set(func() { f.version = "other-1@4" })
	within(t, "a run that takes the server over is one still", func() bool { return e.fleet.isLost() != nil })
}

// Another run's weights are not taken for this run's before its first update either.
func TestAnotherRunBeforeTheFirstUpdate(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	f.set(func() { f.version = "other-1@3" })
	within(t, "it is noticed", func() bool { return e.fleet.isLost() != nil })
	require.ErrorIs(t, e.Update(t.Context(), fakeWeights(t, 2, 1)), engines.ErrForeign)
}

// Weights that only serve must stay what they were: after a start the server has others, and the error says what may have been.
func TestAFrozenServerIsStartedAgain(t *testing.T) {
	f := newFake(t)
	f.version = "other-1@3"
	e := connect(t, func(o *Options) { o.Frozen = true }, f)
	_, err := e.Logprobs(t.Context(), []int32{1, 2, 3})
	require.NoError(t, err)
	f.restart()
	within(t, "it is noticed", func() bool { return e.fleet.isLost() != nil })
	_, err = e.Logprobs(t.Context(), []int32{1, 2, 3})
	require.ErrorIs(t, err, engines.ErrForeign)
	require.ErrorContains(t, err, `has weights "default" now, not "other-1@3": it was started again, or another program changed them`)
	require.NotContains(t, err.Error(), "the server is left to it")

	require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 2, 1)), "never update")
}

// The version in the name of another run's weights says nothing of this run's.
func TestNumbersOfAnotherRunsWeights(t *testing.T) {
	for name, want := range map[string]int32{"other-1@12": 0, "mine-1@12": 12, "12": 12, "default": 0} {
		f := newFake(t)
		f.version = name
		e := connect(t, func(o *Options) { o.Run, o.Frozen = "mine-1", true }, f)
		c, err := e.Generate(t.Context(), request(2, 1, 2))
		require.NoError(t, err)
		require.Equal(t, []int32{want, want}, c.Versions, name)
	}
}

// An adapter is called after its run, and leaves the server's list when the run ends.
func TestAdaptersAreCalledAfterTheirRun(t *testing.T) {
	f := newFake(t)
	f.set(func() { f.routes = append(f.routes, "/v1/unload_lora_adapter") })
	var loaded, unloaded []string
	f.set(func() {
		f.control = func(_ http.ResponseWriter, q *http.Request) bool {
			var body struct {
				Name string `json:"lora_name"`
			}
			if q.URL.Path == "/v1/unload_lora_adapter" {
				require.NoError(t, jsonBody(q, &body))
				f.set(func() { unloaded = append(unloaded, body.Name) })
				return true
			}
			return false
		}
		f.onAdapter = func(name string) { loaded = append(loaded, name) }
	})
	e := connect(t, func(o *Options) { o.Run = "mine-1" }, f)
	require.NoError(t, e.Update(t.Context(), fakeAdapter(t, 11, 1)))
	require.NoError(t, e.Close())
	f.set(func() {
		require.Equal(t, []string{"agentfly-mine-1"}, loaded)
		require.Equal(t, []string{"agentfly-mine-1"}, unloaded)
	})
}

// Two runs on a real vLLM by mistake: the first one notices at its next completion or update, and the server is left to the second.
func TestRealTwoRuns(t *testing.T) {
	for way, folder := range map[Way]string{WayDisk: "a", WayTransfer: "a", WayLoRA: "lora"} {
		t.Run(string(way), func(t *testing.T) {
			quiet := func(o *Options) { o.Way, o.HealthEvery = way, time.Hour }
			first, second := realEngine(t, quiet), realEngine(t, quiet)
			q := request(8, 40, 41, 42, 43)
			for _, e := range []*Engine{first, second} {
				if way == WayLoRA { // on top of the weights that the adapter belongs to
					e.updater.options.Way = WayDisk
					require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 4)))
					e.updater.options.Way = WayLoRA
				}
				require.NoError(t, e.Update(t.Context(), realWeights(t, folder, 5)))
				c, err := e.Generate(t.Context(), q)
				require.NoError(t, err)
				require.Equal(t, []int32{5, 5, 5, 5, 5, 5, 5, 5}, c.Versions)
			}
			_, err := first.Generate(t.Context(), q)
			require.ErrorIs(t, err, engines.ErrForeign)
			require.ErrorContains(t, err, second.options.versionName(5))
			t.Log(err)
			require.ErrorIs(t, first.Update(t.Context(), realWeights(t, folder, 6)), engines.ErrForeign)
			c, err := second.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, int32(5), c.Versions[7])
		})
	}
}

// Another run shows on one replica while an update of the others is under way: it does not bring them back.
func TestALostEngineDoesNotComeBack(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.HealthEvery = time.Hour }, f)
	f.set(func() {
		f.control = func(_ http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path == "/resume" {
				e.fleet.lose(nil, &ForeignError{"other@1", "mine@1"})
			}
			return false
		}
	})
	require.ErrorIs(t, e.Update(t.Context(), fakeWeights(t, 2, 1)), engines.ErrForeign)
	require.Equal(t, "behind", e.states())
	e.fleet.replicas[0].standing.set(serving, nil)
	_, err := e.Generate(t.Context(), request(2, 1, 2))
	require.ErrorIs(t, err, engines.ErrForeign)
}
