package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const worldJob = "version: 1\nname: w\nmodel: {path: m}\nenvironment: {kind: sokoban}\n"

func TestEnvironmentFillsInWhatFollowsFromIt(t *testing.T) {
	j, err := Parse("/jobs/w.yaml", []byte(worldJob), Options{})
	require.NoError(t, err)
	require.Equal(t, []Reward{{Name: "environment", Weight: 1}}, j.Rewards)
	require.Equal(t, "action", j.Agent.Kind)
	require.Equal(t, "action", j.Agent.Format)
	require.Equal(t, Split{Train: 512, Eval: 100}, j.Environment.Tasks)
	require.True(t, j.HasTrain())
	require.True(t, j.HasEval())
	require.NoError(t, j.TrainingErrors())
	again, err := Parse("/jobs/job.yaml", j.Source(), Options{})
	require.NoError(t, err, "the copy of the job: %s", j.Source())
	require.Equal(t, j.Environment, again.Environment)
	require.Equal(t, j.Agent, again.Agent)

	j, err = Parse("/jobs/w.yaml", []byte(worldJob+"agent: {kind: tool_call}\ndata: {train: t.jsonl}\nrewards: [format]\n"), Options{})
	require.NoError(t, err)
	require.Equal(t, "tool_call", j.Agent.Kind)
	require.Equal(t, "format", j.Rewards[0].Name)
	j, err = Parse("/jobs/w.yaml", []byte(worldJob+"distill: {teacher: {path: t}}\n"), Options{})
	require.NoError(t, err)
	require.Equal(t, []Reward{{Name: "environment", Weight: 1}}, j.Rewards, "what it pays is reported")

	j, err = Parse("/jobs/w.yaml", []byte(worldJob+"agent: {kind: tool_call}\ndata: {train: t.jsonl}\nrewards: [format]\n"), Options{})
	require.NoError(t, err)
	require.False(t, j.HasEval(), "files to train on: the held-out tasks are files too")
}

func TestEnvironmentContradictions(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\nname: w\nmodel: {path: m}\nrewards: [environment]\ndata: {train: t.jsonl}\n": `/jobs/w.yaml:4:10: rewards: the reward environment is what an environment pays; name one with environment: {kind: …}`,
		worldJob + "sft: {}\n": `/jobs/w.yaml:4:14: environment: sft samples nothing; leave it out`,
		worldJob + "agent: {kind: action, tools: [calculator]}\n":                                          `/jobs/w.yaml:5:30: agent.tools: kind action calls exactly one tool, which is the environment here; leave them out, or use a kind that names its tools`,
		"version: 1\nname: w\nmodel: {path: m}\nenvironment: {kind: s, pool: {size: 2, warm: 3}}\n":        `/jobs/w.yaml:4:46: environment.pool.warm: 3, and the pool has 2 (size)`,
		"version: 1\nname: w\nmodel: {path: m}\nenvironment: {kind: s, credit: turn}\nrewards: [format]\n": `/jobs/w.yaml:4:32: environment.credit: turn pays the environment's rewards by turn, and the job's rewards do not name environment; add it`,
		"version: 1\nname: w\nmodel: {path: m}\nenvironment: sokoban\n":                                    `/jobs/w.yaml:4:14: environment: the text "sokoban", allowed is a mapping with the keys kind, params, tasks, pool, reset_timeout, step_timeout, retries, credit, instructions`,
	} {
		_, err := Parse("/jobs/w.yaml", []byte(text), Options{})
		require.EqualError(t, err, want)
	}
}

// The environment's own held-out tasks belong to its own tasks to train on: beside files they would never be evaluated.
func TestHeldOutTasksBesideFilesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"tasks: {eval: 50}}\ndata: {train: t.jsonl}\n":                `/jobs/w.yaml:4:38: environment.tasks.eval: 50, but with data.train the held-out tasks are files too; name data.eval, or leave it out`,
		"tasks: {eval: 50}}\ndata: {train: t.jsonl, eval: e.jsonl}\n": "",
		"tasks: {eval: 0}}\ndata: {train: t.jsonl}\n":                 "",
		"tasks: {eval: 100}}\ndata: {train: t.jsonl}\n":               "", // as a copy of a job says it
		"tasks: {eval: 50}}\n":                                        "",
	} {
		j, err := Parse("/jobs/w.yaml", []byte("version: 1\nname: w\nmodel: {path: m}\nenvironment: {kind: s, "+text), Options{})
		require.NoError(t, err)
		if err := j.TrainingErrors(); want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, want)
		}
	}
}
