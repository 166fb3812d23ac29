package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// importCommand makes data to learn from of what other programs recorded.
type importCommand struct{ *env }

func (c importCommand) command() *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "make data to learn from of others' trajectories", ArgsUsage: "atif FILE...", Action: c.atif,
		Description: "atif         ATIF 1.0 to 1.8: documents in a file each, a list of them, or one a line",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "output", TakesFile: true, Usage: "`FILE` of JSON lines to write, for data.train of a job with sft"}},
	}
}

func (c importCommand) atif(x *cli.Context) error {
	files := x.Args().Slice()
	switch {
	case len(files) < 2:
		return usagef("agentfly import takes a format and the files to read, such as atif trajectory.json; got %s", plural(len(files), "argument"))
	case files[0] != "atif":
		return usagef("there is no format %q to import; allowed: [atif]", files[0])
	case x.String("output") == "":
		return usagef("agentfly import needs --output with the file to write")
	}
	n, skipped := 0, 0
	err := export.WriteWhole(x.String("output"), func(w *os.File) error {
		e := json.NewEncoder(w)
		for _, path := range files[1:] {
			r, err := os.Open(path)
			if err != nil {
				return job.InputError(err)
			}
			others, err := export.ReadATIF(x.Context, r, func(conversation export.Conversation) error {
				n++
				return e.Encode(conversation)
			})
			_ = r.Close() // it was read alone
			switch {
			case x.Context.Err() != nil:
				return orchestrator.ErrStopped
			case err != nil:
				return job.InputError(fmt.Errorf("%s: %w", path, err))
			}
			skipped += others
		}
		if n == 0 {
			return job.InputError(errors.New("the files hold no step of an agent that can be learned"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.errOut, "wrote     %s  %s\n", x.String("output"), plural(n, "conversation"))
	if skipped > 0 {
		fmt.Fprintf(c.errOut, "left out  %s without a step of an agent that can be learned\n", trajectories(skipped))
	}
	return nil
}

func trajectories(n int) string {
	if n == 1 {
		return "1 trajectory"
	}
	return fmt.Sprintf("%d trajectories", n)
}
