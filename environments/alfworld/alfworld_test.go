package alfworld_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/alfworld"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func create(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	return alfworld.Kind().New(t.Context(), resources.New(resources.Options{}), params)
}

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_WORLDS_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_WORLDS_PYTHON names no Python with alfworld; make test-env installs one")
	}
	params["interpreter"] = interpreter
	return create(t, params)
}

func world(t testing.TB, params map[string]any) (environments.Source, environments.Environment) {
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

var types = []string{"pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep", "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place"}

// What is wrong with the parameters is said before anything runs.
func TestParameters(t *testing.T) {
	t.Setenv("ALFWORLD_DATA", "")
	for want, params := range map[string]map[string]any{
		`eval_fold: "dev" is not known`:   {"eval_fold": "dev"},
		"max_steps must be above 0":       {"max_steps": 0},
		"data: $ALFWORLD_DATA is not set": {"data": "$ALFWORLD_DATA"},
		"type":                            {"type": "pick"},
	} {
		_, err := create(t, params)
		require.ErrorContains(t, err, want)
	}
}

// A Python without the package is an error of one line that names what installs it.
func TestMissingPackage(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "python") // a Python that sees no packages
	require.NoError(t, os.WriteFile(bare, []byte("#!/bin/sh\nexec python3 -S \"$@\"\n"), 0o755))
	_, err := create(t, map[string]any{"interpreter": bare})
	require.ErrorContains(t, err, "alfworld: the package alfworld is missing; install it: ")
	require.ErrorContains(t, err, "-m pip install alfworld==0.4.*")
	require.NotContains(t, err.Error(), "\n")
}

// The planner's solutions reach full reward on 100 games of all six types, and the same actions give the same episode.
func TestSolutions(t *testing.T) {
	s, e := world(t, map[string]any{})
	require.True(t, s.Spec().Deterministic)
	seen := map[string]int{}
	for i, task := range append(tasks(t, s, environments.Train, 50), tasks(t, s, environments.Eval, 50)...) {
		start := environments.Start{Task: task}
		first, err := e.Reset(t.Context(), start)
		require.NoError(t, err)
		require.Contains(t, first[0].Text, "Your task is to: ")
		solution, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		var total float64
		var results []environments.Result
		for _, a := range solution {
			r, err := e.Step(t.Context(), a)
			require.NoError(t, err)
			require.Empty(t, r.Failure, "%s: %s", task.ID, a.Text)
			results, total = append(results, r), total+r.Reward
		}
		last := results[len(results)-1]
		require.True(t, last.Terminated && last.Success, task.ID)
		require.Equal(t, 1.0, total, task.ID)
		seen[task.ID[:strings.LastIndex(task.ID, "-")]]++
		if i%20 == 0 {
			again, err := e.Reset(t.Context(), start)
			require.NoError(t, err)
			require.Equal(t, first, again)
			for k := range results {
				r, err := e.Step(t.Context(), solution[k])
				require.NoError(t, err)
				require.Equal(t, results[k], r)
			}
		}
	}
	require.Len(t, seen, len(types))
	t.Log(seen)
}

// The mean score of a policy that takes a possible action at random.
func TestRandomPolicy(t *testing.T) {
	s, e := world(t, map[string]any{"max_steps": 15})
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	all := tasks(t, s, environments.Eval, 20)
	for _, task := range all {
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
	t.Logf("all types, 15 steps: a random policy's mean score is %.2f", sum/float64(len(all)))
	require.Less(t, sum/float64(len(all)), 0.2)
}

// The games keep what environments promise.
func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := open(t, map[string]any{})
			require.NoError(t, err)
			return s
		},
		Tasks: 4, TooMany: 1 << 24, Random: 2, Steps: 15, Parallel: true,
		Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
	})
}

// The original games are read from the folder that alfworld-download fills, and from nowhere else.
func TestOriginalGames(t *testing.T) {
	_, made := world(t, map[string]any{"types": []string{"pick_and_place_simple"}})
	raw, err := made.(environments.Caller).Call(t.Context(), "example", nil)
	require.NoError(t, err)
	data := t.TempDir()
	write := func(path string, change func(game map[string]any)) {
		var game map[string]any
		require.NoError(t, json.Unmarshal(raw, &game))
		game["solvable"] = true
		change(game)
		file := filepath.Join(data, filepath.FromSlash(path), "game.tw-pddl")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		text, err := json.Marshal(game)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o644))
	}
	nothing := func(map[string]any) {}
	const kind = "pick_and_place_simple-Mug-None-Shelf-1/"
	write("json_2.1.1/train/"+kind+"trial_1", nothing)
	write("json_2.1.1/train/"+kind+"trial_2", func(game map[string]any) { game["solvable"] = false })
	write("json_2.1.1/train/pick_and_place_with_movable_recep-Mug-None-Shelf-1/trial_1", nothing)
	write("json_2.1.1/train/pick_and_place_simple-AppleSliced-None-Shelf-1/trial_1", nothing)
	write("json_2.1.1/valid_unseen/"+kind+"trial_3", nothing)
	t.Setenv("WHERE", data)
	s, e := world(t, map[string]any{"data": "$WHERE"})
	train := tasks(t, s, environments.Train, 1)
	require.Equal(t, "json_2.1.1/train/"+kind+"trial_1/game.tw-pddl", train[0].Fields["file"])
	require.Equal(t, "json_2.1.1/valid_unseen/"+kind+"trial_3/game.tw-pddl", tasks(t, s, environments.Eval, 1)[0].Fields["file"])
	_, err = s.(environments.Tasker).Tasks(environments.Train, 2)
	require.ErrorContains(t, err, "2 tasks of split train were asked for; there are 1")
	first, err := e.Reset(t.Context(), environments.Start{Task: train[0]})
	require.NoError(t, err)
	unnamed, err := e.Reset(t.Context(), environments.Start{Seed: 7})
	require.NoError(t, err)
	require.Equal(t, first, unnamed)
	for want, file := range map[string]string{"is not in the folder of the games": "../../etc/passwd", "cannot be read": "json_2.1.1/none"} {
		_, err = e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: map[string]any{"file": file}}})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*environments.TaskError))
	}
	_, err = open(t, map[string]any{"data": t.TempDir()})
	require.ErrorContains(t, err, "alfworld: data: there is no folder ")
}

// The package's traps are errors, or what the agent did wrong.
func TestTraps(t *testing.T) {
	_, err := open(t, map[string]any{"types": []string{"pick"}})
	require.ErrorContains(t, err, "alfworld: there is no type pick; the types are pick_and_place_simple, ")
	_, e := world(t, map[string]any{"list_actions": true, "max_steps": 4})
	for want, fields := range map[string]map[string]any{
		"the task says 'x'":            {"game": "x"},
		"the task says -1":             {"game": -1},
		"the task names a file of the": {"file": "a"},
		"the task has the field level": {"level": 1},
	} {
		_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: fields}})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*environments.TaskError))
	}
	got, err := e.Reset(t.Context(), environments.Start{Seed: 1<<31 - 1})
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "\nActions: ")
	for n, action := range []string{"dance", "a\nb", "\u00fc", string(make([]byte, 1<<20))} {
		r, err := e.Step(t.Context(), environments.Action{Text: action})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Contains(t, r.Observation[0].Text, "Nothing happens.")
		require.Equal(t, n == 3, r.Truncated)
	}
}
