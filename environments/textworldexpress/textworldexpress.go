// Package textworldexpress is kind textworld_express: the eight games of TextWorldExpress (arXiv 2208.01174, Apache-2.0), text worlds with gold
// paths, in one Java process for each environment. The games are the Python package's; this holds the class that speaks to its server (world.py)
// and runs in a worker of package environments/python.
//
// It does not lend environments or hold deadlines: package environments does.
package textworldexpress

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
const Version = "1.1"

// Params are those of kind textworld_express.
type Params struct {
	Game        string  `json:"game"`         // coin, cookingworld, twc, mapreader, arithmetic, sorting, simonsays or peckingorder
	Params      string  `json:"params"`       // of the game: numLocations=5,includeDoors=0
	EvalFold    string  `json:"eval_fold"`    // dev (the default) or test: the fold of tasks of split eval
	ListActions bool    `json:"list_actions"` // observations end with what is possible
	KeepScore   bool    `json:"keep_score"`   // a game that is lost keeps the score of before; else it has the package's, -1
	MaxSteps    int     `json:"max_steps"`    // default 50, of cookingworld 120; tasks with a longer gold path, without its ways there and back, are left out
	Heap        int     `json:"heap"`         // MiB of the Java process; default 256
	Interpreter string  `json:"interpreter"`  // a Python with the package; default python3
	Instruction *string `json:"instructions"` // in place of what the agent is told
}

const instructions = `You act in a text world. Each action is a short command, such as "look around", "inventory", "take coin", "open door to north" or "move north".`

// Kind is the kind "textworld_express".
func Kind() environments.Kind {
	return environments.Kind{Name: "textworld_express", Description: "TextWorldExpress's text games (coin, cookingworld, twc, mapreader, arithmetic, sorting, simonsays, peckingorder)", New: open}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{EvalFold: "dev", MaxSteps: 50, Heap: 256}
	if game, _ := params["game"].(string); game == "cookingworld" {
		p.MaxSteps = 120
	}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Game == "":
		return nil, errors.New("the game is missing; write game: coin, or cookingworld, twc, mapreader, arithmetic, sorting, simonsays, peckingorder")
	case p.EvalFold != "dev" && p.EvalFold != "test":
		return nil, fmt.Errorf("eval_fold: %q is not known; allowed: dev, test", p.EvalFold)
	case p.MaxSteps < 1 || p.Heap < 64:
		return nil, errors.New("max_steps must be above 0, and heap 64 or more; leave them out for the defaults")
	}
	return pyenv.New(ctx, r, pyenv.Options{
		Name: "textworld_express", File: "textworldexpress.py", Source: world,
		Config: map[string]any{
			"class": "textworldexpress.py:World", "protocol": "gymnasium", "max_steps": p.MaxSteps, "requires": map[string]string{"textworld-express": Version},
			"kwargs": map[string]any{"game": p.Game, "params": p.Params, "eval_fold": p.EvalFold, "list_actions": p.ListActions, "max_steps": p.MaxSteps, "keep_score": p.KeepScore},
		},
		Variables:    pyenv.Java(p.Heap),
		Instructions: cmp.Or(p.Instruction, new(instructions)), Deterministic: new(true),
		Worker: pyenv.Worker{Interpreter: p.Interpreter, Memory: -1}, // Java reserves more than it uses; its heap is bounded
	})
}
