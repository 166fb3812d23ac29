package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// validate checks a job and its data without opening the model.
func validate(ctx context.Context, j *job.Job, r Registries) error {
	s := session.New(j)
	defer s.Close() // what it opened was only looked at
	_, err := session.Check(ctx, s, r)
	return err
}

// made counts what a job makes of a tool and a reward that hold something, and what it closes of it.
type made struct{ tools, rewards, closed int }

func (m *made) registries(t *testing.T) Registries {
	r := prebuilt(t)
	opened := func(res *resources.Resources, n *int) {
		*n++
		res.OnClose(func() error { m.closed++; return nil })
	}
	require.NoError(t, r.Tools.Add("server", "Holds a process.", func(_ context.Context, res *resources.Resources, params map[string]any) ([]tools.Tool, error) {
		opened(res, &m.tools)
		if params["broken"] != nil {
			return nil, errors.New("no such server")
		}
		return []tools.Tool{tools.NewFunc("ask", "", func(context.Context, struct{}) (string, error) { return "", nil })}, nil
	}))
	require.NoError(t, r.Rewards.Add("kept", "", func(b *rewards.Builder, params map[string]any) (rewards.Reward, error) {
		opened(b.Resources, &m.rewards)
		if params["broken"] != nil {
			return nil, errors.New("no such judge")
		}
		return rewards.NewFunc("kept", func(context.Context, rewards.Input) (float64, error) { return 0, nil }), nil
	}))
	return r
}

// equipped is a job of that tool and that reward. Its model is missing, so that whatever opens it goes no further.
func equipped(t *testing.T, tool, reward string) *job.Job {
	dir := t.TempDir()
	for name, task := range map[string]string{"tasks": `{"prompt": "2+2?", "answer": "4"}`, "held": `{"prompt": "3+3?", "answer": "6"}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(task), 0o600))
	}
	j, err := job.Parse(filepath.Join(dir, "job.yaml"), []byte(`version: 1
name: x
model: {path: /no/such/model}
agent: {tools: [{name: server`+tool+`}]}
rewards: [{name: kept`+reward+`}]
data: {train: tasks.jsonl, eval: held.jsonl}
trainer: {rank_timeout: 0.1}
output: `+filepath.Join(dir, "run")+`
`), job.Options{})
	require.NoError(t, err)
	return j
}

// Whatever a job's tools and rewards hold is made once, and closed.
func TestToolsAndRewardsAreMadeOnce(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(j *job.Job, r Registries) error
		fine bool
	}{
		"validate": {func(j *job.Job, r Registries) error { return validate(t.Context(), j, r) }, true},
		"train": {func(j *job.Job, r Registries) error {
			_, err := Train(t.Context(), j, r, Options{Out: &bytes.Buffer{}})
			return err
		}, false},
		"evaluate": {func(j *job.Job, r Registries) error {
			_, err := Evaluate(t.Context(), j, "", false, r, nil)
			return err
		}, false},
		"sample": {func(j *job.Job, r Registries) error {
			return Sample(t.Context(), j, "", 1, r, unheard, func(*trajectory.Trajectory) error { return nil })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m made
			err := c.do(equipped(t, "", ""), m.registries(t))
			require.Equal(t, c.fine, err == nil, "%v", err)
			require.Equal(t, made{1, 1, 2}, m)
		})
	}
}

// A rank that only trains has neither tools nor rewards nor data.
func TestFurtherRanksMakeNoTools(t *testing.T) {
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "2")
	j := equipped(t, "", "")
	require.NoError(t, os.Remove(j.Resolve("tasks.jsonl")))
	var m made
	_, err := Train(t.Context(), j, m.registries(t), Options{Out: &bytes.Buffer{}})
	require.Error(t, err, "rank 0 is not there")
	require.NotContains(t, err.Error(), "tasks.jsonl")
	require.Equal(t, made{}, m)
}

// What is wrong with tools and rewards is told together, before the model is looked at and before there is a run folder.
func TestWrongToolsAndRewardsEndARunEarly(t *testing.T) {
	var m made
	j := equipped(t, ", broken: true", ", broken: true")
	_, err := Train(t.Context(), j, m.registries(t), Options{Out: &bytes.Buffer{}})
	require.EqualError(t, err, j.Path()+":4:17: agent.tools.0: server: no such server\n"+j.Path()+":5:11: rewards.0: kept: no such judge")
	var wrong *job.Error
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, made{1, 1, 2}, m)
	require.NoDirExists(t, j.Output)
}
