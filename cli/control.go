package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// control is the command that asks a run which trains in another process for something.
func (e *env) control() *cli.Command {
	return &cli.Command{
		Name: "control", Usage: "pause a run that trains, let it go on, save or stop it", ArgsUsage: "RUN pause|resume|checkpoint|stop", Action: e.askRun,
		Description: "The run looks between two steps.\n" +
			"pause        before the next step, until resume\n" +
			"checkpoint   save a checkpoint now, and go on\n" +
			"stop         save the run and end it, as Ctrl-C does; train --resume goes on with it",
	}
}

func (e *env) askRun(x *cli.Context) error {
	if x.NArg() != 2 {
		return usagef("agentfly control takes a run folder and an action: pause, resume, checkpoint or stop; got %s", plural(x.NArg(), "argument"))
	}
	dir := x.Args().Get(0)
	action, err := runfolder.ParseAction(x.Args().Get(1))
	if err != nil {
		return usagef("%v", err)
	}
	if err := overview.Check(dir); err != nil {
		return job.InputError(err)
	}
	err = runfolder.Ask(dir, runfolder.Request{Action: action, By: "agentfly control", At: time.Now()})
	if errors.Is(err, runfolder.ErrNotRunning) {
		return job.InputError(fmt.Errorf("%s: %w", dir, err))
	}
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	fmt.Fprintf(e.text, "asked     %s to %s; it looks between two steps, and says so where it trains\n", dir, map[runfolder.Action]string{
		runfolder.Pause: "pause", runfolder.Resume: "go on", runfolder.Checkpoint: "save a checkpoint", runfolder.Stop: "stop",
	}[action])
	return nil
}
