package session

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// toolMaker makes the tools of a job.
type toolMaker struct {
	job       *job.Job
	catalog   *tools.Catalog
	resources *resources.Resources
	world     *World // nil: none, or it is not made
}

// all makes the job's tools, with its deadline for a call and its environment's actions beside them. whole is false where some cannot be made
// without running what they name, and the job is only looked at.
func (m toolMaker) all(ctx context.Context, o tools.Options) (chosen *tools.Registry, whole bool, err error) {
	j := m.job
	o.Timeout, o.MaxTokens = job.Seconds(j.Rollout.ToolTimeout), j.Rollout.ToolTokens
	chosen, whole = tools.NewRegistry(o), true
	var wrong []error
	for i := range j.Agent.Tools {
		err := m.entry(ctx, i, chosen)
		if notRun(err) {
			whole = false
		} else {
			wrong = append(wrong, err)
		}
	}
	if err := j.Collect(wrong...); err != nil {
		return nil, false, err
	}
	if j.Environment != nil {
		whole = whole && m.world != nil
		if err := m.world.actions(chosen, 2*job.Seconds(j.Environment.StepTimeout)+leeway); err != nil {
			return nil, false, j.Fail("environment", "%s", job.Plain(err, "tools: "))
		}
	}
	return chosen, whole, nil
}

// entry makes the tools of an entry of agent.tools.
func (m toolMaker) entry(ctx context.Context, i int, into *tools.Registry) error {
	j := m.job
	ref, path := j.Agent.Tools[i], "agent.tools."+strconv.Itoa(i)
	made, err := m.catalog.Make(ctx, m.resources, ref)
	switch {
	case notRun(err):
		return err
	case err != nil:
		return j.Fail(path+unknownKey(err), "%s", job.Plain(err, "tools: "))
	case ref.Cache && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Deterministic }):
		return j.Fail(path+".cache", "the tool does not say that it is deterministic, so nothing can be kept; leave it out")
	case ref.Limits.Retries > 0 && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Idempotent }):
		return j.Fail(path+".retries", "the tool does not say that it is idempotent, so no call can be tried again; leave it out")
	}
	for _, t := range made {
		if t, err = m.world.lend(j, t); err != nil {
			return j.Fail(path, "%v", err)
		}
		if err := into.RegisterAs(t, ref); err != nil {
			return j.Fail(path, "%s", job.Plain(err, "tools: "))
		}
	}
	return nil
}

// unknownKey is the end of the path to a parameter that does not exist; "" where the error is another one.
func unknownKey(err error) string {
	if unknown := (*resources.UnknownError)(nil); errors.As(err, &unknown) {
		return "." + unknown.Names[0]
	}
	return ""
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
		ObservationRole: observationRole(j),
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

// observationRole is the role of results; "": the format's own. OpenAI takes the role tool only behind a call in its own form, with an id, and
// calls are text here.
func observationRole(j *job.Job) string {
	if j.Agent.ObservationRole == "" && j.Engine.Kind == "openai" {
		return "user"
	}
	return j.Agent.ObservationRole
}

// newResources are what the job's tools and rewards share. look: nothing that the job names is run.
func newResources(j *job.Job, warn func(text string), log io.Writer, look bool) *resources.Resources {
	resolve := func(path string) string {
		if note := j.FoundElsewhere(path); note != "" && warn != nil {
			warn(note)
		}
		return j.Resolve(path)
	}
	return resources.New(resources.Options{Resolve: resolve, Sandbox: j.Sandbox, Gradings: j.Rollout.Gradings, Warn: warn, Log: log, Look: look})
}

// term is one of the job's rewards.
type term struct {
	at     int // in the job's list
	reward rewards.Reward
}

// makeReward makes the job's rewards and their sum. Everything that is wrong with them is told at once.
func makeReward(j *job.Job, b *rewards.Builder) (rewards.Reward, []term, error) {
	var terms []rewards.Weighted
	var all []term
	var wrong []error
	for i, w := range j.Rewards { // a job that does not train on rewards may have none
		made, err := b.Make(w.Name, w.Params)
		if notRun(err) {
			continue
		}
		if err != nil {
			path := strings.Join(append([]string{"rewards", strconv.Itoa(i)}, rewards.Keys(err)...), ".") + unknownKey(err)
			wrong = append(wrong, j.Fail(path, "%s", job.Plain(err, "rewards: ")))
			continue
		}
		terms, all = append(terms, rewards.Weighted{Reward: made, Weight: w.Weight}), append(all, term{i, made})
	}
	if len(wrong) > 0 {
		return nil, nil, j.Collect(wrong...)
	}
	if len(terms) == 0 { // of those that can be made without running anything
		return nil, nil, nil
	}
	sum, err := rewards.NewSum(job.Seconds(j.Rollout.RewardTimeout), terms...)
	if err != nil {
		return nil, nil, j.Fail("rewards", "%s", job.Plain(err, "rewards: "))
	}
	return sum, all, nil
}
