package pyenv

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentfly/agentfly/environments"
)

// The powers that a class may have, each a type of its own, so that an environment has the methods of those that its class offers and no other.
type (
	stater  struct{ of *environment }
	scorer  struct{ of *environment }
	chooser struct{ of *environment }
	solver  struct{ of *environment }
)

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Checker     = (*environment)(nil)
	_ environments.Caller      = (*environment)(nil)
	_ environments.Stater      = stater{}
	_ environments.Scorer      = scorer{}
	_ environments.Chooser     = chooser{}
	_ environments.Solver      = solver{}
)

func (p stater) State(ctx context.Context) (out json.RawMessage, err error) {
	err = p.of.ask(ctx, "env_state", nil, &out)
	return out, err
}

func (p stater) Restore(ctx context.Context, state json.RawMessage) error {
	return p.of.ask(ctx, "env_restore", map[string]json.RawMessage{"state": state}, nil)
}

func (p scorer) Score(ctx context.Context) (out float64, err error) {
	err = p.of.ask(ctx, "env_score", nil, &out)
	return out, err
}

func (p chooser) Actions(ctx context.Context) (out []string, err error) {
	err = p.of.ask(ctx, "env_actions", nil, &out)
	return out, err
}

func (p solver) Solution(ctx context.Context) ([]environments.Action, error) {
	var found []action
	err := p.of.ask(ctx, "env_solution", nil, &found)
	out := make([]environments.Action, len(found))
	for i, a := range found {
		out[i] = environments.Action(a)
	}
	return out, err
}

// with gives an environment the powers of its class.
func (e *environment) with(powers []string) environments.Environment {
	state, score, choose, solve := stater{e}, scorer{e}, chooser{e}, solver{e}
	bits := 0
	for i, name := range []string{"state", "score", "actions", "solution"} {
		if slices.Contains(powers, name) {
			bits |= 1 << i
		}
	}
	switch bits {
	case 1:
		return struct {
			*environment
			stater
		}{e, state}
	case 2:
		return struct {
			*environment
			scorer
		}{e, score}
	case 3:
		return struct {
			*environment
			stater
			scorer
		}{e, state, score}
	case 4:
		return struct {
			*environment
			chooser
		}{e, choose}
	case 5:
		return struct {
			*environment
			stater
			chooser
		}{e, state, choose}
	case 6:
		return struct {
			*environment
			scorer
			chooser
		}{e, score, choose}
	case 7:
		return struct {
			*environment
			stater
			scorer
			chooser
		}{e, state, score, choose}
	case 8:
		return struct {
			*environment
			solver
		}{e, solve}
	case 9:
		return struct {
			*environment
			stater
			solver
		}{e, state, solve}
	case 10:
		return struct {
			*environment
			scorer
			solver
		}{e, score, solve}
	case 11:
		return struct {
			*environment
			stater
			scorer
			solver
		}{e, state, score, solve}
	case 12:
		return struct {
			*environment
			chooser
			solver
		}{e, choose, solve}
	case 13:
		return struct {
			*environment
			stater
			chooser
			solver
		}{e, state, choose, solve}
	case 14:
		return struct {
			*environment
			scorer
			chooser
			solver
		}{e, score, choose, solve}
	case 15:
		return struct {
			*environment
			stater
			scorer
			chooser
			solver
		}{e, state, score, choose, solve}
	}
	return e
}
