package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// jobCommands look at job files.
type jobCommands struct{ *env }

func (c jobCommands) command() *cli.Command {
	return &cli.Command{Name: "job", Usage: "look at job files", Subcommands: []*cli.Command{
		{
			Name: "validate", Usage: "check a job file and its data", ArgsUsage: "JOB", Action: c.validate,
			Flags: []cli.Flag{setFlag(), &cli.BoolFlag{Name: "run-code", Usage: "start the programs that the job names, import its Python files and ask its services; without it a terminal is asked"}},
		},
		{Name: "effective", Usage: "print the algorithm that a job really runs", ArgsUsage: "JOB", Flags: []cli.Flag{setFlag()}, Action: c.effective},
		{Name: "schema", Usage: "print the JSON schema of job files", Action: c.schema},
	}}
}

func (c jobCommands) validate(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	var notRun []string
	if !x.Bool("run-code") {
		if notRun, err = orchestrator.Look(x.Context, j, c.registries); err != nil {
			return err
		}
	}
	if x.Bool("run-code") || len(notRun) > 0 && c.agreed(j.Path(), notRun) {
		notRun = nil
		if err := orchestrator.Validate(x.Context, j, c.registries); err != nil {
			return err
		}
	}
	a, err := job.Algorithm(j, c.registries.Algorithms)
	if err != nil {
		return err
	}
	refused := job.Trainable(j, a)
	but := ""
	if len(notRun) > 0 {
		but = ", but not all of it was checked, because that runs what the job names:\n  " + strings.Join(notRun, "\n  ") +
			"\na job file is code: run agentfly job validate --run-code on one that you trust"
	}
	switch {
	case refused == nil:
		_, err = fmt.Fprintf(c.text, "%s: ok%s\n", j.Path(), but)
	case j.SFT != nil: // it can do nothing else
		return refused
	default:
		_, err = fmt.Fprintf(c.text, "%s: ok for rollout and eval; train refuses it:\n%v\n", j.Path(), refused)
		if but != "" {
			_, err = fmt.Fprintf(c.text, "%s: ok%s\n", j.Path(), but)
		}
	}
	return err
}

// agreed asks on a terminal whether what a job names may run. Where nobody can answer it may not.
func (c jobCommands) agreed(path string, notRun []string) bool {
	return c.canAsk() && c.ask(fmt.Sprintf("a job file is code: to check all of %s, this is run:\n  %s\nrun it?", path, strings.Join(notRun, "\n  ")))
}

func (c jobCommands) effective(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	a, err := job.Algorithm(j, c.registries.Algorithms)
	if err != nil {
		return err
	}
	if err := job.Trainable(j, a); err != nil { // no update is computed then
		return err
	}
	text := a.Describe() + job.DescribeRate(j, a)
	if j.SFT == nil {
		text += schedule.Describe(j, a)
	}
	_, err = fmt.Fprint(c.text, text)
	return err
}

func (c jobCommands) schema(*cli.Context) error { return c.print(job.Schema(c.registries.Agents)) }
