package textworldexpress_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/environments/textworldexpress"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no Python with textworld-express; make test-env installs one")
	}
	params["interpreter"] = interpreter
	return textworldexpress.Kind().New(t.Context(), resources.New(resources.Options{}), params)
}

func game(t testing.TB, params map[string]any) (environments.Source, environments.Environment) {
	t.Helper()
	s, err := open(t, params)
	require.NoError(t, err)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, s.Close())
	})
	return s, e
}

func start(task trajectory.Task) environments.Start {
	return environments.Start{Task: task, Seed: int64(task.Fields["seed"].(float64))}
}

func tasks(t testing.TB, s environments.Source, split string, n int) []trajectory.Task {
	t.Helper()
	out, err := s.(environments.Tasker).Tasks(split, n)
	require.NoError(t, err)
	return out
}

// Gold paths reach full reward: on 100 tasks of coin, and on ten of each other game.
func TestGoldPaths(t *testing.T) {
	for name, n := range map[string]int{"coin": 100, "cookingworld": 10, "twc": 10, "mapreader": 10, "arithmetic": 10, "sorting": 10, "simonsays": 10, "peckingorder": 10} {
		t.Run(name, func(t *testing.T) {
			s, e := game(t, map[string]any{"game": name})
			require.True(t, s.Spec().Deterministic)
			for i, task := range append(tasks(t, s, environments.Train, n/2), tasks(t, s, environments.Eval, n/2)...) {
				first, err := e.Reset(t.Context(), start(task))
				require.NoError(t, err)
				require.NotEmpty(t, first[0].Text)
				solution, err := e.(environments.Solver).Solution(t.Context())
				require.NoError(t, err)
				var total float64
				var seen []environments.Result
				for _, a := range solution {
					r, err := e.Step(t.Context(), a)
					require.NoError(t, err)
					seen = append(seen, r)
					if total += r.Reward; r.Over() {
						break
					}
				}
				require.True(t, seen[len(seen)-1].Terminated, task.ID)
				require.InDelta(t, 1, total, 1e-9, task.ID)
				if i%10 == 0 { // the same seed and actions, the same episode
					again, err := e.Reset(t.Context(), start(task))
					require.NoError(t, err)
					require.Equal(t, first, again)
					for k := range seen {
						r, err := e.Step(t.Context(), solution[k])
						require.NoError(t, err)
						require.Equal(t, seen[k], r)
					}
				}
			}
		})
	}
}

// A game that is lost has the package's score, -1, or keeps what was earned before.
func TestALostGame(t *testing.T) {
	for keep, want := range map[bool]float64{false: -1, true: 0.2} {
		s, e := game(t, map[string]any{"game": "simonsays", "keep_score": keep})
		_, err := e.Reset(t.Context(), start(tasks(t, s, environments.Train, 1)[0]))
		require.NoError(t, err)
		solution, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		right, err := e.Step(t.Context(), solution[0])
		require.NoError(t, err)
		require.InDelta(t, 0.2, right.Reward, 1e-9)
		possible, err := e.(environments.Chooser).Actions(t.Context())
		require.NoError(t, err)
		other := slices.IndexFunc(possible, func(a string) bool { return a != solution[1].Text })
		wrong, err := e.Step(t.Context(), environments.Action{Text: possible[other]})
		require.NoError(t, err)
		require.True(t, wrong.Terminated)
		require.False(t, wrong.Success)
		require.InDelta(t, want, right.Reward+wrong.Reward, 1e-9)
		score, err := e.(environments.Scorer).Score(t.Context())
		require.NoError(t, err)
		require.InDelta(t, want, score, 1e-9)
	}
}

// No held-out task is one of training, and no task is there twice, in a game of so few places that its seeds repeat.
func TestTasksDiffer(t *testing.T) {
	s, e := game(t, map[string]any{"game": "coin", "params": "numLocations=3"})
	seen := map[string]string{}
	for split, n := range map[string]int{environments.Train: 60, environments.Eval: 10} {
		all := tasks(t, s, split, n)
		require.Equal(t, all[:10], tasks(t, s, split, 10))
		for _, task := range all {
			first, err := e.Reset(t.Context(), start(task))
			require.NoError(t, err)
			solution, err := e.(environments.Solver).Solution(t.Context())
			require.NoError(t, err)
			transcript := first[0].Text
			for _, a := range solution {
				r, err := e.Step(t.Context(), a)
				require.NoError(t, err)
				transcript += "\n> " + a.Text + "\n" + r.Observation[0].Text
			}
			require.Empty(t, seen[transcript], "%s of %s", task.ID, split)
			seen[transcript] = task.ID
		}
	}
	_, err := s.(environments.Tasker).Tasks(environments.Train, 1000)
	require.ErrorContains(t, err, "1000 tasks of split train were asked for; there are ")
}

// Tasks whose gold path is longer than an episode, its ways there and back left aside, are left out: without that some need 100 actions.
func TestTasksFitTheSteps(t *testing.T) {
	s, e := game(t, map[string]any{"game": "cookingworld", "max_steps": 30})
	for _, task := range tasks(t, s, environments.Train, 10) {
		_, err := e.Reset(t.Context(), start(task))
		require.NoError(t, err)
		solution, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(solution), 60)
	}
}

// The games keep what environments promise.
func TestConformance(t *testing.T) {
	for _, name := range []string{"arithmetic", "coin"} { // the gold paths of twc and cookingworld wander another way each time, and the suite compares episodes of them
		t.Run(name, func(t *testing.T) {
			environmenttest.Run(t, environmenttest.Case{
				Source: func(t testing.TB) environments.Source {
					s, err := open(t, map[string]any{"game": name})
					require.NoError(t, err)
					return s
				},
				Tasks: 5, TooMany: 1001, Random: 2,
				Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
			})
		})
	}
}

// The mean reward of a policy that takes a possible action at random.
func TestRandomPolicy(t *testing.T) {
	s, e := game(t, map[string]any{"game": "coin", "params": "numLocations=5,includeDoors=0", "max_steps": 10})
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	all := tasks(t, s, environments.Eval, 100)
	for _, task := range all {
		_, err := e.Reset(t.Context(), start(task))
		require.NoError(t, err)
		for over := false; !over; {
			actions, err := e.(environments.Chooser).Actions(t.Context())
			require.NoError(t, err)
			r, err := e.Step(t.Context(), environments.Action{Text: actions[random.IntN(len(actions))]})
			require.NoError(t, err)
			sum, over = sum+r.Reward, r.Over()
		}
	}
	mean := sum / float64(len(all))
	t.Logf("coin, five places without doors, ten steps: a random policy's mean reward is %.2f", mean)
	require.InDelta(t, 0.30, mean, 1e-9)
}

// The package's traps are errors, or what the agent did wrong.
func TestTraps(t *testing.T) {
	_, err := open(t, map[string]any{"game": "chess"})
	require.ErrorContains(t, err, "textworld_express: there is no game chess; the games are cookingworld, ")
	_, err = open(t, map[string]any{"game": "coin", "params": "rooms=3"})
	require.ErrorContains(t, err, "textworld_express: params: Unrecognized property name (rooms). Known properties: numLocations, ")
	s, e := game(t, map[string]any{"game": "coin", "max_steps": 3, "list_actions": true})
	_, err = e.Reset(t.Context(), environments.Start{Seed: 3, Task: trajectory.Task{Fields: map[string]any{"fold": "dev"}}})
	require.ErrorContains(t, err, "textworld_express: the seed 3 is one of fold train, and the task says dev")
	_, err = e.Reset(t.Context(), environments.Start{Seed: 3, Task: trajectory.Task{Fields: map[string]any{"fold": "all"}}})
	require.ErrorContains(t, err, "there is no fold all")
	require.ErrorAs(t, err, new(*environments.TaskError))
	_, err = e.Reset(t.Context(), environments.Start{Seed: 3, Task: trajectory.Task{Fields: map[string]any{"size": 1}}})
	require.ErrorContains(t, err, "the task has the field size, which textworld_express does not know")
	_, err = s.(environments.Tasker).Tasks(environments.Train, 1001)
	require.ErrorContains(t, err, "1001 tasks of split train were asked for; there are at most 1000")
	got, err := e.Reset(t.Context(), environments.Start{Seed: 1<<31 - 1})
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "\nActions: ")
	for n, action := range []string{"dance", "a\nb", string(make([]byte, 1<<20))} {
		r, err := e.Step(t.Context(), environments.Action{Text: action})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Contains(t, r.Observation[0].Text, "Unknown action")
		require.Equal(t, n == 2, r.Truncated)
	}
}
