package environments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an environment of a test: what it is not told to do it does well.
type world struct {
	step           func(ctx context.Context, a Action) (Result, error)
	reset          func(ctx context.Context, s Start) (Observation, error)
	resets, closed atomic.Int32
	inside         atomic.Int32
	n              int
}

func (w *world) once() func() {
	if w.inside.Add(1) > 1 {
		panic("two methods of the environment are called at once")
	}
	return func() { w.inside.Add(-1) }
}

func (w *world) Reset(ctx context.Context, s Start) (Observation, error) {
	defer w.once()()
	w.resets.Add(1)
	w.n = 0
	if w.reset != nil {
		return w.reset(ctx, s)
	}
	return Text(fmt.Sprint("begin ", s.Seed)), nil
}

func (w *world) Step(ctx context.Context, a Action) (Result, error) {
	defer w.once()()
	w.n++
	if w.step != nil {
		return w.step(ctx, a)
	}
	return Result{Observation: Text(fmt.Sprint(a.Text, a.Name, string(a.Arguments), w.n)), Reward: float64(w.n), Terminated: a.Text == "end"}, nil
}

func (w *world) Close() error { w.closed.Add(1); return nil }

// source makes worlds.
type source struct {
	spec   Spec
	make   func() Environment
	closed atomic.Int32
	mu     sync.Mutex
	made   []Environment
}

func (s *source) Spec() Spec { return s.spec }

func (s *source) New(context.Context, string) (Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.make()
	s.made = append(s.made, e)
	return e, nil
}

func (s *source) Close() error { s.closed.Add(1); return nil }

func worlds(spec Spec, change func(w *world)) *source {
	return &source{spec: spec, make: func() Environment {
		w := new(world)
		if change != nil {
			change(w)
		}
		return w
	}}
}

func (s *source) world(i int) *world {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[i].(*world)
}

// open is a manager whose worlds are all closed once when the test ends.
func open(t *testing.T, s *source, o Options) *Manager {
	t.Helper()
	o.Kind = "test"
	m, err := Open(s, nil, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.EqualValues(t, 1, s.closed.Load(), "the source is closed once")
		for _, e := range s.made {
			if w, ok := e.(*world); ok {
				require.EqualValues(t, 1, w.closed.Load(), "each environment is closed once")
			}
		}
		require.Zero(t, m.Stats().Pool.Lent)
	})
	return m
}

func begin(t *testing.T, m *Manager) *Episode {
	t.Helper()
	e, err := m.Begin(t.Context(), pool.Owner{}, Start{Seed: 7})
	require.NoError(t, err)
	t.Cleanup(e.End)
	return e
}

func failure(t *testing.T, err error, what, text string) {
	t.Helper()
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, what, f.What)
	require.Equal(t, "test", f.Kind)
	require.Contains(t, err.Error(), "environments: test: "+what+": ")
	require.Contains(t, err.Error(), text)
	require.NotContains(t, err.Error(), "\n")
	require.LessOrEqual(t, utf8.RuneCountInString(err.Error()), 700)
}

// An episode has what the reset showed and what the steps gave, and its environment is used again after it.
func TestEpisode(t *testing.T) {
	s := worlds(Spec{}, nil)
	m := open(t, s, Options{})
	for range 3 {
		e := begin(t, m)
		require.Equal(t, Text("begin 7"), e.First())
		require.Equal(t, "begin 7", e.Anchor())
		r, err := e.Step(t.Context(), Action{Text: "a"})
		require.NoError(t, err)
		require.Equal(t, Result{Observation: Text("a1"), Reward: 1, Anchor: "a1"}, r)
		r, err = e.Step(t.Context(), Action{Name: "act", Arguments: json.RawMessage(`{"action":"b"}`)})
		require.NoError(t, err)
		require.Equal(t, Text("b2"), r.Observation)
		r, err = e.Step(t.Context(), Action{Name: "cat", Arguments: json.RawMessage(`{}`)})
		require.NoError(t, err)
		require.Equal(t, Result{Observation: r.Observation, Anchor: "b2", Failure: trajectory.FailurePolicy}, r)
		require.Contains(t, r.Observation[0].Text, `There is no tool "cat" (did you mean "act"?). The tools are: act {"action": string}.`)
		r, err = e.Step(t.Context(), Action{Name: "act", Arguments: json.RawMessage(`{"action":3}`)})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		r, err = e.Step(t.Context(), Action{Text: "end"})
		require.NoError(t, err)
		require.True(t, r.Terminated)
		require.Equal(t, 3.0, r.Reward, "what was refused is no step of the environment")
		r, err = e.Step(t.Context(), Action{Text: "more"})
		require.NoError(t, err)
		require.Equal(t, Result{Observation: Text("The episode is over. No further action is possible."), Anchor: "end3", Terminated: true, Failure: trajectory.FailurePolicy}, r)
		e.End()
		e.End()
		_, err = e.Step(t.Context(), Action{Text: "x"})
		failure(t, err, "step", "has ended")
	}
	require.Len(t, s.made, 1)
	st := m.Stats()
	require.EqualValues(t, []int64{3, 9, 3}, []int64{st.Resets, st.Steps, st.Pool.Leases})
	require.Positive(t, st.StepP99)
	require.GreaterOrEqual(t, st.ResetP99, st.ResetP50)
	require.Empty(t, st.Failures)
	for what, ask := range map[string]func(e *Episode) (bool, error){
		"state":    func(e *Episode) (bool, error) { _, ok, err := e.State(t.Context()); return ok, err },
		"restore":  func(e *Episode) (bool, error) { return e.Restore(t.Context(), Start{}, nil) },
		"score":    func(e *Episode) (bool, error) { _, ok, err := e.Score(t.Context()); return ok, err },
		"actions":  func(e *Episode) (bool, error) { _, ok, err := e.Actions(t.Context()); return ok, err },
		"solution": func(e *Episode) (bool, error) { _, ok, err := e.Solution(t.Context()); return ok, err },
		"call":     func(e *Episode) (bool, error) { _, ok, err := e.Call(t.Context(), "x", nil); return ok, err },
		"fork":     func(e *Episode) (bool, error) { _, ok, err := e.Fork(t.Context()); return ok, err },
	} {
		e := begin(t, m)
		ok, err := ask(e)
		require.NoError(t, err, what)
		require.False(t, ok, what)
		e.End()
	}
}

// The calls of own tools are checked before the environment sees them.
func TestOwnTools(t *testing.T) {
	spec := Spec{Tools: []tools.Spec{{Name: "put", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}`)}, {Name: "done"}}}
	m := open(t, worlds(spec, nil), Options{})
	e := begin(t, m)
	for _, c := range []struct {
		a    Action
		want string
	}{
		{Action{Text: "put 1"}, `An action must be a call of a tool. The tools are: put {"x": integer}, done {}.`},
		{Action{Name: "act", Arguments: json.RawMessage(`{"action":"x"}`)}, `There is no tool "act". The tools are`},
		{Action{Name: "put"}, `put: the argument "x" is missing; the arguments are {"x": integer}`},
		{Action{Name: "put", Arguments: json.RawMessage(`{"x":"one"}`)}, `the arguments are {"x": integer}`},
		{Action{Name: "put", Arguments: json.RawMessage("{\"x\":\xff")}, `the arguments are`},
		{Action{Name: strings.Repeat("\xff", 1<<20)}, `There is no tool`},
	} {
		r, err := e.Step(t.Context(), c.a)
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Contains(t, r.Observation[0].Text, c.want)
		require.True(t, utf8.ValidString(r.Observation[0].Text))
		require.Equal(t, "begin 7", r.Anchor)
	}
	r, err := e.Step(t.Context(), Action{Name: "put", Arguments: json.RawMessage(`{"x":3}`)})
	require.NoError(t, err)
	require.Equal(t, Result{Observation: Text(`put{"x":3}1`), Reward: 1, Anchor: `put{"x":3}1`}, r)
	r, err = e.Step(t.Context(), Action{Name: "done"})
	require.NoError(t, err)
	require.Equal(t, Text(`done{}2`), r.Observation)
}

func TestOpenRefuses(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	for want, c := range map[string]struct {
		s *source
		o Options
	}{
		`its tool "a": schema: `:     {s: worlds(Spec{Tools: []tools.Spec{{Name: "a", Parameters: json.RawMessage(`[]`)}}}, nil)},
		`must have "type": "object"`: {s: worlds(Spec{Tools: []tools.Spec{{Name: "a", Parameters: json.RawMessage(`{}`)}}}, nil)},
		`is there twice`:             {s: worlds(Spec{Tools: []tools.Spec{{Name: "a", Parameters: object}, {Name: "a", Parameters: object}}}, nil)},
		`a name has 1 to 64 letters`: {s: worlds(Spec{Tools: []tools.Spec{{Name: "a b", Parameters: object}}}, nil)},
		`the least is 256`:           {s: worlds(Spec{}, nil), o: Options{MaxText: 9}},
		`must be above 0`:            {s: worlds(Spec{}, nil), o: Options{StepTimeout: -1}},
	} {
		c.o.Kind = "test"
		_, err := Open(c.s, nil, c.o)
		require.ErrorContains(t, err, strings.ReplaceAll(want, "schema: ", "tools: schema: "))
		require.ErrorContains(t, err, "environments: test: ")
		require.EqualValues(t, 1, c.s.closed.Load())
	}
	_, err := Open(nil, nil, Options{})
	require.ErrorContains(t, err, "there is no source")
	_, err = Open(panicking{}, nil, Options{Kind: "test"})
	require.ErrorContains(t, err, "environments: test: its spec panicked: no spec")
}

type panicking struct{ Source }

func (panicking) Spec() Spec { panic("no spec") }

// What an environment does wrong is a failure of one line, after which it is closed and replaced.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		step       func(ctx context.Context, a Action) (Result, error)
		reset      func(ctx context.Context, s Start) (Observation, error)
		what, want string
	}{
		"error": {step: func(context.Context, Action) (Result, error) {
			return Result{}, errors.New("pipe\nbroken\xff" + strings.Repeat("x", 1<<20))
		}, what: "step", want: "pipe broken\uFFFDxxx"},
		"panic": {step: func(context.Context, Action) (Result, error) { panic("boom") }, what: "step", want: "step of test panicked: boom, at "},
		"NaN":   {step: func(context.Context, Action) (Result, error) { return Result{Reward: math.NaN()}, nil }, what: "step", want: "the reward is NaN, and a reward must be finite"},
		"Inf":   {step: func(context.Context, Action) (Result, error) { return Result{Reward: math.Inf(-1)}, nil }, what: "step", want: "the reward is -Inf"},
		"infrastructure": {step: func(context.Context, Action) (Result, error) {
			return Result{Failure: trajectory.FailureInfrastructure, Observation: Text("disk full")}, nil
		}, what: "step", want: "disk full"},
		"part": {step: func(context.Context, Action) (Result, error) {
			return Result{Observation: Observation{{Type: "sound"}}}, nil
		}, what: "step", want: `"sound"`},
		"parts": {step: func(context.Context, Action) (Result, error) {
			return Result{Observation: make(Observation, 1<<20)}, nil
		}, what: "step", want: "1048576 parts"},
		"image": {step: func(context.Context, Action) (Result, error) {
			return Result{Observation: Observation{{Type: "image", Image: strings.Repeat("x", 33<<20)}}}, nil
		}, what: "step", want: "image has 34603008 bytes"},
		"reset":       {reset: func(context.Context, Start) (Observation, error) { return nil, errors.New("no such level") }, what: "reset", want: "no such level"},
		"reset panic": {reset: func(context.Context, Start) (Observation, error) { panic("boom") }, what: "reset", want: "reset of test panicked: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			s := worlds(Spec{}, func(w *world) {
				if first {
					w.step, w.reset = c.step, c.reset
				}
				first = false
			})
			m := open(t, s, Options{})
			e, err := m.Begin(t.Context(), pool.Owner{}, Start{})
			if err == nil {
				_, err = e.Step(t.Context(), Action{})
				_, again := e.Step(t.Context(), Action{})
				require.Equal(t, err, again, "it stays broken")
				require.Eventually(t, func() bool { return s.world(0).closed.Load() == 1 }, 10*time.Second, time.Millisecond, "before End")
				e.End()
			}
			failure(t, err, c.what, c.want)
			require.Equal(t, map[string]int64{c.what: 1}, m.Stats().Failures)
			e = begin(t, m)
			_, err = e.Step(t.Context(), Action{})
			require.NoError(t, err)
			require.Len(t, s.made, 2)
			require.EqualValues(t, 1, m.Stats().Pool.Broken)
		})
	}
}

// A call that does not return is left behind at its deadline. Its environment is closed: one that is a process at once, what hangs here when it returns.
func TestHang(t *testing.T) {
	for _, here := range []bool{false, true} {
		for _, what := range []string{"reset", "step"} {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan struct{})
				hang := func(context.Context) { <-gone } // deaf to ctx
				first := true
				s := worlds(Spec{InProcess: here}, func(w *world) {
					if first && what == "reset" {
						w.reset = func(ctx context.Context, _ Start) (Observation, error) { hang(ctx); return nil, nil }
					} else if first {
						w.step = func(ctx context.Context, _ Action) (Result, error) { hang(ctx); return Result{}, nil }
					}
					first = false
				})
				m, err := Open(s, nil, Options{Kind: "test", StepTimeout: 2 * time.Second, ResetTimeout: 2 * time.Second})
				require.NoError(t, err)
				began := time.Now()
				e, err := m.Begin(t.Context(), pool.Owner{}, Start{})
				if what == "step" {
					require.NoError(t, err)
					_, err = e.Step(t.Context(), Action{})
				}
				require.Equal(t, 2*time.Second, time.Since(began))
				failure(t, err, what, "did not return within 2s, and the environment was closed; give it longer with "+what+"_timeout")
				e2, err := m.Begin(t.Context(), pool.Owner{}, Start{})
				require.NoError(t, err)
				e2.End()
				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Equal(t, !here, s.world(0).closed.Load() == 1)
				if here {
					require.ErrorContains(t, m.Close(), "still runs")
				}
				close(gone)
				synctest.Wait()
				require.EqualValues(t, 1, s.world(0).closed.Load())
				if !here {
					require.NoError(t, m.Close())
				}
			})
		}
	}
}

// A cancelled call returns at once and is no failure that counts; the environment is closed, because nobody knows what state it is in.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := worlds(Spec{}, func(w *world) {
			w.step = func(ctx context.Context, _ Action) (Result, error) {
				<-ctx.Done()
				return Result{}, errors.New("killed")
			}
		})
		m := open(t, s, Options{})
		e := begin(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := e.Step(ctx, Action{})
		failure(t, err, "step", "context canceled")
		require.ErrorIs(t, err, context.Canceled)
		e.End()

		e = begin(t, m)
		time.AfterFunc(time.Second, e.End) // in the middle of the step
		_, err = e.Step(t.Context(), Action{})
		failure(t, err, "step", "the episode was ended meanwhile")
		synctest.Wait()
		require.EqualValues(t, 1, s.world(1).closed.Load())

		_, err = m.Begin(ctx, pool.Owner{}, Start{})
		require.ErrorIs(t, err, context.Canceled)
		failure(t, err, "lease", "context canceled")
		st := m.Stats()
		require.Empty(t, st.Failures)
		require.EqualValues(t, 3, st.GivenUp)
		require.EqualValues(t, 2, st.Pool.Replaced)
		require.Zero(t, st.Pool.Broken)

		for range 20 { // what trajectories that are cancelled do to their environments does not open the breaker
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			e := begin(t, m)
			_, err = e.Step(ctx, Action{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			e.End()
			synctest.Wait()
		}
	})
}

// A lease lives as long as the context of its episode, however long nothing is asked, and ends by itself after it.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := worlds(Spec{}, nil)
		m := open(t, s, Options{Pool: pool.Options{Lease: 10 * time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		e, err := m.Begin(ctx, pool.Owner{}, Start{})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		_, err = e.Step(t.Context(), Action{Text: "a"})
		require.NoError(t, err)
		cancel()
		time.Sleep(2 * time.Second)
		_, err = e.Step(t.Context(), Action{Text: "a"})
		require.NoError(t, err, "for its state and score")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Zero(t, m.Stats().Pool.Lent)
		_, err = e.Step(t.Context(), Action{Text: "a"})
		failure(t, err, "step", "has ended")
		e.End()

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		e, err = m.Begin(ctx, pool.Owner{}, Start{})
		require.NoError(t, err)
		e.tenure.mu.Lock()
		e.tenure.silent = true // as if nobody beat for it
		e.tenure.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Zero(t, m.Stats().Pool.Lent)
		require.EqualValues(t, 1, m.Stats().Pool.Ended)
		_, err = e.Step(t.Context(), Action{Text: "a"})
		failure(t, err, "lease", "the lease ended")
		e.End()
	})
}

// Texts are mended and cut in the middle, with a marker that says how many bytes are left out.
func TestObservationsAreBounded(t *testing.T) {
	var o Observation
	s := worlds(Spec{}, func(w *world) {
		w.step = func(context.Context, Action) (Result, error) { return Result{Observation: o}, nil }
	})
	m := open(t, s, Options{MaxText: 1000})
	e := begin(t, m)
	look := func(parts Observation) Observation {
		o = parts
		r, err := e.Step(t.Context(), Action{})
		require.NoError(t, err)
		return r.Observation
	}
	require.Equal(t, Text("a\uFFFDb"), look(Text("a\xff\xfeb")))
	require.Equal(t, Text(strings.Repeat("x", 1000)), look(Text(strings.Repeat("x", 1000))))
	require.Zero(t, m.Stats().Cut)
	got := look(Text("HEAD" + strings.Repeat("é", 25<<20) + "TAIL"))[0].Text
	require.LessOrEqual(t, len(got), 1000)
	require.Greater(t, len(got), 950)
	require.True(t, utf8.ValidString(got))
	require.True(t, strings.HasPrefix(got, "HEADé") && strings.HasSuffix(got, "éTAIL"))
	var out int
	_, after, _ := strings.Cut(got, "\n[")
	_, err := fmt.Sscanf(after, "%d bytes left out]", &out)
	require.NoError(t, err)
	require.Equal(t, 8+50<<20, len(got)-len(marker(out))+out)

	image := trajectory.Part{Type: "image", Image: "data:x"}
	parts := look(Observation{{Type: "text", Text: "first"}, image, {Type: "text", Text: strings.Repeat("y", 2000)}, {Type: "text", Text: strings.Repeat("z", 500)}, image})
	require.Len(t, parts, 5)
	require.Equal(t, "first", parts[0].Text)
	require.Equal(t, image, parts[1])
	require.Contains(t, parts[2].Text, "bytes left out")
	require.Equal(t, image, parts[3])
	require.Equal(t, marker(500), parts[4].Text)
	total := 0
	for _, p := range parts {
		total += len(p.Text)
	}
	require.LessOrEqual(t, total, 1000)
	require.EqualValues(t, 2, m.Stats().Cut)
	require.Len(t, look(make(Observation, 0)), 0)
	a := e.Anchor()
	look(Text(strings.Repeat("q", 500)))
	require.Len(t, e.Anchor(), 32)
	require.NotEqual(t, a, e.Anchor())
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("no") }

// An info that cannot be recorded is dropped, and said once.
func TestInfo(t *testing.T) {
	var info map[string]any
	s := worlds(Spec{}, func(w *world) {
		w.step = func(context.Context, Action) (Result, error) { return Result{Info: info}, nil }
	})
	var notes []string
	m := open(t, s, Options{Note: func(text string) { notes = append(notes, text) }})
	e := begin(t, m)
	cycle := map[string]any{}
	cycle["me"] = cycle
	for _, bad := range []map[string]any{{"x": math.NaN()}, {"x": func() {}}, {"x": explosive{}}, {"x": strings.Repeat("a", 1<<20)}, cycle} {
		info = bad
		r, err := e.Step(t.Context(), Action{})
		require.NoError(t, err)
		require.Nil(t, r.Info)
	}
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "environment test: the info of a step cannot be recorded")
	require.EqualValues(t, 5, m.Stats().Dropped)
	info = map[string]any{"won": true}
	r, err := e.Step(t.Context(), Action{})
	require.NoError(t, err)
	info["won"] = false
	require.Equal(t, map[string]any{"won": true}, r.Info)
}

// Steps of one episode that are asked at once wait for each other; episodes run side by side, and every lease is given back.
func TestManyAtOnce(t *testing.T) {
	s := worlds(Spec{}, func(w *world) {
		w.step = func(context.Context, Action) (Result, error) { time.Sleep(50 * time.Microsecond); return Result{}, nil }
	})
	m := open(t, s, Options{Pool: pool.Options{Size: 4, Lease: time.Second}})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			e, err := m.Begin(t.Context(), pool.Owner{Name: fmt.Sprint(i)}, Start{})
			if err != nil {
				t.Error(err)
				return
			}
			defer e.End()
			var steps sync.WaitGroup
			for range 4 {
				steps.Go(func() {
					if _, err := e.Step(t.Context(), Action{}); err != nil {
						t.Error(err)
					}
				})
			}
			steps.Wait()
			if i%10 == 0 {
				go func() { _, _ = e.Step(t.Context(), Action{}) }()
			}
		})
	}
	all.Wait()
	require.Zero(t, m.Stats().Pool.Lent)
	require.EqualValues(t, 100, m.Stats().Pool.Leases)
}

// An environment that is good for one episode is closed after it.
func TestOnce(t *testing.T) {
	s := worlds(Spec{Once: true}, nil)
	m := open(t, s, Options{})
	for i := range 3 {
		e := begin(t, m)
		e.End()
		require.Eventually(t, func() bool { return s.world(i).closed.Load() == 1 }, 10*time.Second, time.Millisecond)
	}
	require.Len(t, s.made, 3)
	require.Zero(t, m.Stats().Pool.Broken)
}

// able is a world with all powers.
type able struct {
	*world
	score float64
	list  error
}

func (a *able) State(context.Context) (json.RawMessage, error) { return json.Marshal(a.n) }
func (a *able) Restore(_ context.Context, state json.RawMessage) error {
	return json.Unmarshal(state, &a.n)
}

func (a *able) Fork(context.Context) (Environment, error) {
	return &able{world: &world{n: a.n}, score: a.score}, nil
}
func (a *able) Score(context.Context) (float64, error)     { return a.score, nil }
func (a *able) Actions(context.Context) ([]string, error)  { return []string{"a"}, a.list }
func (a *able) Solution(context.Context) ([]Action, error) { return []Action{{Text: "end"}}, nil }
func (a *able) Call(_ context.Context, method string, arguments json.RawMessage) (json.RawMessage, error) {
	return arguments, nil
}

// An action that is refused, by the environment or before it, changes nothing: not the success that an episode has reached without ending either.
func TestARefusedActionLeavesTheSuccess(t *testing.T) {
	s := &source{make: func() Environment {
		return &world{step: func(_ context.Context, a Action) (Result, error) {
			if a.Text == "junk" {
				return Result{Observation: Text("no"), Failure: trajectory.FailurePolicy}, nil
			}
			return Result{Observation: Text("there"), Success: a.Text == "reach", Terminated: a.Text == "end"}, nil
		}}
	}}
	e := begin(t, open(t, s, Options{}))
	for _, c := range []struct {
		action Action
		want   bool
	}{
		{Action{Text: "junk"}, false},
		{Action{Text: "reach"}, true},
		{Action{Text: "junk"}, true},
		{Action{Name: "no_tool"}, true},
		{Action{Text: "leave"}, false},
		{Action{Text: "junk"}, false},
		{Action{Text: "reach"}, true},
		{Action{Text: "end"}, false},
		{Action{Text: "more"}, false},
	} {
		r, err := e.Step(t.Context(), c.action)
		require.NoError(t, err)
		require.Equal(t, c.want, r.Success, "%v", c.action)
	}
}

// An episode that is restored at its end ended as it did: by its goal, or by a limit. One that an older program kept says only that it is over.
func TestRestoredAtTheEnd(t *testing.T) {
	over := [2]bool{}
	s := &source{spec: Spec{Deterministic: true}, make: func() Environment {
		return &able{world: &world{step: func(context.Context, Action) (Result, error) {
			return Result{Observation: Text("x"), Terminated: over[0], Truncated: over[1]}, nil
		}}}
	}}
	m := open(t, s, Options{})
	again := func(state json.RawMessage) [2]bool {
		e := begin(t, m)
		defer e.End()
		_, err := e.Restore(t.Context(), Start{Seed: 7}, state)
		require.NoError(t, err)
		r, err := e.Step(t.Context(), Action{Text: "a"})
		require.NoError(t, err)
		require.Contains(t, TextOf(r.Observation), "The episode is over")
		return [2]bool{r.Terminated, r.Truncated}
	}
	for _, over = range [][2]bool{{true, false}, {false, true}} {
		e := begin(t, m)
		_, err := e.Step(t.Context(), Action{Text: "a"})
		require.NoError(t, err)
		state, _, err := e.State(t.Context())
		require.NoError(t, err)
		e.End()
		require.Equal(t, over, again(state))
	}
	require.Equal(t, [2]bool{true, false}, again(json.RawMessage(`{"state":1,"anchor":"x","over":true}`)))
}

func TestPowers(t *testing.T) {
	var last *able
	s := &source{spec: Spec{Deterministic: true}, make: func() Environment { last = &able{world: new(world), score: 0.5}; return last }}
	m := open(t, s, Options{})
	e := begin(t, m)
	actions := []Action{{Text: "a"}, {Text: "b"}}
	var results []Result
	for _, a := range actions {
		r, err := e.Step(t.Context(), a)
		require.NoError(t, err)
		results = append(results, r)
	}
	state, ok, err := e.State(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.JSONEq(t, `{"state":2,"anchor":"b2"}`, string(state))

	other, ok, err := e.Fork(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "b2", other.Anchor())
	for i := range 2 {
		r, err := other.Step(t.Context(), Action{Text: "c"})
		require.NoError(t, err)
		require.Equal(t, Text(fmt.Sprint("c", 3+i)), r.Observation)
	}
	r, err := e.Step(t.Context(), Action{Text: "d"})
	require.NoError(t, err)
	require.Equal(t, Text("d3"), r.Observation)
	forked := other.tenure.mem.env.(*able)
	other.End()
	other.End()
	require.Eventually(t, func() bool { return forked.closed.Load() == 1 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 0, last.closed.Load())

	score, ok, err := e.Score(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 0.5, score)
	list, ok, err := e.Actions(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{"a"}, list)
	solution, _, err := e.Solution(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Action{{Text: "end"}}, solution)
	answer, ok, err := e.Call(t.Context(), "x", json.RawMessage(`{"a":1}`))
	require.NoError(t, err)
	require.True(t, ok)
	require.JSONEq(t, `{"a":1}`, string(answer))

	// restored in another episode, also where that did something else before
	e.End()
	e = begin(t, m)
	before := last.resets.Load()
	ok, err = e.Restore(t.Context(), Start{Seed: 7}, state)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, before, last.resets.Load(), "it was just reset")
	require.Equal(t, "b2", e.Anchor())
	r, err = e.Step(t.Context(), Action{Text: "d"})
	require.NoError(t, err)
	require.Equal(t, Text("d3"), r.Observation)
	_, err = e.Restore(t.Context(), Start{Seed: 7}, state)
	require.NoError(t, err)
	require.Equal(t, before+1, last.resets.Load())
	_, err = e.Restore(t.Context(), Start{Seed: 7}, json.RawMessage(`[]`))
	failure(t, err, "restore", "no state that an episode kept")

	// replayed
	require.NoError(t, e.Replay(t.Context(), actions, results))
	require.Equal(t, "b2", e.Anchor())
	wrong := append([]Result(nil), results...)
	wrong[1].Reward = 9
	require.EqualError(t, e.Replay(t.Context(), actions, wrong), "environments: test: replay: step 2: the reward is 2, and 9 was recorded")
	wrong[0].Observation = Text("z")
	require.EqualError(t, e.Replay(t.Context(), actions, wrong), `environments: test: replay: step 1: the observation is "a1", and "z" was recorded`)
	require.ErrorContains(t, e.Replay(t.Context(), nil, results), "0 actions and 2 recorded results")

	last.score = math.Inf(1)
	_, _, err = e.Score(t.Context())
	failure(t, err, "score", "must be finite")
	e.End()
	e = begin(t, m)
	last.list = errors.New("gone")
	_, _, err = e.Actions(t.Context())
	failure(t, err, "actions", "gone")
	_, err = e.Step(t.Context(), Action{})
	failure(t, err, "actions", "gone")
	e.End()

	m2 := open(t, worlds(Spec{}, nil), Options{})
	require.ErrorContains(t, begin(t, m2).Replay(t.Context(), nil, nil), "not deterministic")
}

// sweeper is a source that left something behind.
type sweeper struct {
	*source
	err error
}

func (s *sweeper) Sweep(_ context.Context, owner string) ([]string, error) {
	return []string{owner + "-1", owner + "-2"}, s.err
}

func TestSweep(t *testing.T) {
	var notes []string
	m, err := Open(&sweeper{worlds(Spec{}, nil), errors.New("locked")}, nil, Options{Kind: "test", Owner: "run", Note: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	require.Equal(t, []string{
		"environment test: removed what an earlier start left behind: run-1, run-2",
		"environment test: what an earlier start left behind cannot be removed: locked",
	}, notes)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = m.Begin(t.Context(), pool.Owner{}, Start{})
	failure(t, err, "lease", "closed")
}

// Close ends the episodes that run, in the middle of a step too.
func TestCloseEndsEpisodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := worlds(Spec{}, func(w *world) {
			w.step = func(ctx context.Context, _ Action) (Result, error) { <-ctx.Done(); return Result{}, ctx.Err() }
		})
		m := open(t, s, Options{Pool: pool.Options{Size: 2}})
		a, b := begin(t, m), begin(t, m)
		failed := make(chan error)
		go func() { _, err := a.Step(t.Context(), Action{}); failed <- err }()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- m.Close() }()
		failure(t, <-failed, "step", "ended meanwhile")
		require.NoError(t, <-done)
		_, err := b.Step(t.Context(), Action{})
		failure(t, err, "step", "has ended")
	})
}

func TestMakeFails(t *testing.T) {
	for want, make := range map[string]func() Environment{
		"its New returned no environment": func() Environment { return nil },
		"its New panicked: boom":          func() Environment { panic("boom") },
	} {
		m, err := Open(&source{make: make}, nil, Options{Kind: "test"})
		require.NoError(t, err)
		_, err = m.Begin(t.Context(), pool.Owner{}, Start{})
		failure(t, err, "lease", want)
		require.Equal(t, map[string]int64{"lease": 1}, m.Stats().Failures)
		require.NoError(t, m.Close())
	}
}

// A field that the environment knows is read, whoever else reads it; one that it does not know is an error, unless data, rewards or the job read it.
func TestDecodeTask(t *testing.T) {
	var into struct {
		Level int `json:"level"`
	}
	require.NoError(t, DecodeTask(Start{Task: trajectory.Task{Fields: map[string]any{"level": 3, "answer": "x", "seed": 1}}}, []string{"level"}, &into))
	require.Equal(t, 3, into.Level)
	both := Start{Task: trajectory.Task{Fields: map[string]any{"level": 4, "kind": "x", "gold": "y"}}, Data: []string{"gold"}, Job: []string{"level", "kind"}}
	require.NoError(t, DecodeTask(both, []string{"level"}, &into))
	require.Equal(t, 4, into.Level)
	both.Job = both.Job[:1]
	require.ErrorContains(t, DecodeTask(both, []string{"level"}, &into), `the environment knows no field "kind"`)
	require.ErrorContains(t, DecodeTask(Start{Task: trajectory.Task{ID: "a", Fields: map[string]any{"levle": 3}}}, []string{"level"}, &into), `the environment knows no field "levle" (did you mean "level"?)`)
	require.ErrorContains(t, DecodeTask(Start{Task: trajectory.Task{ID: "a", Fields: map[string]any{"level": "x"}}}, []string{"level"}, &into), `the parameter level must be of type int, got a string`)
}

func TestQuantiles(t *testing.T) {
	var c pool.Durations
	require.Zero(t, c.Quantile(0.5))
	for i := range 1000 {
		c.Add(time.Duration(i+1) * time.Millisecond)
	}
	require.InEpsilon(t, 500*time.Millisecond, c.Quantile(0.5), 0.1)
	require.InEpsilon(t, 990*time.Millisecond, c.Quantile(0.99), 0.1)
	c.Add(0)
	c.Add(math.MaxInt64)
}

// The manager's own share of an episode without steps.
func BenchmarkLease(b *testing.B) {
	m, err := Open(worlds(Spec{InProcess: true}, nil), nil, Options{Pool: pool.Options{Lease: time.Minute}})
	require.NoError(b, err)
	for b.Loop() {
		e, err := m.Begin(b.Context(), pool.Owner{}, Start{})
		if err != nil {
			b.Fatal(err)
		}
		e.End()
	}
	require.NoError(b, m.Close())
}

// One bad task of eight fails its own group's trajectories and no other's: the environments that refuse it stay in their pool, and the breaker closed.
// The failure says that it is the task's.
func TestWrongTask(t *testing.T) {
	s := worlds(Spec{}, func(w *world) {
		w.reset = func(_ context.Context, s Start) (Observation, error) {
			var fields struct{}
			if err := DecodeTask(s, []string{"level"}, &fields); err != nil {
				return nil, err
			}
			return Text("begin"), nil
		}
	})
	m := open(t, s, Options{Pool: pool.Options{Size: 2}})
	var mu sync.Mutex
	failed := map[string][]error{}
	var all sync.WaitGroup
	for task := range 8 {
		start := Start{Task: trajectory.Task{ID: fmt.Sprint("t", task)}}
		if task == 3 {
			start.Task.Fields = map[string]any{"levle": 1}
		}
		for n := range 8 {
			all.Go(func() {
				e, err := m.Begin(t.Context(), pool.Owner{Name: fmt.Sprint(task, "/", n), Group: start.Task.ID}, start)
				if err == nil {
					_, err = e.Step(t.Context(), Action{Text: "end"})
					e.End()
				}
				if err != nil {
					mu.Lock()
					failed[start.Task.ID] = append(failed[start.Task.ID], err)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	require.Len(t, failed, 1)
	require.Len(t, failed["t3"], 8)
	for _, err := range failed["t3"] {
		failure(t, err, "reset", `the task "t3" is at fault, not the environment: the environment knows no field "levle" (did you mean "level"?)`)
		var wrong *TaskError
		require.ErrorAs(t, err, &wrong)
	}
	st := m.Stats()
	require.LessOrEqual(t, len(s.made), 2, "no environment was replaced")
	require.Equal(t, []int64{0, 0, 8}, []int64{st.Pool.Broken, st.Pool.Replaced, st.Refused})
	require.Empty(t, st.Failures)
}

// A run whose environments cannot be made learns when the next is tried: whoever retries an episode waits for that.
func TestOpenBreakerSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		s := worlds(Spec{}, nil)
		good := s.make
		s.make = func() Environment {
			if made++; made <= 2 {
				panic("no room")
			}
			return good()
		}
		m := open(t, s, Options{Pool: pool.Options{Breaker: 2, Cool: 10 * time.Second}})
		for _, want := range []time.Duration{10 * time.Second, 7 * time.Second} {
			_, err := m.Begin(t.Context(), pool.Owner{}, Start{})
			var open *pool.OpenError
			require.ErrorAs(t, err, &open)
			require.Equal(t, want, open.Retry)
			time.Sleep(3 * time.Second)
		}
		time.Sleep(4 * time.Second)
		begin(t, m).End()
	})
}

// An action that was not possible leaves the state's name as it was, where the environment gives none: its error text names no state.
func TestRefusedActionKeepsAnchor(t *testing.T) {
	e := begin(t, open(t, worlds(Spec{}, func(w *world) {
		w.step = func(_ context.Context, a Action) (Result, error) {
			if a.Text == "named" {
				return Result{Observation: Text("no"), Anchor: "here", Failure: trajectory.FailurePolicy}, nil
			}
			return Result{Observation: Text("no"), Failure: trajectory.FailurePolicy}, nil
		}
	}), Options{}))
	r, err := e.Step(t.Context(), Action{Text: "dance"})
	require.NoError(t, err)
	require.Equal(t, "begin 7", r.Anchor)
	require.Equal(t, "begin 7", e.Anchor())
	r, err = e.Step(t.Context(), Action{Text: "named"})
	require.NoError(t, err)
	require.Equal(t, "here", r.Anchor)
}

// Success of an environment by others is what its info says, never a guess from its rewards: a CartPole that falls has a last reward of 1.
func TestSucceeded(t *testing.T) {
	for _, c := range []struct {
		info map[string]any
		want bool
	}{
		{nil, false},
		{map[string]any{"success": true}, true},
		{map[string]any{"is_success": 1.0}, true},
		{map[string]any{"is_success": 0.0}, false},
		{map[string]any{"won": false, "solved": true}, false},
		{map[string]any{"solved": true}, true},
		{map[string]any{"success": "yes"}, false},
	} {
		require.Equal(t, c.want, Succeeded(Result{Terminated: true, Reward: 1, Info: c.info}), "%v", c.info)
	}
}

// slow makes environments that are there when nobody waits for them any longer, or a moment before.
type slow struct{ *source }

func (s slow) New(ctx context.Context, owner string) (Environment, error) {
	for ctx.Err() == nil { // what waits for ctx is awake later
	}
	return s.source.New(ctx, owner)
}

// An environment that is made in the moment of its deadline is closed, or taken.
func TestMadeAtTheDeadline(t *testing.T) {
	s := worlds(Spec{}, nil)
	b := Bound(slow{s}, Options{Kind: "test", ResetTimeout: time.Millisecond})
	for i := range 300 {
		_, err := b.New(t.Context(), "test")
		require.ErrorContains(t, err, "it did not return within 1ms")
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.made) == i+1 && s.made[i].(*world).closed.Load() == 1
		}, 5*time.Second, time.Millisecond, "the environment %d is left open", i)
	}
}
