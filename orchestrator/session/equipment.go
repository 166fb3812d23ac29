package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// makeTools makes the job's tools, with its deadline for a call and its environment's actions beside them, and the agent that calls them.
func (s *Session) makeTools(ctx context.Context, all Registries, o tools.Options) (*tools.Registry, *agents.Agent, error) {
	j, r := s.Job, s.resources
	o.Timeout, o.MaxTokens = job.Seconds(j.Rollout.ToolTimeout), j.Rollout.ToolTokens
	chosen, whole := tools.NewRegistry(o), true
	for i, ref := range j.Agent.Tools {
		path := fmt.Sprintf("agent.tools.%d", i)
		made, err := all.Tools.Make(ctx, r, ref)
		if notRun(err) {
			whole = false
			continue
		}
		if err != nil {
			return nil, nil, j.Fail(path, "%s", job.Plain(err, "tools: "))
		}
		if ref.Cache && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Deterministic }) {
			return nil, nil, j.Fail(path+".cache", "the tool does not say that it is deterministic, so nothing can be kept; leave it out")
		}
		if ref.Limits.Retries > 0 && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Idempotent }) {
			return nil, nil, j.Fail(path+".retries", "the tool does not say that it is idempotent, so no call can be tried again; leave it out")
		}
		for _, t := range made {
			if t, err = s.world.lend(j, t); err != nil {
				return nil, nil, j.Fail(path, "%v", err)
			}
			if err := chosen.RegisterAs(t, ref); err != nil {
				return nil, nil, j.Fail(path, "%s", job.Plain(err, "tools: "))
			}
		}
	}
	if j.Environment != nil {
		whole = whole && s.world != nil
		if err := s.world.actions(chosen, 2*job.Seconds(j.Environment.StepTimeout)+leeway); err != nil {
			return nil, nil, j.Fail("environment", "%s", job.Plain(err, "tools: "))
		}
	}
	agent, err := makeAgent(ctx, j, all.Agents, r, s.systemOf(), chosen.Specs())
	if err != nil && !whole { // it may want the tools that are not there
		return chosen, nil, nil
	}
	return chosen, agent, err
}

// notRun says that a job is only looked at, and that something of it cannot be made without running what it names: resources.Run.
func notRun(err error) bool {
	var left *resources.NotRunError
	return errors.As(err, &left)
}

// makeAgent makes the job's agent for its tools.
func makeAgent(ctx context.Context, j *job.Job, all *agents.Registry, r *resources.Resources, system string, specs []tools.Spec) (*agents.Agent, error) {
	a, err := all.New(ctx, r, agents.Config{
		Format: j.Agent.Format, Python: j.Agent.Python, System: system, Instructions: j.Agent.Instructions,
		ObservationRole: j.Agent.ObservationRole,
	}, specs)
	switch {
	case notRun(err):
		return nil, nil
	case err != nil && j.Agent.Python != "":
		return nil, j.Fail("agent.python", "%s", job.Plain(err, "agents: "))
	case err != nil:
		return nil, j.Fail("agent.format", "%s", job.Plain(err, "agents: "))
	}
	return a, nil
}

// newResources are what the job's tools and rewards share. look: nothing that the job names is run.
func newResources(j *job.Job, warn func(text string), look bool) *resources.Resources {
	return resources.New(resources.Options{Resolve: j.Resolve, Sandbox: j.Sandbox, Gradings: j.Rollout.Gradings, Warn: warn, Look: look})
}

func makeReward(j *job.Job, b *rewards.Builder) (rewards.Reward, error) {
	if len(j.Rewards) == 0 { // of a job that does not train on rewards
		return nil, nil
	}
	var terms []rewards.Weighted
	for i, w := range j.Rewards {
		made, err := b.Make(w.Name, w.Params)
		if notRun(err) {
			continue
		}
		if err != nil {
			return nil, j.Fail(strings.Join(append([]string{"rewards", strconv.Itoa(i)}, rewards.Keys(err)...), "."), "%s", job.Plain(err, "rewards: "))
		}
		terms = append(terms, rewards.Weighted{Reward: made, Weight: w.Weight})
	}
	if len(terms) == 0 { // of those that can be made without running anything
		return nil, nil
	}
	sum, err := rewards.NewSum(job.Seconds(j.Rollout.RewardTimeout), terms...)
	if err != nil {
		return nil, j.Fail("rewards", "%s", job.Plain(err, "rewards: "))
	}
	return sum, nil
}
