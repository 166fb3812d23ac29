package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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
			&cli.StringFlag{Name: "out", Usage: "`FOLDER` that gets a folder for each run; default is FORMAT in the run's own folder"},
			&cli.StringFlag{Name: "to", Usage: "`URL` of the server, for mlflow"},
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
		return usagef("%v", err)
	}
	if f.Send != nil {
		return c.send(x, f, all[:len(all)-1])
	}
	if x.String("to") != "" {
		return usagef("--to names a server; %s is a file, name its folder with --out", f.Name)
	}
	type file struct {
		path string
		run  export.Run
	}
	var files []file
	from := map[string]string{} // runs by their output folders
	for _, dir := range all[:len(all)-1] {
		r, err := exported(x.Context, dir)
		if err != nil {
			return job.InputError(err)
		}
		if f.Trajectories && r.Trajectories == nil {
			return usagef("%s has curves alone; %s is made of trajectories, name the run's folder", dir, f.Name)
		}
		to := filepath.Join(dir, f.Name)
		if out := x.String("out"); out != "" {
			to = filepath.Join(out, r.Name)
		} else if r.Trajectories == nil {
			return usagef("%s is a file; name the folder to write into with --out", dir)
		}
		if other, twice := from[to]; twice {
			return usagef("%s and %s have the same name, and %s can hold one of them; export them one after the other", other, dir, to)
		}
		from[to] = dir
		files = append(files, file{filepath.Join(to, f.File(r)), r})
	}
	for _, o := range files {
		n := 0
		if every := o.run.Trajectories; every != nil {
			o.run.Trajectories = func(ctx context.Context, f func(store.Record) error) error {
				return every(ctx, func(r store.Record) error {
					if err := ctx.Err(); err != nil {
						return err
					}
					n++
					return f(r)
				})
			}
		}
		err := writeWhole(o.path, func(w *os.File) error {
			if f.Build == nil {
				return f.Write(x.Context, w, o.run)
			}
			if err := f.Build(x.Context, w.Name(), o.run); err != nil {
				return err
			}
			for _, rest := range []string{"-wal", "-shm"} { // of the database that is replaced; SQLite would take them for parts of the new one
				if err := os.Remove(o.path + rest); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		what := plural(len(o.run.Metrics), "metric")
		if f.Trajectories {
			what = trajectories(n)
		}
		fmt.Fprintf(c.text, "wrote     %s  %s\n", o.path, what)
	}
	return nil
}

// send sends runs to a server.
func (c exportCommand) send(x *cli.Context, f export.Format, dirs []string) error {
	switch {
	case x.String("to") == "":
		return usagef("%s needs the server's address: --to URL", f.Name)
	case x.String("out") != "":
		return usagef("%s is a server; name it with --to, not --out", f.Name)
	}
	for _, dir := range dirs {
		r, err := exported(x.Context, dir)
		if err != nil {
			return job.InputError(err)
		}
		n, err := f.Send(x.Context, x.String("to"), r)
		if err != nil {
			return fmt.Errorf("export: %s: %s of %s: %w", f.Name, plural(n, "value"), dir, err)
		}
		fmt.Fprintf(c.text, "sent      %s  %s\n", dir, plural(n, "new value"))
	}
	return nil
}

// exported is a run folder, or a file metrics.jsonl, to be exported.
func exported(ctx context.Context, dir string) (export.Run, error) {
	name, m, err := overview.ReadCurves(dir)
	if err != nil {
		return export.Run{}, err
	}
	r := export.Run{Name: name, Metrics: m, Began: began(ctx, dir, m)}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return r, err
	}
	about := overview.Read(dir)
	r.Model, r.Algorithm, r.State = about.Model, about.Algorithm, about.State
	r.Trajectories = func(ctx context.Context, f func(store.Record) error) error {
		return overview.Trajectories(ctx, dir, overview.Filter{}, f)
	}
	return r, nil
}

// began is when a run began: its first trajectory, else when its job was written into its folder, else when it last wrote, less the time of
// its steps. Other programs know a run by it, so that a run which is exported again, resumed or not, is the same one there.
func began(ctx context.Context, dir string, m overview.Metrics) time.Time {
	if log, err := store.OpenReader(filepath.Join(dir, store.File)); err == nil { // who reads the trajectories is told what is wrong with it
		at, err := log.Began(ctx)
		if log.Close(); err == nil && !at.IsZero() {
			return at
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "job.yaml")); err == nil {
		return info.ModTime()
	}
	info, err := os.Stat(dir)
	if err != nil {
		return time.Unix(0, 0)
	}
	at := info.ModTime()
	if all := m["seconds/elapsed"]; all != nil && len(all.Values) > 0 {
		at = at.Add(-time.Duration(all.Values[len(all.Values)-1] * float64(time.Second)))
	}
	return at
}

// writeWhole writes a file that is whole or not there.
func writeWhole(path string, write func(w *os.File) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	w, err := os.CreateTemp(filepath.Dir(path), ".export-")
	if err != nil {
		return err
	}
	defer os.Remove(w.Name()) // it is gone where all went well
	if err = write(w); err == nil {
		err = w.Chmod(0o644)
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(w.Name(), path)
}
