// Package environmenttest is the conformance suite of environments: [Run] holds every kind to what package environments promises of it, with a subtest
// for each promise. An optional power that an environment lacks, and determinism that it does not claim, are not asked for.
package environmenttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/trajectory"
)

// Case is a kind of environment with one configuration.
type Case struct {
	Source  func(t testing.TB) environments.Source // makes one, which the suite closes; it is called for each promise
	Starts  []environments.Start                   // of episodes where the source has no tasks of its own; two or more that differ
	Actions []environments.Action                  // that are possible from each start in this order, where the environment neither solves nor chooses
	Tasks   int                                    // of each split that are looked at; 20
	TooMany int                                    // tasks of a split, more than there are: an error; 0: the source has no end
	Full    float64                                // what the rewards of a solution add up to, or its score; 0 is 1
	Random  int                                    // episodes of the random policy; 20
	Steps   int                                    // of an episode at most; 50
	Kill    func(e environments.Environment) error // kills the process or server of an environment; nil: it has none
	Reset   time.Duration                          // deadline of a reset; a minute

	NoSuccess bool // the kind does not know whether the goal of its task is reached
	Loose     bool // the list of possible actions is of another hand, and holds some that are not
	Parallel  bool // the promises are checked side by side, as many at once as `go test -parallel` says: for sources whose start takes long

	late time.Duration // beyond the deadline of a reset, after which a cancelled step is called deaf; 10 s
}

// promise is one that the suite checks. An error says what does not hold.
type promise struct {
	name string
	hold func(t testing.TB, c Case) error

	alone bool // it looks at the whole process, in which nothing else may run meanwhile
}

var promises = []promise{
	{name: "reset", hold: resetShows},
	{name: "exits", hold: exits},
	{name: "deterministic", hold: deterministic},
	{name: "bad_actions", hold: badActions},
	{name: "over", hold: afterTheEnd},
	{name: "unknown_fields", hold: unknownFields},
	{name: "cancel", hold: cancelled},
	{name: "two_at_once", hold: twoAtOnce},
	{name: "state", hold: stateRoundTrip},
	{name: "fork", hold: forks},
	{name: "tasks", hold: taskList},
	{name: "goroutines", hold: goroutines, alone: true},
	{name: "solution", hold: solutions},
	{name: "random", hold: randomPolicy},
}

// Run checks all promises.
func Run(t *testing.T, c Case) {
	c = c.filled()
	check := func(t *testing.T, p promise) {
		t.Run(p.name, func(t *testing.T) {
			if c.Parallel && !p.alone {
				t.Parallel()
			}
			if err := p.hold(t, c); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("promises", func(t *testing.T) { // returns when all of them were checked
		for _, p := range promises {
			if !p.alone {
				check(t, p)
			}
		}
	})
	for _, p := range promises {
		if p.alone {
			check(t, p)
		}
	}
}

func (c Case) filled() Case {
	or := func(v *int, by int) {
		if *v == 0 {
			*v = by
		}
	}
	or(&c.Tasks, 20)
	or(&c.Random, 20)
	or(&c.Steps, 50)
	if c.Full == 0 {
		c.Full = 1
	}
	if c.Reset == 0 {
		c.Reset = time.Minute
	}
	if c.late == 0 {
		c.late = 10 * time.Second
	}
	return c
}

const most = 5 * time.Minute // for one promise

// starts are those of the case, or of the source's tasks.
func (c Case) starts(s environments.Source, split string, n int) ([]environments.Start, error) {
	tasker, ok := s.(environments.Tasker)
	if !ok {
		if len(c.Starts) < 2 {
			return nil, errors.New("the source has no tasks of its own, and the case names fewer than two starts")
		}
		return c.Starts[:min(n, len(c.Starts))], nil
	}
	tasks, err := tasker.Tasks(split, n)
	if err != nil {
		return nil, err
	}
	if len(tasks) != n {
		return nil, fmt.Errorf("Tasks(%s, %d) gave %d tasks", split, n, len(tasks))
	}
	out := make([]environments.Start, n)
	for i, t := range tasks {
		out[i] = environments.Start{Task: t, Seed: int64(1000 + i)}
	}
	return out, nil
}

// stage is a manager over a source, and two starts.
type stage struct {
	ctx    context.Context
	source environments.Source
	m      *environments.Manager
	a, b   environments.Start
}

// set opens a stage. change may wrap the source; the manager closes it when the promise was checked, and an error of that counts.
func (c Case) set(t testing.TB, change func(environments.Source) environments.Source, f func(s *stage) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	source := c.Source(t)
	starts, err := c.starts(source, environments.Train, 2)
	if err != nil {
		return errors.Join(err, source.Close())
	}
	if change != nil {
		source = change(source)
	}
	m, err := environments.Open(source, nil, environments.Options{
		Kind: "test", Owner: "environmenttest", ResetTimeout: c.Reset, Pool: pool.Options{Size: 3, MakeTime: c.Reset}, Note: func(text string) { t.Log(text) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := m.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", closeErr))
		}
	}()
	return f(&stage{ctx, source, m, starts[0], starts[1]})
}

func (s *stage) begin(start environments.Start) (*environments.Episode, error) {
	return s.m.Begin(s.ctx, pool.Owner{Name: "test"}, start)
}

// seen is one turn of an episode as the agent and the records see it.
type seen struct {
	Text    string
	Reward  float64
	Anchor  string
	Ends    [2]bool
	Success bool
}

func see(r environments.Result) seen {
	return seen{text(r.Observation), r.Reward, r.Anchor, [2]bool{r.Terminated, r.Truncated}, r.Success}
}

func text(o environments.Observation) (out string) {
	for _, p := range o {
		out += p.Text + p.Image
	}
	return out
}

// script are actions that are possible from the start of an episode: a solution, else those of a seeded walk over what is possible, else the case's.
func (c Case) script(ctx context.Context, e *environments.Episode) ([]environments.Action, error) {
	list, ok, err := e.Solution(ctx)
	if ok || err != nil {
		return list, err
	}
	if len(c.Actions) > 0 {
		return c.Actions, nil
	}
	return nil, errors.New("the environment knows no solution, and the case names no actions")
}

// play begins an episode and acts. It stops at its end.
func (s *stage) play(c Case, start environments.Start, actions []environments.Action) (out []seen, err error) {
	e, err := s.begin(start)
	if err != nil {
		return nil, err
	}
	defer e.End()
	if actions == nil {
		if actions, err = c.script(s.ctx, e); err != nil {
			return nil, err
		}
	}
	return follow(s.ctx, e, actions)
}

// follow acts, and gives what is seen from First on.
func follow(ctx context.Context, e *environments.Episode, actions []environments.Action) ([]seen, error) {
	out := []seen{{Text: text(e.First()), Anchor: e.Anchor()}}
	for i, a := range actions {
		r, err := e.Step(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		out = append(out, see(r))
		if r.Over() {
			break
		}
	}
	return out, nil
}

func same(what string, want, got []seen) error {
	for i := range want {
		if i >= len(got) {
			break
		}
		if !reflect.DeepEqual(want[i], got[i]) {
			return fmt.Errorf("%s: step %d differs:\n%+v\n%+v", what, i, want[i], got[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d steps against %d", what, len(want), len(got))
	}
	return nil
}

// resetShows: what the reset returns is not empty and is what the episode begins with.
func resetShows(t testing.TB, c Case) error {
	var shown string
	spy := func(s environments.Source) environments.Source {
		return &watched{Source: s, reset: func(o environments.Observation) { shown = text(o) }}
	}
	return c.set(t, spy, func(s *stage) error {
		e, err := s.begin(s.a)
		if err != nil {
			return err
		}
		defer e.End()
		if text(e.First()) == "" {
			return errors.New("the observation of the reset is empty: an agent would see nothing")
		}
		if len(shown) <= 64<<10 && text(e.First()) != shown {
			return fmt.Errorf("the reset showed %q and the episode begins with %q", shown, text(e.First()))
		}
		return nil
	})
}

// deterministic: same start and actions, same episode, on another environment and on one that played something else before.
func deterministic(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		if !s.m.Spec().Deterministic {
			t.Log("the environment does not say that it is deterministic")
			return nil
		}
		want, err := s.play(c, s.a, nil)
		if err != nil {
			return err
		}
		if _, err = s.play(c, s.b, nil); err != nil {
			return err
		}
		again, err := s.play(c, s.a, nil)
		if err != nil {
			return err
		}
		if err := same("an episode after another one", want, again); err != nil {
			return err
		}
		return c.set(t, nil, func(s *stage) error {
			fresh, err := s.play(c, s.a, nil)
			if err != nil {
				return err
			}
			return same("the episode of another source", want, fresh)
		})
	})
}

// badActions: what no environment can do is a result that says so, and the episode goes on.
func badActions(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		e, err := s.begin(s.a)
		if err != nil {
			return err
		}
		defer e.End()
		huge := make([]byte, 1<<20)
		for i := range huge {
			huge[i] = 'x'
		}
		for name, a := range map[string]environments.Action{
			"a huge action": {Text: string(huge)}, "an empty action": {}, "invalid UTF-8": {Text: "\xff\xfe\x00"}, "newlines": {Text: "\n\n"},
			"an unknown tool": {Name: "no_such_tool", Arguments: []byte(`{}`)}, "a tool without JSON": {Name: s.m.Spec().Actions()[0].Name, Arguments: []byte(`{"`)},
		} {
			before := e.Anchor()
			r, err := e.Step(s.ctx, a)
			switch {
			case err != nil:
				return fmt.Errorf("%s is the agent's fault and no error: %w", name, err)
			case r.Failure != trajectory.FailurePolicy:
				return fmt.Errorf("%s: the result does not say that the action was not possible (Failure %q, %q)", name, r.Failure, text(r.Observation))
			case text(r.Observation) == "":
				return fmt.Errorf("%s: the observation does not say what is possible", name)
			case r.Over():
				return fmt.Errorf("%s ended the episode", name)
			case e.Anchor() != before:
				return fmt.Errorf("%s names another state (%q) than before (%q): an action that was not possible changes nothing", name, e.Anchor(), before)
			}
		}
		actions, err := c.script(s.ctx, e)
		if err != nil {
			return err
		}
		for _, a := range actions[:min(1, len(actions))] {
			if r, err := e.Step(s.ctx, a); err != nil || r.Failure != "" {
				return fmt.Errorf("after actions that were not possible, one that is possible gave %+v, %v", r, err)
			}
		}
		return nil
	})
}

// afterTheEnd: a step after the end says so.
func afterTheEnd(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		e, err := s.begin(s.a)
		if err != nil {
			return err
		}
		defer e.End()
		actions, err := c.script(s.ctx, e)
		if err != nil {
			return err
		}
		over := false
		for _, a := range actions {
			r, err := e.Step(s.ctx, a)
			if err != nil {
				return err
			}
			over = r.Over()
		}
		if !over {
			if _, solves, _ := e.Solution(s.ctx); solves {
				return errors.New("its own solution did not end the episode")
			}
			t.Log("the case's actions do not end the episode")
			return nil
		}
		r, err := e.Step(s.ctx, actions[0])
		if err != nil || r.Failure != trajectory.FailurePolicy || !r.Over() || r.Reward != 0 {
			return fmt.Errorf("a step after the end gave %+v, %v", r, err)
		}
		return nil
	})
}

// unknownFields: a field that the environment does not know is an error of the reset, and the task's fault.
func unknownFields(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		start := s.a
		start.Task.Fields = map[string]any{"no_such_field": 1}
		for k, v := range s.a.Task.Fields {
			start.Task.Fields[k] = v
		}
		e, err := s.begin(start)
		if err == nil {
			e.End()
			return errors.New("a reset with an unknown field is no error")
		}
		if wrong := (*environments.TaskError)(nil); !errors.As(err, &wrong) {
			return fmt.Errorf("a reset with an unknown field is the task's fault, so that its error must be a TaskError, and it is %w", err)
		}
		delete(start.Task.Fields, "no_such_field")
		for _, name := range environments.Reserved {
			if _, ok := start.Task.Fields[name]; !ok {
				start.Task.Fields[name] = "1"
			}
		}
		if e, err = s.begin(start); err != nil {
			return fmt.Errorf("the fields that belong to rewards and data are no error: %w", err)
		}
		e.End()
		return nil
	})
}

// twoAtOnce: two environments do not share a state.
func twoAtOnce(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		if !s.m.Spec().Deterministic {
			return nil
		}
		var want, got [2][]seen
		var err error
		for i, start := range []environments.Start{s.a, s.b} {
			if want[i], err = s.play(c, start, nil); err != nil {
				return err
			}
		}
		var episodes [2]*environments.Episode
		var scripts [2][]environments.Action
		for i, start := range []environments.Start{s.a, s.b} {
			if episodes[i], err = s.begin(start); err != nil {
				return err
			}
			defer episodes[i].End()
		}
		for i, e := range episodes {
			if scripts[i], err = c.script(s.ctx, e); err != nil {
				return err
			}
			got[i] = []seen{{Text: text(e.First()), Anchor: e.Anchor()}}
		}
		for n := range max(len(scripts[0]), len(scripts[1])) {
			for i, e := range episodes {
				if n+1 < len(want[i]) {
					r, err := e.Step(s.ctx, scripts[i][n])
					if err != nil {
						return err
					}
					got[i] = append(got[i], see(r))
				}
			}
		}
		return errors.Join(same("the first of two at once", want[0], got[0]), same("the second of two at once", want[1], got[1]))
	})
}

// middle begins an episode and plays half of its script. rest is the other half.
func (s *stage) middle(c Case) (e *environments.Episode, rest []environments.Action, err error) {
	if e, err = s.begin(s.a); err != nil {
		return nil, nil, err
	}
	actions, err := c.script(s.ctx, e)
	if err == nil {
		_, err = follow(s.ctx, e, actions[:len(actions)/2])
	}
	if err != nil {
		e.End()
		return nil, nil, err
	}
	return e, actions[len(actions)/2:], nil
}

// rest plays what is left, without the reset.
func rest(ctx context.Context, e *environments.Episode, actions []environments.Action) ([]seen, error) {
	out, err := follow(ctx, e, actions)
	if err != nil {
		return nil, err
	}
	return out[1:], nil
}

// stateRoundTrip: an episode goes on from its state in another environment as it would have gone on itself.
func stateRoundTrip(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		e, actions, err := s.middle(c)
		if err != nil {
			return err
		}
		defer e.End()
		state, ok, err := e.State(s.ctx)
		if err != nil || !ok {
			return err
		}
		want, err := rest(s.ctx, e, actions)
		if err != nil {
			return err
		}
		other, err := s.begin(s.b)
		if err != nil {
			return err
		}
		defer other.End()
		if _, err := other.Restore(s.ctx, s.a, state); err != nil {
			return err
		}
		got, err := rest(s.ctx, other, actions)
		if err != nil {
			return err
		}
		return same("what follows a restored state", want, got)
	})
}

// forks: a fork goes on as the episode would, and neither moves the other.
func forks(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		e, actions, err := s.middle(c)
		if err != nil {
			return err
		}
		defer e.End()
		second, ok, err := e.Fork(s.ctx)
		if err != nil || !ok {
			return err
		}
		defer second.End()
		want, err := rest(s.ctx, e, actions)
		if err != nil {
			return err
		}
		got, err := rest(s.ctx, second, actions)
		if err != nil {
			return err
		}
		return same("a fork", want, got)
	})
}

// taskList: ids are unique, the splits are disjoint, and more tasks than there are is an error.
func taskList(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		tasker, ok := s.source.(environments.Tasker)
		if !ok {
			return nil
		}
		ids, firsts := map[string]bool{}, map[string]string{}
		for _, split := range []string{environments.Train, environments.Eval} {
			starts, err := c.starts(s.source, split, c.Tasks)
			if err != nil {
				return err
			}
			fewer, err := tasker.Tasks(split, 1)
			if err != nil || len(fewer) != 1 || !reflect.DeepEqual(fewer[0], starts[0].Task) {
				return fmt.Errorf("the first task of %s is another one when fewer are asked for: %v, %v", split, fewer, err)
			}
			for i, start := range starts {
				if start.Task.ID == "" || ids[start.Task.ID] {
					return fmt.Errorf("the id %q of task %d of %s is empty or there twice", start.Task.ID, i, split)
				}
				ids[start.Task.ID] = true
				start.Seed = 1
				e, err := s.begin(start)
				if err != nil {
					return err
				}
				first := text(e.First())
				e.End()
				if other, known := firsts[first]; known && other != split {
					return fmt.Errorf("task %s of %s begins as one of %s does", start.Task.ID, split, other)
				}
				firsts[first] = split
			}
		}
		if c.TooMany > 0 {
			if _, err := tasker.Tasks(environments.Train, c.TooMany); err == nil {
				return fmt.Errorf("%d tasks are no error", c.TooMany)
			}
		}
		if _, err := tasker.Tasks("no_such_split", 1); err == nil {
			return errors.New("the tasks of an unknown split are no error")
		}
		return nil
	})
}

// solutions: the environment's own solution has full reward on every task, and reaches its goal with the last action.
func solutions(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		starts, err := c.starts(s.source, environments.Eval, c.Tasks)
		if err != nil {
			return err
		}
		for _, start := range starts {
			total, solves, early, reached, err := s.solve(start)
			if err != nil || !solves {
				return err
			}
			if diff := total - c.Full; diff > 1e-9 || diff < -1e-9 {
				return fmt.Errorf("the solution of task %q (seed %d) has the reward %v, and %v is full", start.Task.ID, start.Seed, total, c.Full)
			}
			switch {
			case c.NoSuccess:
			case early:
				return fmt.Errorf("the solution of task %q reaches the goal (Success) before its end", start.Task.ID)
			case !reached:
				return fmt.Errorf("the last result of the solution of task %q does not say that the goal is reached (Success)", start.Task.ID)
			}
		}
		return nil
	})
}

// solve plays the solution of a start. early says that a result before the last one has Success, reached that the last one has.
func (s *stage) solve(start environments.Start) (total float64, solves, early, reached bool, err error) {
	e, err := s.begin(start)
	if err != nil {
		return 0, false, false, false, err
	}
	defer e.End()
	actions, solves, err := e.Solution(s.ctx)
	if err != nil || !solves {
		return 0, solves, false, false, err
	}
	for _, a := range actions {
		r, err := e.Step(s.ctx, a)
		if err != nil {
			return 0, true, false, false, err
		}
		if r.Failure != "" {
			return 0, true, false, false, fmt.Errorf("an action of the solution is not possible: %s", text(r.Observation))
		}
		total += r.Reward
		early, reached = early || reached, r.Success
	}
	if score, ok, err := e.Score(s.ctx); ok || err != nil {
		return score, true, early, reached, err
	}
	return total, true, early, reached, nil
}

// randomPolicy logs what a uniform choice among the possible actions earns.
func randomPolicy(t testing.TB, c Case) error {
	return c.set(t, nil, func(s *stage) error {
		starts, err := c.starts(s.source, environments.Eval, c.Random)
		if err != nil {
			return err
		}
		mean, solved, source := 0.0, 0, rand.New(rand.NewPCG(1, 2))
		for _, start := range starts {
			e, err := s.begin(start)
			if err != nil {
				return err
			}
			total, chooses, err := c.wander(s.ctx, e, source)
			e.End()
			if err != nil || !chooses {
				return err
			}
			mean += total / float64(len(starts))
			if total >= c.Full-1e-9 {
				solved++
			}
		}
		t.Logf("a random policy: mean reward %.3f, full reward in %d of %d episodes of at most %d steps", mean, solved, len(starts), c.Steps)
		return nil
	})
}

func (c Case) wander(ctx context.Context, e *environments.Episode, source *rand.Rand) (total float64, chooses bool, err error) {
	for range c.Steps {
		list, ok, err := e.Actions(ctx)
		if err != nil || !ok {
			return 0, ok, err
		}
		if len(list) == 0 {
			return 0, true, errors.New("the environment knows no possible action before the end of the episode")
		}
		action := list[source.IntN(len(list))]
		r, err := e.Step(ctx, asAction(action))
		if err != nil {
			return 0, true, err
		}
		if r.Failure != "" && !c.Loose {
			return 0, true, fmt.Errorf("the action %q is listed as possible and is not: %s", action, text(r.Observation))
		}
		if total += r.Reward; r.Over() {
			break
		}
	}
	if score, ok, err := e.Score(ctx); ok || err != nil {
		return score, true, err
	}
	return total, true, nil
}
