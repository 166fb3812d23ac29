// Package scienceworld is kind scienceworld: the thirty tasks of ScienceWorld (arXiv 2203.07540, Apache-2.0), experiments in a text world of ten
// rooms, in one Java process for each environment. The world is the Python package's; this holds the class that speaks to its server (world.py)
// and runs in a worker of package environments/python.
//
// It does not lend environments or hold deadlines: package environments does.
package scienceworld

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

//go:embed world.py
var world []byte

// Version is the beginning of the package's version.
const Version = "1.2"

// Params are those of kind scienceworld.
type Params struct {
	Tasks          []string `json:"tasks"`          // by the names of the package: find-plant, boil, use-thermometer
	Simplification string   `json:"simplification"` // default easy; the package's, divided by commas; none for the full world
	EvalFold       string   `json:"eval_fold"`      // dev (the default) or test: the variations of tasks of split eval
	MaxSteps       int      `json:"max_steps"`      // default 100; 250 where a task of slow has longer gold paths
	Heap           int      `json:"heap"`           // MiB of the Java process, which grows without a bound; default 512
	Interpreter    string   `json:"interpreter"`    // a Python with the package; default python3
	Instruction    *string  `json:"instructions"`   // in place of what the agent is told
}

const instructions = `You act in a text world. Each action is a short command, such as "look around", "open door to kitchen", "go to kitchen", "pick up thermometer", "focus on thermometer", "use thermometer on metal pot", "move metal pot to stove", "activate stove", "pour cup into sink", "connect battery anode to wire terminal 1", "wait" or "inventory".`

// slow are tasks with gold paths of more than 100 actions, of which most are to wait.
var slow = []string{"boil", "change-the-state-of-matter-of", "freeze", "melt"}

// Kind is the kind "scienceworld".
func Kind() environments.Kind {
	return environments.Kind{Name: "scienceworld", Description: "ScienceWorld's experiments in a text world", New: open}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{Simplification: "easy", EvalFold: "dev", Heap: 512}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.MaxSteps == 0 && params["max_steps"] == nil {
		p.MaxSteps = 100
		if slices.ContainsFunc(p.Tasks, func(task string) bool { return slices.Contains(slow, task) }) {
			p.MaxSteps = 250
		}
	}
	switch {
	case len(p.Tasks) == 0:
		return nil, errors.New("the tasks are missing; write tasks: [find-plant], or others of the package's names")
	case p.EvalFold != "dev" && p.EvalFold != "test":
		return nil, fmt.Errorf("eval_fold: %q is not known; allowed: dev, test", p.EvalFold)
	case p.MaxSteps < 1 || p.Heap < 128:
		return nil, errors.New("max_steps must be above 0, and heap 128 or more; leave them out for the defaults")
	}
	if p.Simplification == "none" {
		p.Simplification = ""
	}
	return pyenv.New(ctx, r, pyenv.Options{
		Name: "scienceworld", File: "scienceworld_world.py", Source: world,
		Config: map[string]any{
			"class": "scienceworld_world.py:World", "protocol": "gymnasium", "max_steps": p.MaxSteps, "requires": map[string]string{"scienceworld": Version},
			"kwargs": map[string]any{"tasks": p.Tasks, "simplification": p.Simplification, "eval_fold": p.EvalFold},
		},
		Variables:    pyenv.Java(p.Heap),
		Instructions: cmp.Or(p.Instruction, new(instructions)), Deterministic: new(true),
		Worker: pyenv.Worker{Interpreter: p.Interpreter, Memory: -1}, // Java reserves more than it uses; its heap is bounded
	})
}
