package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// trajectoryFlags name which trajectories are inspected, and how they are shown.
func trajectoryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "run", TakesFile: true, Usage: "run folder `DIR`"}, &cli.StringFlag{Name: "id", Usage: "only this one"},
		&cli.BoolFlag{Name: "view", Usage: "coloured text instead of JSON: sampled tokens stand out, red ones were unlikely"},
		&cli.BoolFlag{Name: "table", Usage: "a table, a line a trajectory, instead of JSON"},
		&cli.StringFlag{Name: "phase", Usage: "train, greedy, eval (all evaluations) or `NAME`, such as eval-after"},
		&cli.IntFlag{Name: "step", Usage: "sampled for step `N` as the console counts, or evaluated after it"},
		&cli.StringFlag{Name: "task", Usage: "of the task with `ID`"},
		&cli.Float64Flag{Name: "min-reward", Usage: "paid `R` or more"}, &cli.Float64Flag{Name: "max-reward", Usage: "paid `R` or less"},
		&cli.StringFlag{Name: "stop", Usage: "with stop `REASON`: answer, no_action, max_turns, …"},
		&cli.StringFlag{Name: "failed", Usage: "that failed: any, infrastructure, policy, or an `ORIGIN` such as environment"},
		&cli.StringFlag{Name: "tool", Usage: "with a call of tool `NAME`"},
		&cli.StringFlag{Name: "tool-failed", Usage: "with a call that failed (of --tool, where it is given): any, or with `CAUSE`: parse, raised, broken, …"},
		&cli.StringFlag{Name: "text", Usage: "with `TEXT` in a completion, an observation, arguments, what an agent sent or an error, in whatever case"},
		&cli.StringFlag{Name: "sort", Usage: "by `WHAT`: " + strings.Join(overview.Sorts, ", ") + "; behind a - the most first, as in --sort=-reward"},
		&cli.IntFlag{Name: "limit", Usage: "at most `N` trajectories"},
	}
}

// filterOf reads the flags.
func filterOf(x *cli.Context) (q overview.Filter, err error) {
	q = overview.Filter{
		Selection: store.Selection{ID: x.String("id"), Phase: x.String("phase"), Task: x.String("task"), Stop: x.String("stop"), Numbered: true},
		Failed:    x.String("failed"), Tool: x.String("tool"), CallCause: x.String("tool-failed"), Text: x.String("text"), Sort: x.String("sort"), Limit: x.Int("limit"),
	}
	if q.Phase == "eval" {
		q.Phase = "eval-*"
	}
	if x.IsSet("step") {
		step := x.Int("step")
		if step < 0 {
			return q, usagef("--step is %d; it is 0 (evaluated before training) or more", step)
		}
		q.Told = &step
	}
	failed := append([]string{"any", string(trajectory.FailureInfrastructure), string(trajectory.FailurePolicy)}, texts(trajectory.Origins())...)
	if err := cmp.Or(
		checkWord(x, "stop", texts(trajectory.StopReasons())), checkWord(x, "failed", failed), checkWord(x, "tool-failed", append([]string{"any"}, texts(trajectory.Causes())...)),
	); err != nil {
		return q, err
	}
	if x.Int("limit") < 0 {
		return q, usagef("--limit is %d; it is 0 (all) or more", x.Int("limit"))
	}
	if sort := strings.TrimPrefix(q.Sort, "-"); q.Sort != "" && !slices.Contains(overview.Sorts, sort) {
		return q, usagef("--sort is %q%s; allowed: %s, and each behind a -", q.Sort, wording.DidYouMean(sort, overview.Sorts), strings.Join(overview.Sorts, ", "))
	}
	bound := func(name string) *float64 {
		if !x.IsSet(name) {
			return nil
		}
		v := x.Float64(name)
		return &v
	}
	q.Low, q.High = bound("min-reward"), bound("max-reward")
	if q.Low != nil && q.High != nil && !(*q.Low <= *q.High) {
		return q, usagef("--min-reward %g is not below --max-reward %g", *q.Low, *q.High)
	}
	return q, nil
}

// checkWord refuses the value of a flag that is none of the words that it may be.
func checkWord(x *cli.Context, flag string, allowed []string) error {
	value := x.String(flag)
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return usagef("--%s is %q%s; allowed: %s", flag, value, wording.DidYouMean(value, allowed), wording.Clip(strings.Join(allowed, ", "), 300)) // a run may have a phase for every step
}

func texts[T ~string](all []T) (out []string) {
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}

// checkPhase refuses a phase that no trajectory of the run is of, but the names that any run may have.
func checkPhase(x *cli.Context, dir string) error {
	if x.String("phase") == "" {
		return nil
	}
	stored, err := overview.Phases(x.Context, dir)
	if err != nil {
		return err
	}
	allowed := []string{store.Train, store.Greedy, "eval"}
	for _, phase := range stored {
		if !slices.Contains(allowed, phase) {
			allowed = append(allowed, phase)
		}
	}
	return checkWord(x, "phase", allowed)
}

// checkStore refuses, as input that is wrong, a folder without stored trajectories. One of an older program may lack job.yaml.
func checkStore(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return job.InputError(overview.Check(dir))
	}
	if _, err := os.Stat(filepath.Join(dir, store.File)); err != nil {
		return job.InputError(fmt.Errorf("%w; name a run folder that holds a %s", err, store.File))
	}
	return nil
}

func (c inspectCommands) trajectory(x *cli.Context) error {
	dir := x.String("run")
	if dir == "" {
		return usagef("agentfly inspect trajectory needs --run with a run folder")
	}
	if err := checkStore(dir); err != nil {
		return err
	}
	q, err := filterOf(x)
	if err != nil {
		return err
	}
	if err := checkPhase(x, dir); err != nil {
		return err
	}
	if x.Bool("table") && x.Bool("view") {
		return usagef("--table and --view are two ways to show the same; give one")
	}
	rows := [][]string{{"id", ">reward", "stop", ">turns", ">tokens", ">calls", ">seconds", "task", "failed", "last words"}}
	matched := false
	show := func(r store.Record, decode func([]int32) string) error {
		matched = true
		switch {
		case x.Bool("table"):
			rows = append(rows, listed(r.Trajectory))
			return nil
		case x.Bool("view"):
			_, err := io.WriteString(c.out, view(r, decode, terminal.NoColour()))
			return err
		}
		return c.print(orchestrator.Inspect(r, decode))
	}
	err = orchestrator.EachStored(x.Context, dir, q, c.registries.Agents, show)
	if err == nil && !matched {
		return c.noneMatches(x, dir)
	}
	var left *overview.LeftOut
	if !x.Bool("table") || err != nil && !errors.As(err, &left) {
		return err
	}
	p := c.page()
	for _, line := range table(rows, p.width) {
		p.write(line)
	}
	return cmp.Or(p.err, err)
}

// noneMatches says, to people, that no trajectory matches the flags, and what those of the run are of where the value of a flag is none of it.
func (c inspectCommands) noneMatches(x *cli.Context, dir string) error {
	all, err := overview.Holdings(x.Context, dir)
	if err != nil {
		return err
	}
	if all.Trajectories == 0 {
		fmt.Fprintf(c.errOut, "%s holds no trajectory yet\n", terminal.Text(dir))
		return nil
	}
	lines := []string{fmt.Sprintf("no trajectory matches; %s holds %d", dir, all.Trajectories)}
	none := func(flag, what, hint string, known []string) {
		value := x.String(flag)
		if value == "" || slices.Contains(known, value) {
			return
		}
		if len(known) == 0 {
			known = []string{"none"}
		}
		lines = append(lines, fmt.Sprintf("--%s %s%s: %s: %s", flag, value, hint, what, wording.Clip(strings.Join(known, ", "), 300)))
	}
	none("tool", "the tools that were called", wording.DidYouMean(x.String("tool"), all.Tools), all.Tools)
	none("task", "the tasks", "", all.Tasks) // ids that are near each other are not alike
	if step := x.Int("step"); x.IsSet("step") && !slices.Contains(all.Told, step) {
		lines = append(lines, fmt.Sprintf("--step %d: the steps are %d to %d", step, all.Told[0], all.Told[len(all.Told)-1]))
	}
	for _, line := range lines {
		fmt.Fprintln(c.errOut, terminal.Text(line))
	}
	return nil
}

// rewardOf is what a trajectory was paid, as a table shows it; -: it has no reward.
func rewardOf(t *trajectory.Trajectory) string {
	if !t.Scored() {
		return "-"
	}
	return fmt.Sprintf("%.3f", t.Return())
}

// listed is a line of the table.
func listed(t *trajectory.Trajectory) []string {
	calls, failed, last := 0, 0, ""
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			calls++
			if r.Failed {
				failed++
			}
		}
		last = turn.Completion
	}
	all := fmt.Sprint(calls)
	if failed > 0 {
		all += fmt.Sprintf(" (%d failed)", failed)
	}
	return []string{
		t.ID, rewardOf(t), string(t.StopReason), fmt.Sprint(len(t.Turns)), fmt.Sprint(t.ResponseTokens()), all, fmt.Sprintf("%.1f", t.Seconds),
		wording.Clip(t.TaskID, 30), wording.Clip(string(t.ErrOrigin), 20), wording.Clip(strings.Join(strings.Fields(last), " "), 60),
	}
}
