package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/trajectory"
)

// runCommands sample, train and evaluate.
type runCommands struct{ *env }

func (c runCommands) all() []*cli.Command {
	seed := &cli.Uint64Flag{Name: "seed", Usage: "override the job's seed", DefaultText: "the job's"}
	return []*cli.Command{
		{
			Name: "train", Usage: "train the policy of a job file", ArgsUsage: "JOB",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "output", TakesFile: true, Usage: "run folder `DIR`, instead of the job's"},
				&cli.BoolFlag{Name: "resume", Usage: "continue the run in the run folder"},
				&cli.BoolFlag{Name: "overwrite", Usage: "delete the run in the run folder, and begin anew; a terminal is asked"},
				&cli.BoolFlag{Name: "yes", Usage: "the answer to what --overwrite asks"}, seed, setFlag(),
				plainFlag(), &cli.StringFlag{Name: "log-format", Value: "text", Usage: "text, or json: an object a line for steps, evaluations, notes and the summary"},
				&cli.BoolFlag{Name: "view", Usage: "serve the page of agentfly view for this run while it trains, to this machine alone"},
				&cli.IntFlag{Name: "ranks", Usage: "train in `N` processes of this machine; on several machines start each with torchrun's variables instead"},
			},
			Action: c.train,
		},
		{
			Name: "replay", Usage: "sample and train a run again, and compare it bit for bit", ArgsUsage: "RUN",
			Flags: []cli.Flag{&cli.StringFlag{Name: "output", TakesFile: true, Usage: "keep metrics and checkpoints of the replay in `DIR`"}}, Action: c.replay,
		},
		{
			Name: "eval", Usage: "evaluate a policy on the job's held-out tasks", ArgsUsage: "JOB|RUN",
			Flags: []cli.Flag{modelFlag(), seed, setFlag(), plainFlag(), &cli.BoolFlag{Name: "tool-off", Usage: "switch the tools off"}}, Action: c.eval,
		},
		{
			Name: "rollout", Usage: "sample trajectories of a job's tasks as JSON lines", ArgsUsage: "JOB|RUN",
			Flags: []cli.Flag{modelFlag(), seed, setFlag(), plainFlag(), &cli.IntFlag{Name: "steps", Value: 1, Usage: "steps' worth of tasks"}}, Action: c.rollout,
		},
	}
}

func (c runCommands) train(x *cli.Context) error {
	asJSON, err := logFormat(x)
	if err != nil {
		return err
	}
	if x.NArg() == 1 && overview.Is(x.Args().First()) {
		run := x.Args().First()
		return usagef("%s is a run folder; train takes a job file, and goes on with a run by: %s", run, resumes(run, c.registries.Agents))
	}
	if x.IsSet("ranks") && x.Int("ranks") < 1 {
		return usagef("--ranks is %d; allowed: 1 or more", x.Int("ranks"))
	}
	j, err := c.load(x)
	if err != nil {
		return err
	}
	if x.Bool("overwrite") && mainRank() {
		if err := c.mayOverwrite(x, j.Output); err != nil {
			return err
		}
	}
	survivePipe()
	o := orchestrator.Options{Resume: x.Bool("resume"), Overwrite: x.Bool("overwrite"), Resumes: goesOn(c.line), Ranks: x.Int("ranks"), Arguments: c.line[min(1, len(c.line)):]}
	d, e := newDisplay(), c.env
	if asJSON {
		o.Event = e.logged
	} else if mainRank() {
		shown, done := c.shown(x, c.out, d.lines)
		defer done()
		if e = shown; e != c.env {
			o.Event = d.event
		}
	}
	if o.Out, o.ErrOut = folded(e.text, c.out), e.rawErr; asJSON {
		o.Out = io.Discard
	}
	ctx, stop := runCommands{e}.watch(x, j.Rollout.Watchdog)
	defer stop()
	d.watch(watchdog.Of(ctx))
	if x.Bool("view") && mainRank() {
		defer e.viewed(ctx, &o, asJSON)()
	}
	_, err = orchestrator.Train(ctx, j, c.registries, o)
	return err
}

// viewed serves the page of the run from its first event on, when its folder is there, until the function that it returns is called.
func (e *env) viewed(ctx context.Context, o *orchestrator.Options, asJSON bool) (stop func()) {
	stop = func() {}
	say := func(line string) { fmt.Fprintln(e.text, line) }
	event := o.Event
	if asJSON {
		say = func(line string) { event(orchestrator.Event{Kind: orchestrator.Note, Text: line}) }
	}
	o.Event = func(v orchestrator.Event) {
		if event != nil {
			event(v)
		}
		if v.Kind == orchestrator.Begin {
			stop = viewCommand{e}.beside(ctx, v.Dir, say)
		}
	}
	return func() { stop() }
}

// survivePipe lets the process go on when the reader of its output is gone: `train JOB | head` would be ended by its next line, and
// `train JOB | tee log` by Ctrl-C, which ends tee at once and the run before it has saved. What nobody reads is dropped, metrics.jsonl has it
// all. It holds to the end of the process, which says last how the run ended. The signal is not ignored, which children would inherit.
var survivePipe = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

// mayOverwrite refuses to delete the run in a folder where nobody says yes to it.
func (c runCommands) mayOverwrite(x *cli.Context, dir string) error {
	if x.Bool("resume") {
		return usagef("--resume goes on with the run that --overwrite deletes; give one of the two")
	}
	steps, held, err := runfolder.Steps(dir)
	if !held || err == nil && steps == 0 || x.Bool("yes") {
		return nil
	}
	what := fmt.Sprintf("the run of %s in %s", plural(steps, "step"), dir)
	if err != nil {
		what = fmt.Sprintf("the run in %s, which cannot be read (%v)", dir, err)
	}
	if !c.canAsk() {
		return usagef("--overwrite deletes %s; give --yes with it, or run it on a terminal, which asks", what)
	}
	if !c.ask("delete " + what + "?") {
		return usagef("nothing was deleted, and nothing was trained")
	}
	return nil
}

// mainRank tells whether this process is the one of several training processes that owns the run folder, or the only one.
func mainRank() bool {
	rank := os.Getenv("RANK")
	return rank == "" || rank == "0"
}

// goesOn is the command line that resumes the run which this one began.
func goesOn(line []string) string {
	var words []string
	place, resumes := -1, false
	for i, word := range line {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		flag := place < 0 && i > 0 && strings.HasPrefix(word, "-")
		switch {
		case flag && word == "--":
			place = len(words)
		case flag && (name == "overwrite" || name == "yes"):
			continue
		case flag && name == "resume":
			resumes = true
		}
		words = append(words, wording.ShellWord(word))
	}
	if place < 0 {
		place = len(words)
	}
	if !resumes {
		words = slices.Insert(words, place, "--resume")
	}
	return strings.Join(words, " ")
}

// resumes is the command line that goes on with the run in a folder, of which no command line is known.
func resumes(dir string, known *agents.Registry) string {
	words, err := orchestrator.Resumes(dir, known)
	for i, word := range words {
		words[i] = wording.ShellWord(word)
	}
	line := "agentfly " + strings.Join(words, " ")
	if err != nil {
		why, _, _ := strings.Cut(job.Words(err), "\n")
		line += fmt.Sprintf(", and the options of --set that it was begun with, which cannot be told: %s", why)
	}
	return line
}

func (c runCommands) replay(x *cli.Context) error {
	dir, err := one(x, "the run folder")
	if err != nil {
		return err
	}
	ctx, stop := c.watch(x, 120) // the run's own is in its folder's job
	defer stop()
	return orchestrator.Replay(ctx, dir, x.String("output"), c.registries, c.text)
}

func (c runCommands) eval(x *cli.Context) error {
	j, model, err := c.jobAndModel(x, "the job file or the run folder")
	if err != nil {
		return err
	}
	e, err := c.evaluate(x, j, model)
	if err != nil {
		return err
	}
	for _, line := range e.Table() { // for people; the line on standard output is for programs
		fmt.Fprintln(c.errOut, line)
	}
	for _, line := range e.Failures() {
		fmt.Fprintln(c.errOut, line)
	}
	return c.print(e)
}

// evaluate evaluates, and shows how far it is: on standard error, because the result on standard output is for programs.
func (c runCommands) evaluate(x *cli.Context, j *job.Job, model string) (report.Evaluation, error) {
	d := newDisplay()
	d.event(orchestrator.Event{Kind: orchestrator.Doing, Text: "evaluation"})
	e, done := c.shown(x, c.rawErr, d.lines)
	defer done()
	ctx, stop := runCommands{e}.watch(x, j.Rollout.Watchdog)
	defer stop()
	d.watch(watchdog.Of(ctx))
	return orchestrator.Evaluate(ctx, j, model, x.Bool("tool-off"), c.registries, func(v orchestrator.Event) {
		if d.event(v); v.Kind == orchestrator.Note {
			fmt.Fprintln(e.errOut, "note: "+v.Text)
		}
	})
}

// watch says on standard error what the job waits for when nothing moves, and when the process gets SIGUSR1.
func (c runCommands) watch(x *cli.Context, quiet float64) (context.Context, func()) {
	ask := make(chan os.Signal, 1)
	signal.Notify(ask, syscall.SIGUSR1)
	if !mainRank() { // it waits for rank 0 most of the time, which speaks
		quiet = 0
	}
	ctx, stop := orchestrator.Watch(x.Context, quiet, c.errOut, ask)
	return ctx, func() {
		signal.Stop(ask)
		stop()
	}
}

func (c runCommands) rollout(x *cli.Context) error {
	steps := x.Int("steps")
	if steps < 1 {
		return usagef("--steps is %d; allowed: 1 or more", steps)
	}
	j, model, err := c.jobAndModel(x, "the job file or the run folder")
	if err != nil {
		return err
	}
	d := newDisplay()
	d.event(orchestrator.Event{Kind: orchestrator.Doing, Text: "sampling"})
	e, done := c.shown(x, c.rawErr, d.lines)
	defer done()
	ctx, stop := runCommands{e}.watch(x, j.Rollout.Watchdog)
	defer stop()
	d.watch(watchdog.Of(ctx))
	ended, all := 0, steps*j.Rollout.Groups*j.Rollout.GroupSize
	note := func(line string) { fmt.Fprintln(e.errOut, "note: "+line) }
	return orchestrator.Sample(ctx, j, model, steps, c.registries, note, func(t *trajectory.Trajectory) error {
		ended++
		d.event(orchestrator.Event{Kind: orchestrator.Rollouts, Done: ended, Of: all})
		return e.print(t)
	})
}
