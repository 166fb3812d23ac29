package environments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Stage has the running episodes of trajectories, and the tools whose calls are actions in them. All methods are safe for concurrent use.
type Stage struct {
	manager *Manager
	mu      sync.Mutex
	playing map[string]*player // by trajectory
	lent    map[string]bool    // names of tools that act beside the actions
}

// player is a trajectory's episode.
type player struct {
	episode *Episode
	start   Start
	mu      sync.Mutex
	failed  error // of the infrastructure; the trajectory cannot go on
	open    int   // calls of tools that acted and have not ended
}

// fail keeps the first failure. The lock is held.
func (p *player) fail(err error) { p.failed = cmp.Or(p.failed, err) }

const mostState = 64 << 10 // bytes of a state that is recorded with an action

// NewStage is a stage for the episodes of a manager.
func NewStage(m *Manager) *Stage {
	return &Stage{manager: m, playing: map[string]*player{}, lent: map[string]bool{}}
}

// Spec is that of the environments.
func (s *Stage) Spec() Spec { return s.manager.Spec() }

// Acts tells whether a tool of that name is an action, or acts in the environment.
func (s *Stage) Acts(tool string) bool {
	if s.manager.rules.tools[tool] != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lent[tool]
}

// Begin waits for an environment and begins the episode of a trajectory, which End ends.
func (s *Stage) Begin(ctx context.Context, owner pool.Owner, start Start) (*Episode, error) {
	e, err := s.manager.Begin(ctx, owner, start)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.playing[owner.Name] = &player{episode: e, start: start}
	s.mu.Unlock()
	return e, nil
}

// End ends the episode of a trajectory, if it has one.
func (s *Stage) End(name string) {
	s.mu.Lock()
	p := s.playing[name]
	delete(s.playing, name)
	s.mu.Unlock()
	if p != nil {
		p.episode.End()
	}
}

// Failed is why the environment of a trajectory failed, or why its record would miss what was done in it; nil: neither. It is asked between calls.
func (s *Stage) Failed(name string) error {
	p := s.player(name)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil && p.open > 0 {
		return errors.New("a tool that acted in the environment has not ended, and what it did is not recorded; give it longer, or less to do")
	}
	return p.failed
}

func (s *Stage) player(name string) *player {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.playing[name]
}

// Tools are the actions. Each belongs to the stage; none keeps state that recovery would not find again.
func (s *Stage) Tools() []tools.Tool {
	specs := s.Spec().Actions()
	out := make([]tools.Tool, len(specs))
	for i, spec := range specs {
		spec.Stateful, spec.Deterministic, spec.Idempotent, spec.Terminal = false, false, false, false
		out[i] = act{s, spec, len(s.Spec().Tools) > 0}
	}
	return out
}

// act is an action as a tool.
type act struct {
	stage *Stage
	spec  tools.Spec
	own   bool // the environment's own tool, not Act
}

func (a act) Spec() tools.Spec { return a.spec }

// Call acts in the episode of the call's trajectory. A failure of the infrastructure is told to the caller here, and to the sampler by Failed.
func (a act) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	p := a.stage.player(c.Trajectory)
	if p == nil {
		return tools.Observation{}, &tools.BrokenError{Text: "the environment of this trajectory has ended"}
	}
	action, err := a.action(c.Arguments)
	if err != nil {
		return tools.Observation{}, err
	}
	o, err := actIn(ctx, p.episode, action)
	if err != nil {
		p.mu.Lock()
		p.fail(err)
		p.mu.Unlock()
		return tools.Observation{}, &tools.BrokenError{Text: err.Error()}
	}
	return o, nil
}

func (a act) action(arguments json.RawMessage) (Action, error) {
	if a.own {
		return Action{Name: a.spec.Name, Arguments: arguments}, nil
	}
	var text struct{ Action string }
	err := json.Unmarshal(arguments, &text)
	return Action{Text: text.Action}, err
}

// actIn acts, and keeps what the record needs: the outcome, and the state where the environment has one that is small.
func actIn(ctx context.Context, e *Episode, a Action) (tools.Observation, error) {
	r, err := e.Step(ctx, a)
	if err != nil {
		return tools.Observation{}, err
	}
	out := tools.Observation{Text: TextOf(r.Observation), Info: r.Info, Refused: r.Failure == trajectory.FailurePolicy, Outcome: &trajectory.Outcome{
		Reward: r.Reward, Terminated: r.Terminated, Truncated: r.Truncated, Success: r.Success, Anchor: r.Anchor,
	}}
	out.Outcome.State, err = stateOf(ctx, e, out.Outcome)
	return out, err
}

// stateOf is the state that is recorded with an action: nil after the end, where the environment keeps none, and where it is too big.
func stateOf(ctx context.Context, e *Episode, after *trajectory.Outcome) (json.RawMessage, error) {
	if after.Over() {
		return nil, nil
	}
	state, has, err := e.State(ctx)
	if err != nil || !has || len(state) > mostState {
		return nil, err
	}
	return state, nil
}

// TextOf joins the texts of an observation, a line each. An image is named, for models that read text only.
func TextOf(o Observation) string {
	var b strings.Builder
	for i, part := range o {
		if i > 0 {
			b.WriteByte('\n')
		}
		if part.Type == "text" {
			b.WriteString(part.Text)
		} else {
			b.WriteString("[" + part.Type + "]")
		}
	}
	return b.String()
}

// Restore takes the episode of a trajectory, which has just begun, to a state.
func (s *Stage) Restore(ctx context.Context, name string, state json.RawMessage) error {
	p := s.player(name)
	if p == nil {
		return errOver
	}
	has, err := p.episode.Restore(ctx, p.start, state)
	if err == nil && !has {
		err = errors.New("it keeps no states")
	}
	return err
}

// Solution are actions that end the episode of a trajectory, which has just begun, with full reward; false: the environment knows none.
func (s *Stage) Solution(ctx context.Context, name string) ([]Action, bool, error) {
	p := s.player(name)
	if p == nil {
		return nil, false, errOver
	}
	return p.episode.Solution(ctx)
}

// Score is the environment's own reward for the episode of a trajectory; false: it has none.
func (s *Stage) Score(ctx context.Context, name string) (float64, bool, error) {
	p := s.player(name)
	if p == nil {
		return 0, false, errOver
	}
	return p.episode.Score(ctx)
}
