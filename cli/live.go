package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/plot"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator"
)

// plainFlag is shared by the commands that draw while they work.
func plainFlag() cli.Flag {
	return &cli.BoolFlag{Name: "plain", Usage: "lines alone: no table is drawn below them on a terminal; as AGENTFLY_PLAIN=1", EnvVars: []string{"AGENTFLY_PLAIN"}}
}

// redraw is how often a table is drawn anew where nothing happens: times go on.
const redraw = 500 * time.Millisecond

// shown draws a block on the terminal to, and returns the env whose output goes above it, until done. Without a terminal, or where plain lines are
// wanted, the env is the same and nothing is drawn. notices are those of the process; nil: it has none.
func (e *env) shown(x *cli.Context, to io.Writer, block func(columns, rows int) []string) (_ *env, done func()) {
	f, ok := to.(*os.File)
	if x.Bool("plain") || !ok || !terminal.LiveOn(to) {
		return e, func() {}
	}
	live := terminal.NewLive(f, terminal.SizeOf(f), redraw, block)
	with := *e
	if terminal.Is(e.out) {
		with.out = live.Above(e.out)
		with.text = terminal.NewWriter(with.out)
	}
	if terminal.Is(e.rawErr) {
		with.rawErr = live.Above(e.rawErr)
		with.errOut = terminal.NewWriter(with.rawErr)
	}
	back := terminal.NoticesOf(x.Context).Through(with.rawErr)
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	var joined sync.WaitGroup
	joined.Go(func() {
		for range continued {
			live.Forget() // a shell wrote below the block meanwhile
		}
	})
	return &with, func() {
		signal.Stop(continued)
		close(continued)
		joined.Wait()
		back()
		live.Close()
	}
}

// logFormat reads --log-format: whether what the run tells is JSON.
func logFormat(x *cli.Context) (asJSON bool, err error) {
	switch format := x.String("log-format"); format {
	case "text":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usagef("--log-format is %q; allowed: text, json", format)
	}
}

// logged prints events as JSON lines.
func (e *env) logged(event orchestrator.Event) {
	if event.Kind == orchestrator.Rollouts { // many a second
		return
	}
	line := struct {
		Time time.Time `json:"time"`
		orchestrator.Event
	}{time.Now(), event}
	if _, err := json.Marshal(line); err != nil { // what JSON cannot hold must not lose the rest
		line.Evaluation, line.Summary = nil, nil
	}
	_ = e.print(line) // a reader that went away ends nothing
}

// display is what is drawn while a command works: how far it is, how it goes, and what it waits for. It is safe for concurrent use.
type display struct {
	waits *watchdog.Board
	ascii bool
	clock func() time.Time

	mu          sync.Mutex
	what        string // is counted by step and steps
	step, steps int
	doing       string
	since       time.Time
	done, of    int // trajectories of what is done now
	name        string
	values      []float64 // of the steps: rewards or losses
	held        []float64 // of the evaluations
	took        []float64 // seconds of the last steps
	speed       string
	sampled     float64 // seconds
	trained     float64
	over        bool // its lines say all
	evaluated   float64
}

func newDisplay() *display {
	return &display{ascii: !terminal.UTF8(), clock: time.Now, what: "step"}
}

// watch makes the display show what is waited for.
func (d *display) watch(b *watchdog.Board) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits = b
}

// event takes what a run tells.
func (d *display) event(e orchestrator.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Kind {
	case orchestrator.Begin:
		d.step, d.steps = e.Step, e.Steps
	case orchestrator.Doing:
		d.doing, d.since, d.done, d.of = e.Text, d.clock(), 0, 0
	case orchestrator.Rollouts:
		d.done, d.of = max(d.done, e.Done), e.Of
	case orchestrator.Evaluated:
		if e.Evaluation.Name != "tool_off" { // another task than the policy learns
			d.held = append(d.held, e.Evaluation.Value())
		}
		d.evaluated += e.Evaluation.Seconds
	case orchestrator.StepDone:
		d.stepDone(e)
	case orchestrator.Summarized:
		d.over = true
	}
}

func (d *display) stepDone(e orchestrator.Event) {
	d.step, d.steps = e.Step, e.Steps
	for _, name := range []string{"sft/loss", "distill/reverse_kl", "reward/mean"} {
		if v, ok := e.Metrics[name]; ok {
			d.name = map[string]string{"sft/loss": "loss", "distill/reverse_kl": "reverse KL", "reward/mean": "reward"}[name]
			d.values = append(d.values, v)
			break
		}
	}
	d.took = append(d.took[max(0, len(d.took)-9):], e.Metrics["seconds/step"])
	d.sampled, d.trained = d.sampled+e.Metrics["seconds/wait"], d.trained+e.Metrics["seconds/train"]
	d.speed = fmt.Sprintf("trained %.0f tok/s", e.Metrics["tokens/train_per_second"])
	if v, ok := e.Metrics["tokens/sample_per_second"]; ok {
		d.speed = fmt.Sprintf("sampled %.0f tok/s, ", v) + d.speed
	}
}

// lines are what is drawn.
func (d *display) lines(columns, rows int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return nil
	}
	now := d.clock()
	columns-- // the last one stays free: some terminals wrap there
	var out []string
	add := func(parts ...string) {
		for i, part := range parts {
			parts[i] = terminal.Text(strings.ReplaceAll(part, "\n", " "))
		}
		if line := terminal.Join(columns, parts...); line != "" {
			out = append(out, line)
		}
	}
	if d.steps > 0 {
		head := fmt.Sprintf("%-7s%d/%d", d.what, d.step, d.steps)
		add(head, "["+plot.Bar(d.step, d.steps, max(0, min(30, columns-len(head)-4)))+"]", fmt.Sprintf("%d%%", 100*d.step/d.steps), d.left(now))
	}
	if n := len(d.values); n > 0 {
		first, last := plot.Number(d.values[0]), plot.Number(d.values[n-1])
		best := plot.Number(slices.Max(d.values))
		if d.name != "reward" {
			best = plot.Number(slices.Min(d.values))
		}
		var held string
		if k := len(d.held); k > 0 {
			held = "held-out " + plot.Number(d.held[k-1])
			if k > 1 {
				held = fmt.Sprintf("held-out %s -> %s", plot.Number(d.held[0]), plot.Number(d.held[k-1]))
			}
		}
		add(fmt.Sprintf("%-7s%s", d.name, last), plot.Spark(d.values, 24, d.ascii), fmt.Sprintf("first %s, best %s", first, best), held)
		add("speed  "+d.speed, d.split())
	}
	doing := d.doing
	if doing != "" {
		doing = fmt.Sprintf("now    %s, for %s", doing, long(now.Sub(d.since)))
		trajectories := ""
		if d.of > 0 {
			trajectories = fmt.Sprintf("%d of %d trajectories", d.done, d.of)
			if d.done > 0 && d.done < d.of {
				each := now.Sub(d.since).Seconds() / float64(d.done)
				trajectories += ", left " + long(time.Duration(each*float64(d.of-d.done)*float64(time.Second)))
			}
		}
		add(doing, trajectories)
	}
	if d.waits != nil {
		if lines := d.waits.Lines(); len(lines) > 0 {
			var waits []string
			for _, l := range lines[:min(3, len(lines))] {
				waits = append(waits, l.String())
			}
			waits[0] = "waits  " + waits[0]
			add(waits...)
		}
	}
	if rows < 2*len(out)+2 && len(out) > 1 { // a small window is for the lines
		return []string{out[0]}
	}
	return out
}

// left is the time that the steps which are left take, if they take as long as the last ones.
func (d *display) left(now time.Time) string {
	if len(d.took) == 0 || d.step >= d.steps {
		return ""
	}
	each := 0.0
	for _, s := range d.took {
		each += s / float64(len(d.took))
	}
	left := each * float64(d.steps-d.step)
	if !d.since.IsZero() {
		left -= min(each, max(0, now.Sub(d.since).Seconds()))
	}
	return "left " + long(time.Duration(left*float64(time.Second)))
}

// split is where the time went.
func (d *display) split() string {
	all := d.sampled + d.trained + d.evaluated
	if all <= 0 {
		return ""
	}
	var parts []string
	for _, p := range []struct {
		name    string
		seconds float64
	}{{"sampling", d.sampled}, {"training", d.trained}, {"evaluation", d.evaluated}} {
		if p.seconds > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", p.name, 100*p.seconds/all))
		}
	}
	return strings.Join(parts, ", ")
}
