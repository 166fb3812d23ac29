// Package alfworld is kind alfworld: the six types of household tasks of ALFWorld (arXiv 2010.03768, MIT) as text games: put, clean, heat, cool, look at
// under a lamp, put two. Games are made of the domain and the grammar that the Python package ships (games.py), or are the original ones, from the
// folder that alfworld-download fills. The engine is the package's; this holds the class that asks it (world.py) and runs in a worker of package
// environments/python. The package's planner is asked for solutions alone: it takes longer than an episode.
//
// It does not lend environments or hold deadlines: package environments does.
package alfworld

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

//go:embed games.py
var games []byte

//go:embed world.py
var world []byte

// Version is the beginning of the package's version.
const Version = "0.4"

// Params are those of kind alfworld.
type Params struct {
	Types       []string `json:"types"`        // of tasks, by the names of the package; default all six
	Data        string   `json:"data"`         // folder of the original games, or $ALFWORLD_DATA; default: games are generated
	EvalFold    string   `json:"eval_fold"`    // with data: valid_unseen (the default) or valid_seen, the games of split eval
	ListActions bool     `json:"list_actions"` // observations end with what is possible
	MaxSteps    int      `json:"max_steps"`    // default 50
	Interpreter string   `json:"interpreter"`  // a Python with the package; default python3
	Instruction *string  `json:"instructions"` // in place of what the agent is told
}

const instructions = `You act in a household. Each action is one short command, such as "look", "inventory", "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "move apple 1 to countertop 1", "clean mug 1 with sinkbasin 1", "heat mug 1 with microwave 1", "cool mug 1 with fridge 1", "use desklamp 1" or "examine mug 1".`

// Kind is the kind "alfworld".
func Kind() environments.Kind {
	return environments.Kind{Name: "alfworld", Description: "ALFWorld's household tasks as text games, generated or the original ones (types, data)", New: open}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{EvalFold: "valid_unseen", MaxSteps: 50}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.EvalFold != "valid_unseen" && p.EvalFold != "valid_seen":
		return nil, fmt.Errorf("eval_fold: %q is not known; allowed: valid_unseen, valid_seen", p.EvalFold)
	case p.MaxSteps < 1:
		return nil, errors.New("max_steps must be above 0; leave it out for the default")
	}
	if p.Types == nil {
		p.Types = []string{}
	}
	data, err := dataFolder(r, p.Data)
	if err != nil {
		return nil, err
	}
	return pyenv.New(ctx, r, pyenv.Options{
		Name: "alfworld", File: "alfworldgames.py", Source: append(append([]byte(nil), games...), world...),
		Config: map[string]any{
			"class": "alfworldgames.py:World", "protocol": "gymnasium", "max_steps": p.MaxSteps, "requires": map[string]string{"alfworld": Version},
			"kwargs": map[string]any{"types": p.Types, "data": data, "eval_fold": p.EvalFold, "list_actions": p.ListActions},
		},
		Instructions: cmp.Or(p.Instruction, new(instructions)), Deterministic: new(true),
		Worker: pyenv.Worker{Interpreter: p.Interpreter},
	})
}

// dataFolder is where the original games are; "": games are generated.
func dataFolder(r *resources.Resources, named string) (string, error) {
	if named == "" {
		return "", nil
	}
	folder := os.ExpandEnv(named)
	if folder == "" {
		return "", fmt.Errorf("data: %s is not set; set it to the folder that alfworld-download filled, or leave data out", named)
	}
	return r.Whole(folder)
}
