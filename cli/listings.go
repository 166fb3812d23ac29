package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// listings are the commands that list what job files can name, beside tools list.
func (e *env) listings() []*cli.Command {
	return []*cli.Command{
		{Name: "agents", Usage: "look at kinds of agents", Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the kinds of agents and the call formats that job files can name", Action: e.listAgents},
		}},
		{Name: "algorithms", Usage: "look at advantage estimators and losses", Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the advantage estimators and losses that job files can name, with their formulas", Action: e.listAlgorithms},
		}},
		{Name: "engines", Usage: "look at inference engines", Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the engines that job files can name (engine.kind)", Action: e.listEngines},
		}},
	}
}

// listAgents prints each kind with its formats, its own first.
func (e *env) listAgents(*cli.Context) error {
	known := e.registries.Agents
	for _, name := range known.KindNames() {
		kind, _ := known.Kind(name)
		if _, err := fmt.Fprintf(e.text, "%-16s %s\n", name, kind.Description); err != nil {
			return err
		}
		for _, format := range known.FormatNames(name) {
			spec, _ := known.Format(format)
			if _, err := fmt.Fprintf(e.text, "  %-14s %s\n", format, spec.Description); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *env) listAlgorithms(*cli.Context) error {
	const form = "%-9s %-16s %s\n"
	for _, s := range e.registries.Algorithms.Estimators() {
		if _, err := fmt.Fprintf(e.text, form, "advantage", s.Name, s.Formula); err != nil {
			return err
		}
	}
	for _, s := range e.registries.Algorithms.Losses() {
		if _, err := fmt.Fprintf(e.text, form, "loss", s.Name, s.Formula); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) listEngines(*cli.Context) error {
	known := e.registries.Engines
	for _, name := range known.Names() {
		if _, err := fmt.Fprintf(e.text, "%-16s %s\n", name, known.Description(name)); err != nil {
			return err
		}
	}
	return nil
}
