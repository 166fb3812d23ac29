// Package reasoning is kind reasoning_gym: the generated tasks of reasoning-gym (arXiv 2505.24760, Apache-2.0), over a hundred data sets of questions
// of arithmetic, logic, games and more, with scorers. An episode is one question and one answer. Data sets and scorers are the Python package's; this
// holds the class that asks them (world.py) and runs in a worker of package environments/python.
//
// It does not lend environments or hold deadlines: package environments does.
package reasoning

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

//go:embed world.py
var world []byte

// Version is the beginning of the package's version.
const Version = "0.1"

// Params are those of kind reasoning_gym.
type Params struct {
	Datasets    []string                  `json:"datasets"`     // by the names of the package: chain_sum, leg_counting
	Config      map[string]map[string]any `json:"config"`       // of a data set, as the package names it: chain_sum: {max_terms: 3}
	Size        int                       `json:"size"`         // questions of each data set in each split; default 1000
	Seed        int64                     `json:"seed"`         // of the questions; held-out ones have another one
	Sandboxed   bool                      `json:"sandboxed"`    // scorers read answers in the job's sandbox
	Show        []string                  `json:"show"`         // sandboxed: further files and folders that the worker may read
	Interpreter string                    `json:"interpreter"`  // a Python with the package; default python3
	Instruction *string                   `json:"instructions"` // in place of what the agent is told
}

const instructions = `You are asked a question. Answer it once: write the answer alone, or your thoughts and then <answer>the answer</answer>.`

const (
	mostSize = 1_000_000
	mostSeed = 1 << 29 // seeds of held-out questions begin at 2³⁰
)

// Kind is the kind "reasoning_gym".
func Kind() environments.Kind {
	return environments.Kind{Name: "reasoning_gym", Description: "reasoning-gym's generated questions, one answer each (datasets, config, size, seed)", New: open}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{Size: 1000}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case len(p.Datasets) == 0:
		return nil, errors.New("the data sets are missing; write datasets: [chain_sum], or others of the package's names")
	case p.Size < 1 || p.Size > mostSize:
		return nil, fmt.Errorf("size is %d, and must be 1 to %d", p.Size, mostSize)
	case p.Seed < 0 || p.Seed > mostSeed:
		return nil, fmt.Errorf("seed is %d, and must be 0 to %d", p.Seed, mostSeed)
	}
	for i, name := range p.Datasets {
		if slices.Contains(p.Datasets[:i], name) {
			return nil, fmt.Errorf("datasets: %s is there twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Config)) {
		if !slices.Contains(p.Datasets, name) {
			return nil, fmt.Errorf("config: %s is none of the datasets", name)
		}
		for _, key := range []string{"size", "seed"} {
			if _, ok := p.Config[name][key]; ok {
				return nil, fmt.Errorf("config: %s: %s is a parameter of its own, for all data sets; write it beside datasets", name, key)
			}
		}
	}
	if p.Config == nil {
		p.Config = map[string]map[string]any{}
	}
	return pyenv.New(ctx, r, pyenv.Options{
		Name: "reasoning_gym", File: "reasoninggym.py", Source: world,
		Config: map[string]any{
			"class": "reasoninggym.py:World", "protocol": "gymnasium", "requires": map[string]string{"reasoning-gym": Version},
			"kwargs": map[string]any{"datasets": p.Datasets, "config": p.Config, "size": p.Size, "seed": p.Seed},
		},
		Instructions: cmp.Or(p.Instruction, new(instructions)), Deterministic: new(true),
		Worker: pyenv.Worker{Interpreter: p.Interpreter, Sandboxed: p.Sandboxed, Show: p.Show},
	})
}
