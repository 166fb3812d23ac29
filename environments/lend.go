package environments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// CallError is what a Caller returns where a call is wrong and the environment is as it was: there is no method of that name, or it takes other
// arguments. The environment can be asked on, and who called reads the text.
type CallError struct{ Text string }

func (e *CallError) Error() string { return e.Text }

// Lend is a tool that acts in the environment of its trajectory (tools.Spec.Environment): it gets tools.Call.Environment, and what its steps paid is
// the outcome of its call, as that of an action is. Its calls come one after the other with the actions of the turn.
func (s *Stage) Lend(t tools.Tool) tools.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent[t.Spec().Name] = true
	return lent{t, s}
}

// lent is a tool with an environment.
type lent struct {
	tools.Tool
	stage *Stage
}

var _ tools.Ender = lent{}

// End passes on the end of a trajectory.
func (l lent) End(trajectory string) {
	if e, ok := l.Tool.(tools.Ender); ok {
		e.End(trajectory)
	}
}

// Err is why the tool has no schema, for Registry.Register.
func (l lent) Err() error {
	if broken, ok := l.Tool.(interface{ Err() error }); ok {
		return broken.Err()
	}
	return nil
}

// Call lends the environment to the tool for the time of the call. Where the call fails, what it did before is its outcome nevertheless.
func (l lent) Call(ctx context.Context, c tools.Call) (o tools.Observation, err error) {
	p := l.stage.player(c.Trajectory)
	if p == nil {
		return o, &tools.BrokenError{Text: "the environment of this trajectory has ended"}
	}
	h := &hand{player: p, tool: l.Spec().Name}
	returned := false
	defer func() {
		if !returned { // it panicked
			h.drop(fmt.Errorf("the tool %s ended in the middle of what it did in the environment", h.tool))
		}
	}()
	c.Environment = h.ask
	o, err = l.Tool.Call(ctx, c)
	returned = true
	if ctx.Err() != nil { // nobody takes what it did
		h.drop(fmt.Errorf("the tool %s did not end in time after it had acted in the environment; give it longer, or less to do", h.tool))
		return o, err
	}
	outcome, broke := h.give(ctx)
	if broke != nil {
		return tools.Observation{}, &tools.BrokenError{Text: broke.Error()}
	}
	o.Outcome = outcome
	return o, err
}

// hand is what one call of a tool does in the environment.
type hand struct {
	player *player
	tool   string

	// guarded by player.mu
	acted bool // something was done that the record must have: the call is counted in player.open
	over  bool // the call is
	steps bool // a step was among it
	sum   trajectory.Outcome
}

// errHandOver is what a tool reads that asks after its call.
var errHandOver = errors.New("it is no longer the tool's: the call that it was lent to is over")

// ask answers a tool.
func (h *hand) ask(ctx context.Context, op string, arguments json.RawMessage) (json.RawMessage, error) {
	p := h.player
	p.mu.Lock()
	if h.over {
		p.mu.Unlock()
		return nil, errHandOver
	}
	if (op == "step" || op == "call") && !h.acted { // a method of its own may change it
		h.acted = true
		p.open++
	}
	p.mu.Unlock()
	result, step, err := askEpisode(ctx, p.episode, op, arguments)
	failed := new(Failure)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.As(err, &failed):
		p.fail(err)
	case err == nil && step != nil:
		h.steps = true
		h.sum.Reward += step.Reward
		h.sum.Terminated, h.sum.Truncated, h.sum.Success = step.Terminated, step.Truncated, step.Success
	}
	return result, err
}

// give ends the call, and returns what the record has of it; nil: it changed nothing.
func (h *hand) give(ctx context.Context) (*trajectory.Outcome, error) {
	p := h.player
	p.mu.Lock()
	h.over = true
	acted, failed := h.acted, p.failed
	p.mu.Unlock()
	if !acted {
		return nil, failed
	}
	var err error
	if failed == nil {
		if last := p.episode.Last(); !h.steps { // what was only looked at is as it was
			h.sum.Terminated, h.sum.Truncated, h.sum.Success = last.Terminated, last.Truncated, last.Success
		}
		h.sum.Anchor = p.episode.Anchor()
		h.sum.State, err = stateOf(ctx, p.episode, &h.sum)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if err != nil {
		p.fail(err)
	}
	return &h.sum, p.failed
}

// drop ends a call of which nothing is recorded. Where it acted the trajectory cannot go on.
func (h *hand) drop(why error) {
	p := h.player
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.over = true; h.acted {
		p.open--
		p.fail(why)
	}
}

// askEpisode asks an episode for what a tool or a reward may ask. step is that of an action.
func askEpisode(ctx context.Context, e *Episode, op string, arguments json.RawMessage) (out json.RawMessage, step *Result, err error) {
	var asked struct {
		Text      string          `json:"text"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &asked); err != nil {
			return nil, nil, fmt.Errorf("what is asked cannot be read: %s", wording.JSONReason(err))
		}
	}
	var v any
	switch op {
	case "step":
		r, err := e.Step(ctx, Action{Text: asked.Text, Name: asked.Name, Arguments: asked.Arguments})
		if err != nil {
			return nil, nil, err
		}
		step, v = &r, map[string]any{
			"observation": TextOf(r.Observation), "reward": r.Reward, "terminated": r.Terminated, "truncated": r.Truncated, "success": r.Success,
			"refused": r.Failure == trajectory.FailurePolicy, "info": r.Info,
		}
	case "actions":
		all, has, err := e.Actions(ctx)
		if err == nil && !has {
			err = errors.New("the environment cannot list the actions that are possible")
		}
		if err != nil {
			return nil, nil, err
		}
		v = append([]string{}, all...)
	case "score":
		score, has, err := e.Score(ctx)
		if err != nil {
			return nil, nil, err
		}
		if has {
			v = score
		}
	case "call":
		v, has, err := e.Call(ctx, asked.Name, asked.Arguments)
		if err == nil && !has {
			err = fmt.Errorf("the environment has no method %s: its functions are step, actions and score", wording.Clip(asked.Name, 64))
		}
		return v, nil, err
	default:
		return nil, nil, fmt.Errorf("there is no question %q to an environment", wording.Clip(op, 64))
	}
	out, err = json.Marshal(v)
	return out, step, err
}

// Ask answers what a reward asks the environment of a trajectory, which it may look at and not act in. An error that is a *Failure is the
// environment's, and Failed tells it too.
func (s *Stage) Ask(ctx context.Context, name, op string, arguments json.RawMessage) (json.RawMessage, error) {
	p := s.player(name)
	switch {
	case p == nil:
		return nil, errOver
	case op == "step":
		return nil, errors.New("a reward does not act in the environment: it asks for score, actions or a method of the environment's")
	}
	out, _, err := askEpisode(ctx, p.episode, op, arguments)
	if f := (*Failure)(nil); errors.As(err, &f) && !f.givenUp {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fail(err)
	}
	return out, err
}
