package session

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// A job whose tools or environment cannot fork is refused by name before it runs.
func TestWhatCannotForkIsRefused(t *testing.T) {
	catalog := tools.NewCatalog()
	plain := func(context.Context, argument) (string, error) { return "", nil }
	require.NoError(t, catalog.Register(tools.NewFunc("ask", "", plain), tools.NewFunc("notes", "", plain, func(s *tools.Spec) { s.Stateful = true }), tools.NewFunc("desk", "", plain, func(s *tools.Spec) { s.Stateful = true }),
		tools.NewFunc("diary", "", plain, func(s *tools.Spec) { s.Stateful, s.Replays = true, true })))
	worlds := environments.NewRegistry()
	for name, same := range map[string]bool{"fair": true, "dice": false} {
		require.NoError(t, worlds.Add(environments.Kind{Name: name, New: func(context.Context, *resources.Resources, map[string]any) (environments.Source, error) {
			return environments.Simple(environments.Spec{Deterministic: same, InProcess: true}, func() environments.Environment { return nil }), nil
		}}))
	}
	equip := func(more string) error {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nrollout: {tree: {rule: entropy}}\n"+more), job.Options{})
		require.NoError(t, err)
		s := New(j)
		err = s.Equip(t.Context(), Registries{Tools: catalog, Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Environments: worlds})
		require.NoError(t, s.Close())
		return err
	}
	require.NoError(t, equip("agent: {kind: tool_call, tools: [ask]}\n"))
	require.EqualError(t, equip("agent: {kind: tool_call, tools: [ask, notes, desk]}\n"),
		"job.yaml:6:17: rollout.tree: trajectories that fork need tools without state of their own, or that come to it again by the same calls, and these keep some: desk, notes; leave them or the tree out")
	require.NoError(t, equip("agent: {kind: tool_call, tools: [ask, diary]}\n"))
	require.NoError(t, equip("environment: {kind: fair}\n"))
	require.EqualError(t, equip("environment: {kind: dice}\n"),
		"job.yaml:6:17: rollout.tree: trajectories that fork need an environment that does the same again, and kind dice does not say that it does; use another one, or leave the tree out")
}
