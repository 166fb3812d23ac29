package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/trajectory"
)

// Demonstrate has the solver of the job's environment act in the policy's place, in an episode of the task at an index. It returns the
// conversation as the policy would have had it, prompt included, for supervised fine-tuning to learn from, and the scored trajectory.
func (p *Player) Demonstrate(ctx context.Context, index int) ([]trajectory.Message, *trajectory.Trajectory, error) {
	s := p.session.Sampler // a copy
	switch {
	case s.World == nil:
		return nil, nil, p.Job.Fail("environment", "is missing; its solver is what a demonstration shows")
	case p.Job.Agent.Kind != agents.OneAction:
		return nil, nil, p.Job.Fail("agent.kind", "%s: demonstrations are written for agents of kind %s", p.Job.Agent.Kind, agents.OneAction)
	}
	place := rollout.Place{Phase: "demonstrate", Group: index, Task: p.Tasks[index]}
	solver := &solver{Engine: s.Engine, stage: s.World.Stage, trajectory: place.ID(), encode: p.session.Policy.Tokenizer.Encode, end: s.Sampling.StopIDs[0]}
	s.Engine = solver
	t := s.Sample(ctx, place)
	if solver.failed != nil {
		return nil, t, solver.failed
	}
	if t.Err != "" {
		return nil, t, errors.New(t.Err)
	}
	last := masks.Reply{History: solver.asked, Completion: t.Turns[len(t.Turns)-1].Completion}
	return last.Messages(), t, nil
}

// solver is an engine that answers with the actions of an environment's solver, one a turn.
type solver struct {
	engines.Engine
	stage      *environments.Stage
	trajectory string
	encode     func(text string) []int32
	end        int32 // the stop token
	actions    []environments.Action
	begun      bool
	asked      []trajectory.Message // of the newest turn
	failed     error
}

// Generate implements engines.Engine.
func (s *solver) Generate(ctx context.Context, r engines.Request) (c engines.Completion, err error) {
	defer func() { s.failed = errors.Join(s.failed, err) }()
	if !s.begun {
		actions, ok, err := s.stage.Solution(ctx, s.trajectory)
		if err != nil {
			return c, err
		}
		if !ok {
			return c, errors.New("the environment has no solver")
		}
		s.actions, s.begun = actions, true
	}
	if len(s.actions) == 0 {
		return c, errors.New("the solver has no further action, and the episode goes on")
	}
	a := s.actions[0]
	if a.Name != "" {
		return c, fmt.Errorf("the solver calls the tool %s; demonstrations are written of actions that are texts", a.Name)
	}
	s.actions, s.asked = s.actions[1:], slices.Clone(r.Messages)
	ids := append(s.encode(a.Text), s.end)
	return engines.Completion{TokenIDs: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), FinishReason: trajectory.FinishStop}, nil
}
