package job_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
)

const sourced = `version: 1
name: job
model: {path: m}
rewards: [final_answer]
`

func TestSourcesOfTasks(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want job.Sources
	}{
		"none":  {"data: {train: null}", nil},
		"one":   {"data: {train: a/train.jsonl}", job.Sources{{Path: "a/train.jsonl", Name: "train"}}},
		"paths": {"data: {train: [a.jsonl, b.json]}", job.Sources{{Path: "a.jsonl", Name: "a"}, {Path: "b.json", Name: "b"}}},
		"no columns of its own": {
			"data: {columns: {prompt: q}, train: [{path: a.jsonl, columns: null}]}", job.Sources{{Path: "a.jsonl", Name: "a"}},
		},
		"weights": {
			"data: {train: [{path: x/train.jsonl, name: x, weight: 3, columns: {prompt: q}}, {path: y.jsonl}]}",
			job.Sources{{Path: "x/train.jsonl", Name: "x", Weight: 3, Columns: map[string]string{"prompt": "q"}}, {Path: "y.jsonl", Name: "y"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := parse(sourced+c.data, job.Options{})
			require.NoError(t, err)
			require.Equal(t, c.want, j.Data.Train)
			again, err := parse(string(j.Source()), job.Options{})
			require.NoError(t, err)
			require.Equal(t, c.want, again.Data.Train, "the copy in the run folder reads back as the same")
			a, err := json.Marshal(j)
			require.NoError(t, err)
			b, err := json.Marshal(again)
			require.NoError(t, err)
			require.JSONEq(t, string(a), string(b))
		})
	}
	j, err := parse(sourced+"data: {train: [a.jsonl, b.jsonl]}", job.Options{Set: []string{"data.train.1={path: c.jsonl, weight: 2}"}})
	require.NoError(t, err)
	require.Equal(t, job.Sources{{Path: "a.jsonl", Name: "a"}, {Path: "c.jsonl", Name: "c", Weight: 2}}, j.Data.Train)
}

func TestSourcesKeepSecrets(t *testing.T) {
	env := func(name string) (string, bool) { return "/private", name == "WHERE" }
	for _, train := range []string{`"${WHERE}/a.jsonl"`, `["${WHERE}/a.jsonl"]`, `[{path: "${WHERE}/a.jsonl"}]`, `["${WHERE}/a.jsonl", b.jsonl]`, `[{path: "${WHERE}/a.jsonl", weight: 2}, b.jsonl]`} {
		j, err := parse(sourced+"data: {train: "+train+"}", job.Options{Env: env})
		require.NoError(t, err)
		require.Equal(t, "/private/a.jsonl", j.Data.Train[0].Path)
		require.NotContains(t, string(j.Source()), "/private")
		again, err := parse(string(j.Source()), job.Options{Env: env})
		require.NoError(t, err, string(j.Source()))
		require.Equal(t, j.Data.Train, again.Data.Train)
	}
}

func TestContradictionsInDataAndEval(t *testing.T) {
	for name, c := range map[string]struct{ add, want string }{
		"a number":            {"data: {train: 3}", `/jobs/job.yaml:5:15: data.train: 3, allowed is a text; write "3" in quotes`},
		"a mapping":           {"data: {train: {path: a}}", "/jobs/job.yaml:5:15: data.train: a mapping, allowed is a path, or a list of paths and of {path: FILE, weight: 1, name: NAME, columns: {…}}"},
		"an empty list":       {"data: {train: []}", "/jobs/job.yaml:5:15: data.train: the list is empty; leave it out, or name a file"},
		"no path":             {"data: {train: [{weight: 2}]}", "/jobs/job.yaml:5:16: data.train.0: the key path is missing; allowed is a path, or a list of paths and of {path: FILE, weight: 1, name: NAME, columns: {…}}"},
		"unknown key":         {"data: {train: [{path: a, wieght: 2}]}", `/jobs/job.yaml:5:26: unknown key "wieght" in data.train.0; allowed: path, weight, name, columns; nearest: weight`},
		"weight of nothing":   {"data: {train: [{path: a, weight: 0}]}", "/jobs/job.yaml:5:34: data.train.0.weight: 0 is out of range, allowed is a whole number from 1 to 1000"},
		"unknown column":      {"data: {train: [{path: a, columns: {promt: q}}]}", `/jobs/job.yaml:5:35: data.train.0.columns: there is no column "promt"; allowed: prompt, id, answer, messages; nearest: prompt`},
		"the same name":       {"data: {train: [a/t.jsonl, b/t.jsonl]}", `/jobs/job.yaml:5:27: data.train.1: two sources are named "t"; give one another name`},
		"weights to evaluate": {"data: {eval: [{path: a, weight: 2}, b]}", "/jobs/job.yaml:5:14: data.eval: every held-out task is evaluated; weights are for data.train"},
		"weights and balance": {"data: {train: [{path: a, weight: 2}, b], balance: kind}", "/jobs/job.yaml:5:51: data.balance: the weights of data.train say already what a step takes; leave one of the two out (balance: source takes the same number of each)"},
		"sft of two files":    {"data: {train: [a, b]}\nsft: {}", "/jobs/job.yaml:5:7: data: sft learns from one file; leave the others out"},
		"no field":            {"data: {train: a, curriculum: {by: difficulty}}", "/jobs/job.yaml:5:30: data.curriculum.field: it names the number by which curriculum.by: difficulty orders the tasks, and nothing else; by is difficulty"},
		"a field too many":    {"data: {train: a, curriculum: {by: mask_count, field: x}}", "/jobs/job.yaml:5:54: data.curriculum.field: it names the number by which curriculum.by: difficulty orders the tasks, and nothing else; by is mask_count"},
		"curriculum of sft":   {"data: {train: a, curriculum: {by: mask_count}}\nsft: {}", "/jobs/job.yaml:5:30: data.curriculum: sft deals conversations, not tasks; leave it out"},
		"k above n":           {"eval: {samples: 4, temperature: 1, k: [1, 8]}", "/jobs/job.yaml:5:43: eval.k.1: pass@8 cannot be estimated from eval.samples: 4; k is from 1 to samples"},
		"greedy samples":      {"eval: {samples: 4}", "/jobs/job.yaml:5:17: eval.samples: 4, but eval.temperature is 0, which samples the same trajectory each time; raise it"},
		"samples of sft":      {"eval: {samples: 4, temperature: 1}\nsft: {}", "/jobs/job.yaml:5:17: eval.samples: sft evaluates the loss of held-out conversations; leave samples and k out"},
		"never stopped":       {"eval: {stop_after: 2}", "/jobs/job.yaml:5:20: eval.stop_after: 2 evaluations never come, because eval.every is 0; set it"},
		"best of nothing":     {"checkpoint: {best: true}", "/jobs/job.yaml:5:20: checkpoint.best: the best is known by evaluations, but data.eval names no tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(sourced+c.add, job.Options{})
			require.EqualError(t, err, c.want)
			require.NotContains(t, strings.TrimSpace(err.Error()), "\n")
		})
	}
}
