package agentfly

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

func (c *commands) agentsCommand() *cli.Command {
	return &cli.Command{Name: "agents", Usage: "look at kinds of agents", Subcommands: []*cli.Command{
		{Name: "list", Usage: "list the kinds of agents and the call formats that job files can name", Action: c.agentsList},
	}}
}

// agentsList prints each kind with its formats, its own first.
func (c *commands) agentsList(*cli.Context) error {
	known := c.registries.Agents
	for _, name := range known.KindNames() {
		kind, _ := known.Kind(name)
		if _, err := fmt.Fprintf(c.text, "%-16s %s\n", name, kind.Description); err != nil {
			return err
		}
		for _, format := range known.FormatNames(name) {
			spec, _ := known.Format(format)
			if _, err := fmt.Fprintf(c.text, "  %-14s %s\n", format, spec.Description); err != nil {
				return err
			}
		}
	}
	return nil
}
