// Package textworld is kind textworld: games that TextWorld (arXiv 1806.11532, MIT) generates and compiles: cooking, coins, treasures and a simple
// house. A game is made when its task is played first, which takes some seconds, and is kept in the cache folder of the user, by the version of the
// package and a hash of the game's settings. Generator and interpreter are the Python package's; this holds the class that asks them (world.py) and
// runs in a worker of package environments/python.
//
// It does not lend environments or hold deadlines: package environments does.
package textworld

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

//go:embed world.py
var world []byte

// Version is the beginning of the package's version.
const Version = "1.7"

// Params are those of kind textworld.
type Params struct {
	Game        string         `json:"game"`         // cooking, coin_collector, treasure_hunter or simple
	Params      map[string]any `json:"params"`       // options of the game, as tw-make names them: {level: 5}, {recipe: 2, take: 2, cook: true}
	EvalFold    string         `json:"eval_fold"`    // of cooking: valid (the default) or test, the package's foods of split eval
	ListActions bool           `json:"list_actions"` // observations end with what is possible
	MaxSteps    int            `json:"max_steps"`    // default 50
	Cache       string         `json:"cache"`        // folder of games; default textworld in the cache folder of the user
	Interpreter string         `json:"interpreter"`  // a Python with the package; default python3
	Instruction *string        `json:"instructions"` // in place of what the agent is told
}

const instructions = `You act in a text world. Each action is one short command, such as "look", "inventory", "go north", "open fridge", "take apple from fridge", "examine cookbook", "cook apple with stove", "prepare meal" or "eat meal".`

// Kind is the kind "textworld".
func Kind() environments.Kind {
	return environments.Kind{Name: "textworld", Description: "TextWorld's generated games (cooking, coin_collector, treasure_hunter, simple), kept in a cache", New: open}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{EvalFold: "valid", MaxSteps: 50}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Game == "":
		return nil, errors.New("the game is missing; write game: cooking, or coin_collector, treasure_hunter, simple")
	case p.EvalFold != "valid" && p.EvalFold != "test":
		return nil, fmt.Errorf("eval_fold: %q is not known; allowed: valid, test", p.EvalFold)
	case p.MaxSteps < 1:
		return nil, errors.New("max_steps must be above 0; leave it out for the default")
	}
	cache, err := r.Whole(p.Cache)
	if p.Cache == "" {
		cache, err = r.Cache("textworld")
	}
	if err != nil {
		return nil, err
	}
	if p.Params == nil {
		p.Params = map[string]any{}
	}
	return pyenv.New(ctx, r, pyenv.Options{
		Name: "textworld", File: "textworldgames.py", Source: world,
		Config: map[string]any{
			"class": "textworldgames.py:World", "protocol": "gymnasium", "max_steps": p.MaxSteps, "requires": map[string]string{"textworld": Version},
			"kwargs": map[string]any{"game": p.Game, "params": p.Params, "eval_fold": p.EvalFold, "list_actions": p.ListActions, "cache": cache},
		},
		Instructions: cmp.Or(p.Instruction, new(instructions)), Deterministic: new(true),
		Worker: pyenv.Worker{Interpreter: p.Interpreter},
	})
}
