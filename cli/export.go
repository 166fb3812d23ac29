package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// exportCommand writes runs for other programs.
type exportCommand struct{ *env }

func (c exportCommand) command() *cli.Command {
	var about []string
	for _, f := range export.Formats() {
		about = append(about, fmt.Sprintf("%-12s %s", f.Name, f.Description))
	}
	return &cli.Command{
		Name: "export", Usage: "write runs for other programs: curves, trajectories", ArgsUsage: "RUN... FORMAT", Action: c.export,
		Description: strings.Join(about, "\n"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", TakesFile: true, Usage: "`FOLDER` that gets a folder for each run; default is FORMAT in the run's own folder"},
			&cli.StringFlag{Name: "to", Usage: "`URL` of the server, for mlflow and otlp"},
		},
	}
}

func (c exportCommand) export(x *cli.Context) error {
	if x.NArg() < 2 {
		return usagef("agentfly export takes a run, or several, and a format; got %s", plural(x.NArg(), "argument"))
	}
	all := x.Args().Slice()
	f, err := export.Lookup(all[len(all)-1])
	if err != nil {
		if _, is := export.Lookup(all[0]); is == nil {
			return usagef("the format stands last: agentfly export %s %s", strings.Join(all[1:], " "), all[0])
		}
		return usagef("%v", err)
	}
	if f.Send != nil {
		return c.send(x, f, all[:len(all)-1])
	}
	if x.String("to") != "" {
		return usagef("--to names a server; %s is a file, name its folder with --out", f.Name)
	}
	runs, err := openRuns(x.Context, f, all[:len(all)-1])
	if err != nil {
		return err
	}
	var paths []string
	from := map[string]string{} // runs by their output folders
	for _, r := range runs {
		to := filepath.Join(r.dir, f.Name)
		if out := x.String("out"); out != "" {
			to = filepath.Join(out, r.Name)
		} else if r.Trajectories == nil {
			return usagef("%s is a file; name the folder to write into with --out", r.dir)
		}
		if other, twice := from[to]; twice {
			if samePlace(other, r.dir) {
				return usagef("%s and %s are the same run; name it once", other, r.dir)
			}
			return usagef("%s and %s have the same name, and %s can hold one of them; give each another --out", other, r.dir, to)
		}
		from[to] = r.dir
		paths = append(paths, filepath.Join(to, f.File(r.Run)))
	}
	return each(x.Context, f, runs, func(i int, r exported, got *reading) error {
		if err := export.WriteFile(x.Context, f, paths[i], r.Run); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		what := plural(len(r.Metrics), "metric")
		if f.Trajectories {
			what = trajectories(got.n)
		}
		fmt.Fprintf(c.text, "wrote     %s  %s\n", paths[i], what)
		return nil
	})
}

// exported is a run that is exported, and what the user named it by.
type exported struct {
	export.Run
	dir string
}

// openRuns are the runs that a format is to be made of. One that cannot be read is told before anything is written or sent.
func openRuns(ctx context.Context, f export.Format, dirs []string) (out []exported, err error) {
	for _, dir := range dirs {
		r, err := export.Open(ctx, dir)
		if err != nil {
			return nil, job.InputError(err)
		}
		if f.Trajectories && r.Trajectories == nil {
			return nil, usagef("%s has curves alone; %s is made of trajectories, name the run's folder", dir, f.Name)
		}
		out = append(out, exported{r, dir})
	}
	return out, nil
}

// each exports one run after the other. What is wrong with one is told at the end, and keeps none behind it back.
func each(ctx context.Context, f export.Format, runs []exported, one func(i int, r exported, got *reading) error) (wrong error) {
	for i, r := range runs {
		got := read(&r.Run)
		wrong = errors.Join(wrong, one(i, r, got), got.lacks(f, r.dir))
		if ctx.Err() != nil {
			return wrong
		}
	}
	return wrong
}

// reading is what an export reads of a run's trajectories.
type reading struct {
	n    int
	left *overview.LeftOut // nil: nothing is damaged
}

// read counts the trajectories that are read of a run. Those that are damaged do not end its export.
func read(run *export.Run) *reading {
	got := &reading{}
	if every := run.Trajectories; every != nil {
		run.Trajectories = func(ctx context.Context, f func(store.Record) error) error {
			err := every(ctx, func(r store.Record) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				got.n++
				return f(r)
			})
			if errors.As(err, &got.left) {
				return nil
			}
			return err
		}
	}
	return got
}

// lacks is the error of an export that was made without the trajectories that are damaged; nil: it has all.
func (r *reading) lacks(f export.Format, dir string) error {
	if r.left == nil {
		return nil
	}
	return fmt.Errorf("export: %s of %s: %w", f.Name, dir, r.left)
}

// send sends runs to a server.
func (c exportCommand) send(x *cli.Context, f export.Format, dirs []string) error {
	switch {
	case x.String("to") == "":
		return usagef("%s needs the server's address: --to URL", f.Name)
	case x.String("out") != "":
		return usagef("%s is a server; name it with --to, not --out", f.Name)
	}
	runs, err := openRuns(x.Context, f, dirs)
	if err != nil {
		return err
	}
	what, fresh := "value", "new value"
	if f.Trajectories {
		what, fresh = "span", "span"
	}
	return each(x.Context, f, runs, func(_ int, r exported, _ *reading) error {
		n, err := f.Send(x.Context, x.String("to"), r.Run)
		if err != nil {
			return fmt.Errorf("export: %s: %s of %s sent: %w", f.Name, plural(n, what), r.dir, err)
		}
		fmt.Fprintf(c.text, "sent      %s  %s\n", r.dir, plural(n, fresh))
		return nil
	})
}
