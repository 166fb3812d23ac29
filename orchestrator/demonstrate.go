package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/trajectory"
)

// Demonstration is a conversation as the policy would have had it, prompt included, for supervised fine-tuning to learn from.
type Demonstration struct {
	Messages []trajectory.Message
	Tools    []json.RawMessage // OpenAI schemas that the chat template wrote; nil: none
}

// Demonstrate has the solver of the job's environment act in the policy's place, in an episode of the task at an index. It returns the
// conversation and the scored trajectory.
func (p *Player) Demonstrate(ctx context.Context, index int) (*Demonstration, *trajectory.Trajectory, error) {
	s := p.session.Sampler // a copy
	if s.World == nil {
		return nil, nil, p.Job.Fail("environment", "is missing; its solver is what a demonstration shows")
	}
	writer, writes := s.Format.(agents.Writer)
	if p.Job.Agent.Kind != agents.OneAction && !writes {
		return nil, nil, p.Job.Fail("agent.format", "%s: demonstrations are written in the formats tags and hermes, and for agents of kind %s", p.Job.Agent.Format, agents.OneAction)
	}
	place := rollout.Place{Phase: "demonstrate", Group: index, Task: p.Tasks[index]}
	solver := &solver{
		Engine: s.Engine, stage: s.World.Stage, trajectory: place.ID(), writer: writer, tokenizer: p.session.Policy.Tokenizer, end: s.Sampling.StopIDs[0],
		thoughts: map[int]string{},
	}
	s.Engine = solver
	t := s.Sample(ctx, place)
	if solver.failed != nil {
		return nil, t, solver.failed
	}
	if t.Failed() {
		return nil, t, errors.New(t.Err)
	}
	last := masks.Reply{History: solver.asked, Completion: t.Turns[len(t.Turns)-1].Completion}
	messages := last.Messages()
	for i, thought := range solver.thoughts { // who learns from them ends the thoughts of the prompts
		text, err := messages[i].TextContent()
		if err != nil {
			return nil, t, err
		}
		messages[i] = trajectory.Text(messages[i].Role, strings.TrimPrefix(text, thought))
	}
	return &Demonstration{messages, s.Schemas}, t, nil
}

// solver is an engine that answers with the actions of an environment's solver, one a turn.
type solver struct {
	engines.Engine
	stage      *environments.Stage
	trajectory string
	writer     agents.Writer // of calls; nil: the solver's actions are texts
	tokenizer  *tokenizer.Tokenizer
	end        int32          // the stop token
	thoughts   map[int]string // by the index of the message that a turn becomes: what ends the thought that its prompt opened, if it did
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
	text := a.Text
	switch {
	case a.Name != "" && s.writer == nil:
		return c, fmt.Errorf("the solver calls the tool %s, and agents of kind %s write texts; take an agent.kind that calls tools", a.Name, agents.OneAction)
	case a.Name == "" && s.writer != nil:
		return c, fmt.Errorf("the solver's actions are texts; take agent.kind %s", agents.OneAction)
	case a.Name != "":
		call := trajectory.ToolCall{Name: a.Name, Arguments: a.Arguments}
		text = s.writer.Write(call)
		if err := s.reads(ctx, text, call); err != nil {
			return c, err
		}
	}
	s.actions, s.asked = s.actions[1:], slices.Clone(r.Messages)
	thought := masks.EndOfThought(s.tokenizer.Decode(r.Prompt, false))
	if thought != "" {
		s.thoughts[len(r.Messages)] = thought
	}
	ids := append(s.tokenizer.Encode(thought+text), s.end)
	return engines.Completion{TokenIDs: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), FinishReason: trajectory.FinishStop}, nil
}

// reads holds what the format reads of a call that it wrote against the call: a tag cannot hold every argument.
func (s *solver) reads(ctx context.Context, text string, call trajectory.ToolCall) error {
	parsed, err := s.writer.Parse(ctx, text)
	if err != nil {
		return err
	}
	arguments := json.RawMessage(cmp.Or(string(call.Arguments), "{}"))
	if len(parsed.Calls) != 1 || parsed.Calls[0].Name != call.Name || dialects.Canonical(parsed.Calls[0].Arguments) != dialects.Canonical(arguments) {
		return fmt.Errorf("the solver's call %s %s cannot be written in the job's agent.format; take hermes", call.Name, arguments)
	}
	return nil
}
