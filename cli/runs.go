package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/internal/plot"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
)

// runsCommands look at runs from outside, also while they train.
type runsCommands struct{ *env }

func (c runsCommands) all() []*cli.Command {
	asJSON := &cli.BoolFlag{Name: "json", Usage: "one JSON object"}
	return []*cli.Command{
		{
			Name: "runs", Usage: "list the runs in a folder with states and scores", ArgsUsage: "[FOLDER]", Action: c.list,
			Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "a JSON object a line"}},
		},
		{Name: "status", Usage: "show what a run does, waits for, what failed, time left", ArgsUsage: "RUN", Flags: []cli.Flag{asJSON}, Action: c.status},
		{Name: "compare", Usage: "hold runs against each other: settings, curves, tasks", ArgsUsage: "RUN RUN...", Flags: []cli.Flag{asJSON}, Action: c.compare},
		{
			Name: "plot", Usage: "draw curves of runs, or of files like metrics.jsonl", ArgsUsage: "RUN...", Action: c.plot,
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "metric", Usage: "draw `NAME` of docs/metrics.md, or eval/reward; may be repeated"},
				&cli.StringFlag{Name: "png", TakesFile: true, Usage: "write a picture to `FILE`"}, &cli.StringFlag{Name: "svg", TakesFile: true, Usage: "write a drawing to `FILE`"},
				&cli.BoolFlag{Name: "list", Usage: "name the metrics that the runs have"},
				&cli.IntFlag{Name: "height", Value: 12, Usage: "lines of a drawing in the terminal"},
				&cli.BoolFlag{Name: "ascii", Usage: "draw with plain characters"}, asJSON,
			},
		},
	}
}

func (c runsCommands) list(x *cli.Context) error {
	root := "."
	switch x.NArg() {
	case 0:
	case 1:
		root = x.Args().First()
	default:
		return usagef("agentfly runs takes one argument, the folder with the runs; got %d", x.NArg())
	}
	if !isFolder(root) {
		return usagef("%s is no folder; name the one with the runs, or leave it out for the working folder", root)
	}
	found, err := overview.Find(root)
	if err != nil {
		return job.InputError(err)
	}
	if x.Bool("json") {
		for _, dir := range found {
			if err := c.print(overview.Read(dir)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(found) == 0 {
		fmt.Fprintf(c.errOut, "there is no run in %s\n", root)
		return nil
	}
	now := time.Now()
	rows := [][]string{{"run", "state", ">step", ">reward", ">held-out", ">best", ">changed", "algorithm", "model"}}
	var wrong []string
	for _, dir := range found {
		r := overview.Read(dir)
		name, err := filepath.Rel(root, dir)
		if err != nil || name == "." {
			name = dir
		}
		if r.Error != "" {
			wrong = append(wrong, fmt.Sprintf("%s: %s", name, wording.Clip(strings.ReplaceAll(r.Error, "\n", " "), 200)))
		}
		rows = append(rows, []string{name, string(r.State), stepsDone(r), learned(r), held(r.HeldOut, false), held(r.Best, true), ago(r.Changed, now), r.Algorithm, r.Model})
	}
	p := c.page()
	for _, line := range append(table(rows, p.width), wrong...) {
		p.write(terminal.Text(line))
	}
	return p.err
}

// stepsDone are those that a run did, of how many where that is known.
func stepsDone(r overview.Run) string {
	if r.Planned == 0 {
		return strconv.Itoa(r.Steps)
	}
	return fmt.Sprintf("%d/%d", r.Steps, r.Planned)
}

// learned is the reward of a run's last step, its loss, or its divergence from the teacher.
func learned(r overview.Run) string {
	switch {
	case r.ReverseKL != nil:
		return fmt.Sprintf("KL %.3f", *r.ReverseKL)
	case r.Loss != nil:
		return fmt.Sprintf("loss %.3f", *r.Loss)
	case r.Reward != nil:
		return fmt.Sprintf("%.3f", *r.Reward)
	}
	return "-"
}

// held is the score of an evaluation.
func held(h *overview.Held, step bool) string {
	switch {
	case h == nil:
		return "-"
	case step:
		return fmt.Sprintf("%.3f @%d", h.Score, h.Step)
	}
	return fmt.Sprintf("%.3f", h.Score)
}

func (c runsCommands) status(x *cli.Context) error {
	dir, err := one(x, "the run folder")
	if err != nil {
		return err
	}
	now := time.Now()
	s, err := overview.ReadStatus(x.Context, dir, now)
	if err != nil {
		return job.InputError(err)
	}
	if x.Bool("json") {
		return c.print(s)
	}
	p := c.page()
	p.line("run", "%s: %s, model %s", dir, s.Algorithm, s.Model)
	done := plural(s.Steps, "step")
	if s.Planned > 0 {
		done = fmt.Sprintf("%d of %s", s.Steps, plural(s.Planned, "step"))
	}
	state := fmt.Sprintf("%s, %s done, last sign of it %s", s.State, done, ago(s.Changed, now))
	if s.Error != "" {
		state += "\n" + s.Error
	}
	p.line("state", "%s", state)
	if s.Resumable() {
		p.write(p.paint("1", fmt.Sprintf("%-*s", labelled, "go on")) + terminal.Text(resumes(dir, c.registries.Agents))) // unbroken, to be copied
	}
	if s.Doing != "" {
		p.line("now", "%s, for %s (process %d on %s)", s.Doing, long(now.Sub(*s.Since)), s.PID, s.Host)
	}
	for i, w := range s.Waits {
		label := "waits for"
		if i > 0 {
			label = ""
		}
		switch w.Count {
		case 1:
			p.line(label, "%s: %s, for %s", w.Part, w.Oldest, span(w.Seconds))
		default:
			p.line(label, "%s: %d, the oldest %s, for %s", w.Part, w.Count, w.Oldest, span(w.Seconds))
		}
	}
	if g := s.Groups; g != nil {
		p.line("groups", "%d being sampled, %d wait for their update, %d in it; at most %d at once, %s behind (most %d)", g.Sampling, g.Ended, g.Training, g.Most, plural(g.Behind, "policy version"), g.Staleness)
	}
	for _, l := range s.Engine {
		where := "in the run's process"
		if l.Server != "" {
			where = l.Server
		}
		p.line("engine", "%s: %d of %s in use, %d waiting", where, l.Running, plural(l.Slots, "slot"), l.Waiting)
		if l.Down != "" {
			p.line("", "it takes no requests: %s", l.Down)
		}
	}
	for _, pool := range s.Pools {
		p.line("pool", "%s: %d of %d in use, %d waiting", pool.Name, pool.InUse, pool.Size, pool.Waiting)
	}
	if s.Left != nil {
		p.line("left", "about %s: %s of %s each", long(time.Duration(*s.Left*float64(time.Second))), plural(s.Planned-s.Steps, "step"), span(s.StepSeconds))
	}
	c.showStep(p, s)
	var errs []string
	for _, origin := range slices.Sorted(maps.Keys(s.Errors)) {
		errs = append(errs, fmt.Sprintf("%s %d", origin, s.Errors[origin]))
	}
	if len(errs) > 0 {
		p.line("errors", "%s in all steps", strings.Join(errs, ", "))
	}
	for i, line := range s.Failures {
		p.line([]string{"failures", ""}[min(i, 1)], "%s", line)
	}
	return p.err
}

// showStep shows the figures of the last step, and how what the run learns by went.
func (c runsCommands) showStep(p *page, s overview.Status) {
	if s.Last == nil {
		return
	}
	figure := func(parts *[]string, form, key string) {
		if v, ok := s.Last[key]; ok {
			*parts = append(*parts, fmt.Sprintf(form, v))
		}
	}
	var parts []string
	figure(&parts, "reward %.3f", "reward/mean")
	figure(&parts, "loss %.4f", "sft/loss")
	figure(&parts, "reverse KL %.4f", "distill/reverse_kl")
	figure(&parts, "entropy %.3f", "update/entropy")
	figure(&parts, "gradient %.3g", "update/grad_norm")
	figure(&parts, "mismatch %.1e", "update/mismatch_max")
	figure(&parts, "length %.0f", "length/response_mean")
	p.line("last step", "%s", strings.Join(parts, ", "))
	parts = nil
	figure(&parts, "sampling %.1f s", "seconds/sample")
	figure(&parts, "training %.1f s", "seconds/train")
	figure(&parts, "sampled %.0f tok/s", "tokens/sample_per_second")
	figure(&parts, "trained %.0f tok/s", "tokens/train_per_second")
	p.line("", "%s", strings.Join(parts, ", "))
	metrics := s.Metrics()
	labels := map[string]string{"distill/reverse_kl": "KL", "reward/mean": "reward", "sft/loss": "loss"}
	for _, either := range drawn {
		if i := slices.IndexFunc(either, func(key string) bool { return metrics[key] != nil }); i >= 0 {
			m := metrics[either[i]]
			n := len(m.Values)
			p.line(cmp.Or(labels[either[i]], "held-out"), "%s -> %s  %s", plot.Number(m.Values[0]), plot.Number(m.Values[n-1]), plot.Spark(m.Values, 40, !terminal.UTF8()))
		}
	}
}

const mostRuns = plot.MostLines // that are compared or drawn: more cannot be told apart

func (c runsCommands) several(x *cli.Context, least int, what string) ([]string, error) {
	switch n := x.NArg(); {
	case n < least:
		return nil, usagef("%s takes %s; got %d", fullName(x), what, n)
	case n > mostRuns:
		return nil, usagef("%s takes at most %d; got %d", fullName(x), mostRuns, n)
	}
	return x.Args().Slice(), nil
}

func (c runsCommands) compare(x *cli.Context) error {
	dirs, err := c.several(x, 2, "two run folders or more")
	if err != nil {
		return err
	}
	all, err := overview.Compare(x.Context, dirs)
	if err != nil {
		return job.InputError(err)
	}
	if x.Bool("json") {
		return c.print(all)
	}
	p := c.page()
	head := []string{""}
	letters := func(i int) string { return string(rune('A' + i)) }
	rows := [][]string{{"", "run", "state", ">step", ">reward", ">held-out", ">best"}}
	for i, r := range all.Runs {
		rows = append(rows, []string{letters(i), r.Dir, string(r.State), stepsDone(r), learned(r), held(r.HeldOut, false), held(r.Best, true)})
		head = append(head, letters(i))
	}
	c.section(p, "", rows)
	rows = [][]string{slices.Concat([]string{"setting"}, head[1:])}
	for _, s := range all.Settings {
		row := []string{s.Key}
		for _, v := range s.Values {
			row = append(row, wording.Clip(cmp.Or(v, "not set"), 40))
		}
		rows = append(rows, row)
	}
	if len(all.Settings) == 0 {
		p.write("\nthe settings are the same")
	} else {
		c.section(p, "settings that differ", rows)
	}
	for _, m := range all.Curves {
		row := []string{m.Metric}
		for _, step := range m.Steps {
			row = append(row, fmt.Sprintf(">step %d", step))
		}
		rows = [][]string{row}
		for i, values := range m.Values {
			row := []string{letters(i)}
			for _, v := range values {
				row = append(row, plot.Number(v))
			}
			rows = append(rows, row)
		}
		c.section(p, "", rows)
	}
	for i, t := range all.Tasks {
		c.showTasks(p, t, letters(i+1))
	}
	if len(all.Tasks) == 0 {
		p.write("\nheld-out tasks are not compared: a run has no evaluation of tasks by a reward")
	}
	return p.err
}

// section writes a table below an empty line, and a title where it has one.
func (c runsCommands) section(p *page, title string, rows [][]string) {
	if p.written {
		p.write("")
	}
	if title != "" {
		p.write(p.paint("1", title))
	}
	for _, line := range table(rows, p.width) {
		p.write(line)
	}
}

const mostTasks = 5 // that are named on each side

func (c runsCommands) showTasks(p *page, t overview.TaskByTask, letter string) {
	p.write("")
	p.write(p.paint("1", terminal.Text(fmt.Sprintf("held-out tasks, A (%s) against %s (%s)", t.From, letter, t.To))))
	if t.Tasks == 0 {
		p.write("  the two evaluations have no task in common")
		return
	}
	p.write(fmt.Sprintf("  %s: mean %+.3f, 95%% interval %+.3f to %+.3f (%s)", plural(t.Tasks, "task"), t.Mean, t.Low, t.High, verdict(t)))
	p.write(fmt.Sprintf("  %d better, %d worse, %d the same", t.Better, t.Worse, t.Tasks-t.Better-t.Worse))
	if t.Other > 0 {
		p.write(fmt.Sprintf("  %s cannot be compared: one of the two has it not, or otherwise, or failed in it", plural(t.Other, "task")))
	}
	var worse, better []overview.TaskChange
	for _, change := range t.Changes {
		if change.To < change.From {
			worse = append(worse, change)
		} else {
			better = append(better, change)
		}
	}
	slices.Reverse(better) // the most first
	name := func(what string, all []overview.TaskChange) {
		for _, change := range all[:min(mostTasks, len(all))] {
			p.write(terminal.Text(fmt.Sprintf("  %-6s %s -> %s  %s", what, plot.Number(change.From), plot.Number(change.To), wording.Clip(strings.ReplaceAll(change.Task, "\n", " "), 60))))
		}
		if more := len(all) - mostTasks; more > 0 {
			p.write(fmt.Sprintf("  %-6s %d more; --json names them", what, more))
		}
	}
	name("worse", worse)
	name("better", better)
}

// verdict says what an interval says.
func verdict(t overview.TaskByTask) string {
	switch {
	case t.Tasks < 2:
		return "one task says nothing of others"
	case t.Low > 0:
		return "better"
	case t.High < 0:
		return "worse"
	}
	return "no difference is shown"
}

// drawn are the metrics that are drawn where none are named: what is learned by, and what became of held-out tasks. Of each list it is the first that
// all the runs have, or else the first that one has. A distillation may have rewards, which it does not learn by.
var drawn = [][]string{{"distill/reverse_kl", "reward/mean", "sft/loss"}, {"eval/reverse_kl", "eval/reward", "eval/loss"}}

func (c runsCommands) plot(x *cli.Context) error {
	paths, err := c.several(x, 1, "run folders or files like metrics.jsonl")
	if err != nil {
		return err
	}
	for _, flag := range []string{"metric", "png", "svg", "json"} {
		if x.Bool("list") && x.IsSet(flag) {
			return usagef("--list shows names of metrics alone, without --%s; give one of the two", flag)
		}
	}
	for _, how := range []string{"ascii", "height"} {
		for _, flag := range []string{"list", "json"} {
			if x.Bool(flag) && x.IsSet(how) {
				return usagef("--%s is for a drawing in the terminal, and --%s draws none; give one of the two", how, flag)
			}
		}
	}
	for _, flag := range []string{"png", "svg"} {
		if x.Bool("json") && x.IsSet(flag) {
			return usagef("--json and --%s are two ways to show curves; give one of the two", flag)
		}
	}
	for _, file := range []string{"png", "svg"} {
		for _, flag := range []string{"ascii", "height"} {
			if x.IsSet(file) && x.IsSet(flag) {
				return usagef("--%s is for a drawing in the terminal, and --%s writes a file; give one of the two", flag, file)
			}
		}
	}
	if png, svg := x.String("png"), x.String("svg"); png != "" && svg != "" && samePlace(png, svg) {
		return usagef("--png and --svg name the same file; give each one of its own")
	}
	if err := checkDrawing(x); err != nil {
		return err
	}
	names, all := []string{}, []overview.Metrics{}
	for _, path := range paths {
		name, m, err := overview.ReadCurves(path)
		if err != nil {
			return job.InputError(err)
		}
		names, all = append(names, name), append(all, m)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) { // a name alone tells two of them not apart
		names = paths
	}
	var known []string
	for _, m := range all {
		known = append(known, m.Keys()...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	if x.Bool("list") {
		for _, key := range known {
			fmt.Fprintln(c.text, key)
		}
		return nil
	}
	keys := x.StringSlice("metric")
	if len(keys) == 0 {
		for _, either := range drawn {
			i := slices.IndexFunc(either, func(key string) bool {
				return !slices.ContainsFunc(all, func(m overview.Metrics) bool { return m[key] == nil })
			})
			if i < 0 {
				i = slices.IndexFunc(either, func(key string) bool { return slices.Contains(known, key) })
			}
			if i >= 0 {
				keys = append(keys, either[i])
			}
		}
	}
	if len(keys) == 0 {
		return job.InputError(fmt.Errorf("nothing can be drawn yet: %s has no step", paths[0]))
	}
	var charts []plot.Chart
	curves := map[string]map[string]*overview.Curve{}
	for _, key := range keys {
		if !slices.Contains(known, key) {
			return usagef("no run has the metric %q%s; agentfly plot --list names those there are", key, wording.DidYouMean(key, known))
		}
		chart := plot.Chart{Title: terminal.Text(key), Named: len(all) > 1}
		curves[key] = map[string]*overview.Curve{}
		for i, m := range all {
			curve := m[key]
			if curve == nil {
				fmt.Fprintf(c.errOut, "note: %s has no %s\n", terminal.Text(names[i]), terminal.Text(key))
				continue
			}
			curves[key][names[i]] = curve
			line := plot.Line{Name: terminal.Text(names[i]), Y: curve.Values}
			for _, step := range curve.Steps {
				line.X = append(line.X, float64(step))
			}
			chart.Lines = append(chart.Lines, line)
		}
		charts = append(charts, chart)
	}
	if x.Bool("json") {
		return c.print(curves)
	}
	return c.draw(x, charts)
}

// checkDrawing refuses a size that is none, a file that is named like one of the other kind, and one in a folder that is not there: none is made
// for a drawing.
func checkDrawing(x *cli.Context) error {
	if lines := x.Int("height"); lines < lowestDrawing || lines > highestDrawing {
		return usagef("--height is %d; allowed: %d to %d", lines, lowestDrawing, highestDrawing)
	}
	for _, f := range []struct{ flag, what, other, others string }{{"png", "picture", "svg", "drawing"}, {"svg", "drawing", "png", "picture"}} {
		path := x.String(f.flag)
		if path == "" {
			continue
		}
		if strings.EqualFold(filepath.Ext(path), "."+f.other) {
			return usagef("--%s writes a %s, and %s is named like a %s; write --%s %s", f.flag, f.what, path, f.others, f.other, path)
		}
		if kind := strings.ToLower(filepath.Ext(path)); slices.Contains([]string{".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".eps", ".ps"}, kind) {
			return usagef("--%s %s: no %s is written; name the file .%s", f.flag, path, kind[1:], f.flag)
		}
		if dir := filepath.Dir(path); !isFolder(dir) {
			return usagef("--%s %s: there is no folder %s; make it, or name a file elsewhere", f.flag, path, dir)
		}
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Lines that a drawing in the terminal may have.
const lowestDrawing, highestDrawing = 3, 100

// draw writes charts to the files that are named, or else to the terminal.
func (c runsCommands) draw(x *cli.Context, charts []plot.Chart) error {
	wrote := false
	for flag, write := range map[string]func(io.Writer, []plot.Chart) error{"png": plot.PNG, "svg": plot.SVG} {
		path := x.String(flag)
		if path == "" {
			continue
		}
		wrote = true
		if err := export.WriteWhole(path, func(w *os.File) error { return write(w, charts) }); err != nil {
			return job.InputError(err)
		}
		fmt.Fprintf(c.errOut, "wrote %s\n", path)
	}
	if wrote {
		return nil
	}
	p := c.page()
	screen := plot.Screen{Width: 72, Height: x.Int("height"), Colours: p.colours, ASCII: x.Bool("ascii") || !terminal.UTF8() || os.Getenv("TERM") == "dumb"}
	if p.width > 0 {
		screen.Width = max(8, min(200, p.width-12))
	}
	for i, chart := range charts {
		if i > 0 {
			p.write("")
		}
		for _, line := range chart.Text(screen) {
			p.write(line)
		}
	}
	return p.err
}
