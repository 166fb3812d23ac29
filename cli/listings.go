package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// listings are the commands that list what job files can name, beside tools list.
func (e *env) listings() []*cli.Command {
	return []*cli.Command{
		{Name: "rewards", Usage: "look at rewards", Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the rewards that job files can name", Action: e.listRewards},
		}},
		{Name: "algorithms", Usage: "look at advantage estimators and losses", Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the advantage estimators and losses that job files can name, with their formulas", Action: e.listAlgorithms},
		}},
	}
}

func (e *env) listRewards(*cli.Context) error {
	for _, name := range e.registries.Rewards.Names() {
		if _, err := fmt.Fprintf(e.text, "%-24s %s\n", name, firstLine(e.registries.Rewards.Description(name))); err != nil {
			return err
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
