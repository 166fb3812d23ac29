package textworld_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/environments/textworld"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func create(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	return textworld.Kind().New(t.Context(), resources.New(resources.Options{}), params)
}

// open plays with the cache of the user, so that the games of the tests are made once.
func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_WORLDS_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_WORLDS_PYTHON names no Python with textworld; make test-env installs one")
	}
	params["interpreter"] = interpreter
	return create(t, params)
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

func tasks(t testing.TB, s environments.Source, split string, n int) []trajectory.Task {
	t.Helper()
	out, err := s.(environments.Tasker).Tasks(split, n)
	require.NoError(t, err)
	return out
}

var games = map[string]map[string]any{
	"treasure_hunter": {"level": 3}, "cooking": {"recipe": 1, "take": 1, "cook": true}, "coin_collector": {"level": 3}, "simple": {"rewards": "dense", "goal": "brief"},
}

func hunt() map[string]any {
	return map[string]any{"game": "treasure_hunter", "params": games["treasure_hunter"]}
}

// What is wrong with the parameters is said before anything runs.
func TestParameters(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"the game is missing; write game: cooking": {},
		`eval_fold: "dev" is not known`:            {"game": "cooking", "eval_fold": "dev"},
		"max_steps must be above 0":                {"game": "cooking", "max_steps": 0},
		"level":                                    {"game": "cooking", "level": 3},
	} {
		_, err := create(t, params)
		require.ErrorContains(t, err, want)
	}
}

// A Python without the package is an error of one line that names what installs it.
func TestMissingPackage(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "python") // a Python that sees no packages
	require.NoError(t, os.WriteFile(bare, []byte("#!/bin/sh\nexec python3 -S \"$@\"\n"), 0o755))
	cache := t.TempDir()
	_, err := textworld.Kind().New(t.Context(), resources.New(resources.Options{Cache: cache}), map[string]any{"game": "cooking", "interpreter": bare})
	require.DirExists(t, filepath.Join(cache, "textworld"), "games are kept in the job's cache")
	require.ErrorContains(t, err, "textworld: the package textworld is missing; install it: ")
	require.ErrorContains(t, err, "-m pip install textworld==1.7.*")
	require.NotContains(t, err.Error(), "\n")
}

// The walkthroughs reach full reward on 25 games of each kind, and the same actions give the same episode.
func TestSolutions(t *testing.T) {
	for name, params := range games {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, e := game(t, map[string]any{"game": name, "params": params})
			require.True(t, s.Spec().Deterministic)
			for i, task := range append(tasks(t, s, environments.Train, 13), tasks(t, s, environments.Eval, 12)...) {
				start := environments.Start{Task: task}
				first, err := e.Reset(t.Context(), start)
				require.NoError(t, err)
				require.NotEmpty(t, first[0].Text)
				solution, err := e.(environments.Solver).Solution(t.Context())
				require.NoError(t, err)
				var total float64
				var seen []environments.Result
				for _, a := range solution {
					r, err := e.Step(t.Context(), a)
					require.NoError(t, err)
					require.Empty(t, r.Failure, "%s: %s: %s", task.ID, a.Text, r.Observation)
					seen = append(seen, r)
					total += r.Reward
				}
				last := seen[len(seen)-1]
				require.True(t, last.Terminated && last.Success, task.ID)
				require.NotContains(t, last.Observation[0].Text, "RESTART")
				require.InDelta(t, 1, total, 1e-9, task.ID)
				if i%10 == 0 {
					again, err := e.Reset(t.Context(), start)
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

// The mean score of a policy that takes a possible action at random.
func TestRandomPolicy(t *testing.T) {
	for name, params := range games {
		t.Run(name, func(t *testing.T) {
			s, e := game(t, map[string]any{"game": name, "params": params, "max_steps": 10})
			random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
			all := tasks(t, s, environments.Eval, 12)
			for _, task := range all {
				for range 4 {
					_, err := e.Reset(t.Context(), environments.Start{Task: task})
					require.NoError(t, err)
					for over := false; !over; {
						actions, err := e.(environments.Chooser).Actions(t.Context())
						require.NoError(t, err)
						r, err := e.Step(t.Context(), environments.Action{Text: actions[random.IntN(len(actions))]})
						require.NoError(t, err)
						sum, over = sum+r.Reward, r.Over()
					}
				}
			}
			t.Logf("%s %v, ten steps: a random policy's mean score is %.2f", name, params, sum/float64(4*len(all)))
			require.Less(t, sum/float64(4*len(all)), 0.5)
		})
	}
}

// The games keep what environments promise.
func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := open(t, hunt())
			require.NoError(t, err)
			return s
		},
		Tasks: 4, TooMany: 1<<24 + 1, Random: 4, Parallel: true,
		Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
	})
}

// A game is made once, also where many ask for it, and is complete when it is there: of one that was interrupted nothing is used.
func TestCache(t *testing.T) {
	cache := t.TempDir()
	params := hunt()
	params["cache"] = cache
	s, a := game(t, params)
	b, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	start := environments.Start{Task: tasks(t, s, environments.Train, 1)[0]}
	done := make(chan error, 1)
	go func() {
		_, err := b.Reset(t.Context(), start)
		done <- err
	}()
	first, err := a.Reset(t.Context(), start)
	require.NoError(t, err)
	require.NoError(t, <-done)
	found, err := filepath.Glob(filepath.Join(cache, "1.7*-treasure_hunter-*", "*"))
	require.NoError(t, err)
	var folders []string
	for _, path := range found {
		if !strings.HasPrefix(filepath.Base(path), "lock-") {
			folders = append(folders, filepath.Base(path))
		}
	}
	require.Equal(t, []string{"train-0"}, folders)
	file := filepath.Join(filepath.Dir(found[0]), "train-0", "game.z8")
	before, err := os.Stat(file)
	require.NoError(t, err)
	_, other := game(t, params)
	again, err := other.Reset(t.Context(), start)
	require.NoError(t, err)
	require.Equal(t, first, again)
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
}

// The package's traps are errors, or what the agent did wrong.
func TestTraps(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"textworld: there is no game chess; the games are ":                 {"game": "chess"},
		"textworld: params: the following arguments are required: level":    {"game": "coin_collector"},
		"textworld: params: unrecognized arguments: rooms 3":                {"game": "coin_collector", "params": map[string]any{"level": 3, "rooms": 3}},
		"textworld: params: split follows from the split of the tasks; wri": {"game": "cooking", "params": map[string]any{"split": "test"}},
		"textworld: params: argument level: invalid int value: 'high'":      {"game": "coin_collector", "params": map[string]any{"level": "high"}},
	} {
		_, err := open(t, params)
		require.ErrorContains(t, err, want)
	}
	params := hunt()
	params["list_actions"] = true
	s, e := game(t, params)
	for want, fields := range map[string]map[string]any{
		"there is no split test":       {"split": "test"},
		"and the task says 'x'":        {"game": "x"},
		"and the task says -1":         {"game": -1},
		"the task has the field level": {"level": 1},
	} {
		_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: fields}})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*environments.TaskError))
	}
	got, err := e.Reset(t.Context(), environments.Start{Task: tasks(t, s, environments.Train, 1)[0]})
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "\nActions: ")
	for _, action := range []string{"dance", "quit", "undo", "restart", "save", "restore", "tw-print max_score", "take moon", "go up. quit", "look then quit", "\u00fc", string(make([]byte, 1<<20))} {
		r, err := e.Step(t.Context(), environments.Action{Text: action})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure, "%.20s: %s", action, r.Observation)
		require.Contains(t, r.Observation[0].Text, "\nActions: ")
		require.False(t, r.Over())
	}
}
