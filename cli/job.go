package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// jobCommands look at job files.
type jobCommands struct{ *env }

func (c jobCommands) command() *cli.Command {
	return &cli.Command{Name: "job", Usage: "look at job files", Subcommands: []*cli.Command{
		{
			Name: "validate", Usage: "check a job file and its data", ArgsUsage: "JOB", Action: c.validate,
			Flags: []cli.Flag{setFlag(), &cli.BoolFlag{Name: "run-code", Usage: "start the programs that the job names, import its Python files and ask its services; without it a terminal is asked"}, &cli.StringFlag{Name: "for", Value: "train", Usage: "the `COMMAND` that the job must be good for: train, rollout or eval"}},
		},
		{Name: "effective", Usage: "print the algorithm that a job really runs", ArgsUsage: "JOB", Flags: []cli.Flag{setFlag()}, Action: c.effective},
		c.memoryCommand(),
		{Name: "schema", Usage: "print the JSON schema of job files", Action: c.schema},
	}}
}

func (c jobCommands) validate(x *cli.Context) error {
	what := x.String("for")
	if !slices.Contains([]string{"train", "rollout", "eval"}, what) {
		return usagef("--for %s: allowed: train, rollout, eval", what)
	}
	path, err := one(x, "the job file")
	if err != nil {
		return err
	}
	j, wrong := job.Draft(path, job.Options{Set: x.StringSlice("set"), Agents: c.registries.Agents})
	if j == nil {
		return wrong
	}
	how := orchestrator.Examine{For: what, Run: x.Bool("run-code"), Read: wrong}
	seen, err := orchestrator.Look(x.Context, j, c.registries, how)
	if err == nil && len(seen.NotRun) > 0 && c.agreed(j.Path(), seen.NotRun) {
		how.Run = true
		seen, err = orchestrator.Look(x.Context, j, c.registries, how)
	}
	if err == nil && what == "train" {
		err = c.place(j, &seen)
	}
	if err != nil {
		return err
	}
	but := ""
	if len(seen.NotRun) > 0 {
		but = ", but not all of it was checked, because that runs what the job names:\n  " + strings.Join(seen.NotRun, "\n  ") +
			"\na job file is code: run agentfly job validate --run-code on one that you trust"
	}
	fmt.Fprintf(c.text, "%s: ok%s\n", j.Path(), but)
	for _, note := range seen.Notes {
		fmt.Fprintf(c.text, "note: %s\n", note)
	}
	_, err = fmt.Fprint(c.text, seen.Describe(j))
	return err
}

// place holds the run folder against what lies there: a run is a note, because it may be meant to go on; files of others are refused.
func (c jobCommands) place(j *job.Job, seen *orchestrator.Examination) error {
	taken := runfolder.New(j.Output, false).Check()
	if taken == nil {
		return nil
	}
	if _, held, _ := runfolder.Steps(j.Output); held {
		seen.Notes = append(seen.Notes, taken.Error())
		return nil
	}
	return j.Fail("output", "%v", taken)
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

func (c jobCommands) schema(*cli.Context) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(job.Schema(c.registries.Agents))
}
