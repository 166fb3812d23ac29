package scienceworld_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/environments/scienceworld"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no Python with scienceworld; make test-env installs one")
	}
	params["interpreter"] = interpreter
	return scienceworld.Kind().New(t.Context(), resources.New(resources.Options{}), params)
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

func start(task trajectory.Task) environments.Start {
	return environments.Start{Task: task, Seed: int64(task.Fields["seed"].(float64))}
}

func tasks(t testing.TB, s environments.Source, split string, n int) []trajectory.Task {
	t.Helper()
	out, err := s.(environments.Tasker).Tasks(split, n)
	require.NoError(t, err)
	return out
}

// Gold paths reach full reward on 100 tasks, and the same actions give the same episode.
func TestGoldPaths(t *testing.T) {
	s, e := world(t, map[string]any{"tasks": []string{"lifespan-longest-lived", "find-plant", "find-living-thing", "lifespan-shortest-lived"}})
	n := 100
	if testing.Short() {
		n = 8
	}
	for i, task := range append(tasks(t, s, environments.Train, n/2), tasks(t, s, environments.Eval, n/2)...) {
		first, err := e.Reset(t.Context(), start(task))
		require.NoError(t, err)
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
		score, err := e.(environments.Scorer).Score(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1.0, score, task.ID)
		if i%10 == 0 {
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
}

// Episodes repeat in another process, which played something else before: those of tasks whose temperatures, scores and order of objects the package
// takes from hash codes by chance.
func TestEpisodesRepeat(t *testing.T) {
	s, e := world(t, map[string]any{"tasks": []string{"power-component", "use-thermometer"}})
	other, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	all := tasks(t, s, environments.Train, 6)
	play := func(e environments.Environment, task trajectory.Task, actions []environments.Action) (out []environments.Result) {
		first, err := e.Reset(t.Context(), start(task))
		require.NoError(t, err)
		out = append(out, environments.Result{Observation: first})
		for _, a := range actions {
			r, err := e.Step(t.Context(), a)
			require.NoError(t, err)
			if out = append(out, r); r.Over() {
				break
			}
		}
		return out
	}
	solutions, episodes := make([][]environments.Action, len(all)), make([][]environments.Result, len(all))
	for i, task := range all {
		_, err := e.Reset(t.Context(), start(task))
		require.NoError(t, err)
		solutions[i], err = e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		episodes[i] = play(e, task, solutions[i])
	}
	for i := len(all) - 1; i >= 0; i-- {
		require.Equal(t, episodes[i], play(other, all[i], solutions[i]), all[i].ID)
	}
}

// The mean score of a policy that takes a possible action at random.
func TestRandomPolicy(t *testing.T) {
	s, e := world(t, map[string]any{"tasks": []string{"lifespan-longest-lived"}, "max_steps": 10})
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	all := tasks(t, s, environments.Eval, 20)
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
	t.Logf("lifespan-longest-lived, ten steps: a random policy's mean score is %.2f", sum/float64(len(all)))
	require.Less(t, sum/float64(len(all)), 0.5)
}

// What cannot be mended any more is worth 0: the last step takes back what the episode had earned. The answers here are those of no server.
func TestUnmendable(t *testing.T) {
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing here: ", err)
	}
	text, err := exec.Command(interpreter, "-B", "-c", `
import json, sys, types
sys.modules["agentfly_environment"] = types.SimpleNamespace(Refused=Exception, WrongTask=Exception)
from world import World

w, scores = World.__new__(World), iter([0.4, -1.0])
w.reached = 0.0
w.ask = lambda *calls: ["seen", next(scores), False]
steps = [w.step("act") for _ in range(2)]
print(json.dumps({"rewards": [s[1] for s in steps], "over": [s[2] for s in steps], "last": steps[1][4], "score": w.score()}))
`).Output()
	require.NoError(t, err)
	require.JSONEq(t, `{"rewards": [0.4, -0.4], "over": [false, true], "last": {"score": 0, "success": false, "failure": true}, "score": 0}`, string(text))
}

// The package's traps are errors, or what the agent did wrong.
func TestTraps(t *testing.T) {
	_, err := open(t, map[string]any{"tasks": []string{"fly"}})
	require.ErrorContains(t, err, "scienceworld: there is no task fly; the tasks are boil, ")
	_, err = open(t, map[string]any{"tasks": []string{"boil"}, "simplification": "hard"})
	require.ErrorContains(t, err, "scienceworld: there is no simplification hard; they are easy, ")
	s, e := world(t, map[string]any{"tasks": []string{"find-plant"}, "max_steps": 3})
	_, err = e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: map[string]any{"variation": 300}}})
	require.ErrorContains(t, err, "scienceworld: find-plant has the variations 0 to 299, and the task says 300")
	_, err = e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: map[string]any{"variation": "3"}}})
	require.ErrorContains(t, err, "scienceworld: find-plant has the variations 0 to 299, and the task says '3'")
	require.ErrorAs(t, err, new(*environments.TaskError))
	_, err = e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: map[string]any{"task": "boil"}}})
	require.ErrorContains(t, err, "the task boil is none of the job's; they are find-plant")
	_, err = s.(environments.Tasker).Tasks(environments.Train, 151)
	require.ErrorContains(t, err, "151 tasks of split train were asked for; there are 150")
	got, err := e.Reset(t.Context(), environments.Start{Seed: 1<<31 - 1})
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "Your task is to find a(n) plant.")
	for n, action := range []string{"dance", "a\nb", string(make([]byte, 1<<20))} {
		r, err := e.Step(t.Context(), environments.Action{Text: action})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Equal(t, environments.Text("No known action matches that input."), r.Observation)
		require.Equal(t, n == 2, r.Truncated)
	}
}

// The tasks keep what environments promise.
func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := open(t, map[string]any{"tasks": []string{"lifespan-longest-lived", "boil"}})
			require.NoError(t, err)
			return s
		},
		Tasks: 4, TooMany: 1001, Random: 1, Steps: 60, Parallel: true, Loose: true, // the package lists "pour cup into sewer", and does not know it
		Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
	})
}
