package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/sokoban"
	"github.com/agentfly/agentfly/environments/webshop"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
)

// A held-out task's own episode is played, also where the job counts or deals by the field that names it.
func TestTheJobLeavesFieldsToTheEnvironment(t *testing.T) {
	for name, text := range map[string]string{
		"level by nobody": "environment: {kind: sokoban, tasks: {train: 20, eval: 3}}\n",
		"level by eval":   "environment: {kind: sokoban, tasks: {train: 20, eval: 3}}\neval: {by: level}\n",
		"goal by eval":    "environment: {kind: webshop, params: {products: 200}, tasks: {train: 20, eval: 3}}\neval: {by: goal}\n",
		"goal by spread":  "environment: {kind: webshop, params: {products: 200}, tasks: {train: 20, eval: 3}}\ndata: {spread: goal}\n",
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("/jobs/job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\n"+text), job.Options{})
			require.NoError(t, err)
			all := environments.NewRegistry()
			require.NoError(t, all.Add(sokoban.Kind()))
			require.NoError(t, all.Add(webshop.Kind()))
			r := resources.New(resources.Options{})
			t.Cleanup(func() { r.Close() })
			w, err := makeWorld(t.Context(), j, all, r, false, func(string) {})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, w.close()) })
			_, eval, _, err := data.Read(j, w.Tasks())
			require.NoError(t, err)
			var prompt string
			s := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
				prompt = rollouttest.Letters{}.Decode(q.Prompt, false)
				return rollouttest.Say("<action>up</action>")
			})
			s.Tools = tools.NewRegistry(tools.Options{})
			require.NoError(t, w.actions(s.Tools, 0))
			s.Format, err = agents.NewFormat("action", s.Tools.Specs(), agents.FormatOptions{})
			require.NoError(t, err)
			s.World, s.MaxTurns = w.sampled(), 1
			for _, task := range eval.Tasks {
				s.Sample(t.Context(), rollout.Place{Step: 1, Task: task, Phase: "eval-before"})
				own, err := w.manager.Source().New(t.Context(), "")
				require.NoError(t, err)
				want, err := own.Reset(t.Context(), environments.Start{Task: task})
				require.NoError(t, err)
				require.NoError(t, own.Close())
				require.Contains(t, prompt, environments.TextOf(want), task.ID)
			}
		})
	}
}

// Of several terms of what the environment pays, turns are paid the sum of their weights.
func TestEveryTermOfTheEnvironmentIsPaidByTurn(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nenvironment: {kind: sokoban, credit: turn, tasks: {train: 2}}\nrewards: [environment, {name: environment, as: again, weight: 2}]\n"
	j, err := job.Parse("/jobs/job.yaml", []byte(text), job.Options{})
	require.NoError(t, err)
	a, err := job.Algorithm(j, algorithms.NewRegistry())
	require.NoError(t, err)
	var sampled rollout.World
	(&World{job: j}).PayTurns(a, &sampled)
	require.Equal(t, 3.0, sampled.Credit)
}
