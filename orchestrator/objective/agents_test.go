package objective

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Agents of a run that goes on are waited for where their trajectories go on. Those of a group that stays as it ended, failures included, are over.
func TestAgentsOfAGroupThatStaysAsItEnded(t *testing.T) {
	sampler := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("said") })
	g, err := gateway.New(gateway.Options{
		Engine: sampler.Engine, Renderer: rollouttest.Renderer(t, rollouttest.ChatML), Decode: rollouttest.Decode, Model: "policy", MaxTotal: sampler.MaxTotal, Sampling: sampler.Sampling,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	})
	require.NoError(t, err)
	defer g.Close()
	sampler.External = &rollout.External{Gateway: g, Adopt: true, Secret: []byte("secret")}

	log := &store.Recovery{Taken: map[int]int{3: 2}, Dealt: []int{2}}
	for n := range 2 { // the second is of a further round, in place of the first
		failed := &trajectory.Trajectory{ID: store.ID(store.Train, 3, n, 0), Step: 3, Group: n}
		failed.Fail(trajectory.OriginAgent, "gone")
		log.Outstanding = append(log.Outstanding, store.Outstanding{
			Admission: store.Admission{Phase: store.Train, Step: 3, Group: n, Size: 1, Position: n}, Latest: n == 1,
			Finished: []*trajectory.Trajectory{failed}, Partial: make([]*trajectory.Trajectory, 1),
		})
	}
	sampler.AwaitAgents("train-3-0-0", "train-3-1-0")
	o := NewRL(&job.Job{Rollout: job.Rollout{Groups: 1, GroupSize: 1, MaxRefills: 3}}, &algorithms.Algorithm{DynamicSampling: true}, sampler, &data.Dealer{Strata: [][]trajectory.Task{{{ID: "q"}}}}, nil)
	o.Prepare(Found{Groups: schedule.Recovered{Log: log}})
	_, err = o.openFeed(At{Step: 3})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for id, waits := range map[string]bool{"train-3-0-0": false, "train-3-1-0": true} {
		_, later := g.Expects(ctx, sessionkey.Of([]byte("secret"), sampler.RunName+"/"+id))
		require.Equal(t, waits, later, id)
	}
}
