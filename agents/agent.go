// Package agents says how a model is prompted and read: an [Agent] has the instructions that tell the model of its tools, reads calls and
// answers from completions, writes results as messages, and knows where a completion stops. A [Kind] is what job files name, a [Format] how
// calls are written, and a [Splitter] takes a completion apart while it arrives.
//
// It does not run tools (package tools does), render tokens (package masks does) or sample (package orchestrator does).
package agents

import (
	"context"
	"encoding/json"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Config is what a job says of its agent.
type Config struct {
	Format          string // by name
	Python          string // a file that defines the format; then Format is not read
	System          string // the system prompt's own words
	Instructions    bool   // the prompt describes the tools
	ObservationRole string // FormatOptions has it
}

// Agent is how a model is prompted and read, for the tools of a job. All methods are safe for concurrent use. Their errors are [*panics.Error]
// where the format panicked.
type Agent struct {
	Format Format
	spec   FormatSpec // what the format declares; that of a Python file declares nothing
	config Config
	tools  []tools.Spec
}

// New makes the agent of a configuration for the given tools. Python workers are those of shared, and are closed with it.
func (r *Registry) New(ctx context.Context, shared *resources.Resources, c Config, specs []tools.Spec) (*Agent, error) {
	o := FormatOptions{ObservationRole: c.ObservationRole}
	var f Format
	var spec FormatSpec
	var err error
	if c.Python != "" {
		f, err = NewPythonFormat(ctx, shared, c.Python, specs, o)
	} else {
		spec, _ = r.Format(c.Format)
		f, err = r.NewFormat(c.Format, specs, o)
	}
	if err != nil {
		return nil, err
	}
	return &Agent{Format: f, spec: spec, config: c, tools: specs}, nil
}

// guard calls f, which asks the format.
func (a *Agent) guard(f func()) error {
	return panics.Guard("the format "+a.spec.Name, func() error {
		f()
		return nil
	})
}

// Marks are [MarksOf] the format.
func (a *Agent) Marks() (marks []string, err error) {
	err = a.guard(func() { marks = MarksOf(a.Format) })
	return marks, err
}

// Stops are the strings after which nothing in a completion is read.
func (a *Agent) Stops() (stops []string, err error) {
	err = a.guard(func() { stops = a.Format.Stops() })
	return stops, err
}

// Template is what a run's chat template does with tools.
type Template struct {
	Renders      bool // prompts are rendered here; an engine that takes messages gets no schemas
	IgnoresTools bool // the template has no place for them: package masks writes them into the system prompt, in the words of hermes
}

// Prompt is what precedes the messages of every task.
type Prompt struct {
	Messages []trajectory.Message // system prompt and worked examples
	Schemas  []json.RawMessage    // OpenAI schemas for the chat template; nil: it describes no tools
}

// Prompt is the prompt of this agent, with worked examples. The chat template describes the tools where it can, and the format's instructions
// in the system prompt where not.
func (a *Agent) Prompt(t Template, examples []trajectory.Message) (p Prompt, err error) {
	system := a.config.System
	switch {
	case !a.config.Instructions || len(a.tools) == 0:
	case a.inTemplate(t):
		data, err := tools.OpenAI(a.tools)
		if err != nil {
			return p, err
		}
		if err := json.Unmarshal(data, &p.Schemas); err != nil {
			return p, err
		}
	default:
		if system != "" {
			system += "\n\n"
		}
		if err := a.guard(func() { system += a.Format.Instructions() }); err != nil {
			return p, err
		}
	}
	if system != "" {
		p.Messages = append(p.Messages, trajectory.Text("system", system))
	}
	p.Messages = append(p.Messages, examples...)
	return p, nil
}

// inTemplate tells whether what renders the prompt tells the model of its tools in the words of this format.
func (a *Agent) inTemplate(t Template) bool {
	if t.IgnoresTools {
		return t.Renders && a.spec.InRenderer
	}
	return t.Renders && a.spec.InTemplates
}
