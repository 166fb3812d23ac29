package reasoning_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/environments/reasoning"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func make(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	return reasoning.Kind().New(t.Context(), resources.New(resources.Options{}), params)
}

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_WORLDS_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_WORLDS_PYTHON names no Python with reasoning-gym; make test-env installs one")
	}
	params["interpreter"] = interpreter
	return make(t, params)
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

func answered(t testing.TB, e environments.Environment, task trajectory.Task, answer string) environments.Result {
	t.Helper()
	_, err := e.Reset(t.Context(), environments.Start{Task: task})
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Text: answer})
	require.NoError(t, err)
	return r
}

var quick = []string{"chain_sum", "leg_counting", "letter_counting", "basic_arithmetic", "spell_backward", "number_sorting", "syllogism", "gcd", "caesar_cipher", "maze"}

// What is wrong with the parameters is said before anything runs.
func TestParameters(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"the data sets are missing":               {},
		"size is 0, and must be 1 to 1000000":     {"datasets": []string{"gcd"}, "size": 0},
		"seed is -1, and must be 0 to 536870912":  {"datasets": []string{"gcd"}, "seed": -1},
		"datasets: gcd is there twice":            {"datasets": []string{"gcd", "gcd"}},
		"config: lcm is none of the datasets":     {"datasets": []string{"gcd"}, "config": map[string]any{"lcm": map[string]any{}}},
		"config: gcd: seed is a parameter of its": {"datasets": []string{"gcd"}, "config": map[string]any{"gcd": map[string]any{"seed": 3}}},
		"splits": {"datasets": []string{"gcd"}, "splits": 3},
		"show names what a sandbox shows; write s": {"datasets": []string{"gcd"}, "show": []string{"x"}},
	} {
		_, err := make(t, params)
		require.ErrorContains(t, err, want)
	}
}

// A Python without the package is an error of one line that names what installs it.
func TestMissingPackage(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "python") // a Python that sees no packages
	require.NoError(t, os.WriteFile(bare, []byte("#!/bin/sh\nexec python3 -S \"$@\"\n"), 0o755))
	_, err := make(t, map[string]any{"datasets": []string{"gcd"}, "interpreter": bare})
	require.ErrorContains(t, err, "reasoning_gym: the package reasoning-gym is missing; install it: ")
	require.ErrorContains(t, err, "-m pip install reasoning-gym==0.1.*")
	require.NotContains(t, err.Error(), "\n")
}

// The right answers reach full reward on 100 tasks, alone or behind thoughts.
func TestSolutions(t *testing.T) {
	s, e := world(t, map[string]any{"datasets": quick})
	require.True(t, s.Spec().Deterministic)
	for i, task := range append(tasks(t, s, environments.Train, 50), tasks(t, s, environments.Eval, 50)...) {
		first, err := e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		require.NotEmpty(t, first[0].Text)
		solution, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		text := solution[0].Text
		switch i % 3 {
		case 0:
			text = strings.TrimSuffix(strings.TrimPrefix(text, "<answer>"), "</answer>")
		case 1:
			text = "I think <answer>nothing</answer>, no: " + text
		}
		r := answered(t, e, task, text)
		require.Equal(t, 1.0, r.Reward, "%s: %s", task.ID, text)
		require.True(t, r.Terminated && r.Success, task.ID)
	}
}

// No held-out question is one of training, and none is there twice, also where questions are few.
func TestTasksDiffer(t *testing.T) {
	params := map[string]any{"datasets": []string{"chain_sum", "gcd"}, "size": 40, "config": map[string]any{"chain_sum": map[string]any{"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}}
	s, e := world(t, params)
	seen := map[string]string{}
	for split, n := range map[string]int{environments.Train: 40, environments.Eval: 20} {
		all := tasks(t, s, split, n)
		require.Equal(t, all[:3], tasks(t, s, split, 3))
		for _, task := range all {
			first, err := e.Reset(t.Context(), environments.Start{Task: task})
			require.NoError(t, err)
			require.Empty(t, seen[first[0].Text], "%s of %s", task.ID, split)
			seen[first[0].Text] = task.ID
		}
	}
	_, err := s.(environments.Tasker).Tasks(environments.Eval, 80)
	require.ErrorContains(t, err, "80 tasks of split eval were asked for; there are ")
	_, err = s.(environments.Tasker).Tasks(environments.Train, 81)
	require.ErrorContains(t, err, "there are at most 80")
}

// The mean score of a policy that answers each question with the answer of another one.
func TestRandomPolicy(t *testing.T) {
	s, e := world(t, map[string]any{"datasets": quick})
	all := tasks(t, s, environments.Eval, 200)
	answers := map[string][]string{}
	for _, task := range all {
		_, err := e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		solution, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		name := task.Fields["dataset"].(string)
		answers[name] = append(answers[name], solution[0].Text)
	}
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	for _, task := range all {
		of := answers[task.Fields["dataset"].(string)]
		sum += answered(t, e, task, of[random.IntN(len(of))]).Reward
	}
	t.Logf("ten data sets, answers of other questions: the mean score is %.3f", sum/float64(len(all)))
	require.Less(t, sum/float64(len(all)), 0.3)
}

// The questions keep what environments promise.
func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := open(t, map[string]any{"datasets": []string{"leg_counting", "gcd"}, "size": 100})
			require.NoError(t, err)
			return s
		},
		Tasks: 8, TooMany: 201, Parallel: true,
		Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
	})
}

// What the package does not know is an error; answers that break or stop a scorer are wrong answers, and the environment goes on.
func TestTraps(t *testing.T) {
	_, err := open(t, map[string]any{"datasets": []string{"chain_sums"}})
	require.ErrorContains(t, err, "reasoning_gym: there is no dataset chain_sums; did you mean chain_sum?; the ")
	_, err = open(t, map[string]any{"datasets": []string{"chain_sum"}, "config": map[string]any{"chain_sum": map[string]any{"terms": 3}}})
	require.ErrorContains(t, err, "reasoning_gym: config: chain_sum: ")
	_, err = open(t, map[string]any{"datasets": []string{"chain_sum"}, "config": map[string]any{"chain_sum": map[string]any{"min_terms": -1}}})
	require.ErrorContains(t, err, "reasoning_gym: config: chain_sum: ")
	_, err = open(t, map[string]any{"datasets": []string{"composite"}})
	require.ErrorContains(t, err, "reasoning_gym: config: composite: ")
	s, e := world(t, map[string]any{"datasets": []string{"chain_sum", "countdown", "graph_color"}, "size": 50})
	for want, fields := range map[string]map[string]any{
		"the dataset gcd is none of the job's":                  {"dataset": "gcd"},
		"chain_sum has the items 0 to 49, and the task says 50": {"dataset": "chain_sum", "index": 50},
		"and the task says 'x'":                                 {"dataset": "chain_sum", "index": "x"},
		"there is no split test":                                {"split": "test"},
		"the task has the field level":                          {"level": 1},
	} {
		_, err = e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: fields}})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*environments.TaskError))
	}
	first, err := e.Reset(t.Context(), environments.Start{Seed: 1<<31 - 1})
	require.NoError(t, err)
	require.NotEmpty(t, first[0].Text)
	all := tasks(t, s, environments.Train, 3)
	for _, answer := range []string{"9**9**9**9**9", strings.Repeat("(", 15000), "1/0", "nan", "__import__('os')", "[[[", "{}", "1e999", strings.Repeat("9", 19000)} {
		for _, task := range all {
			r := answered(t, e, task, answer)
			require.True(t, r.Terminated && !r.Success, "%s: %.40s", task.ID, answer)
			require.Less(t, r.Reward, 0.2)
		}
	}
	_, err = e.Reset(t.Context(), environments.Start{Task: all[2]}) // a data set without answers has no solutions
	require.NoError(t, err)
	_, err = e.(environments.Solver).Solution(t.Context())
	require.ErrorContains(t, err, "the dataset graph_color names no answer")
}
