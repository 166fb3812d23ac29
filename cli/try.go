package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// tryCommand samples one trajectory and shows all of it.
type tryCommand struct{ *env }

func (c tryCommand) command() *cli.Command {
	return &cli.Command{
		Name: "try", Usage: "show one trajectory: prompt, tokens, calls, reward", ArgsUsage: "JOB|RUN", Action: c.try,
		Flags: []cli.Flag{
			modelFlag(), &cli.Uint64Flag{Name: "seed", Usage: "override the job's seed", DefaultText: "the job's"}, setFlag(),
			&cli.IntFlag{Name: "task", Value: 1, Usage: "task `N` of the data to train on, counted from 1"},
			&cli.BoolFlag{Name: "full", Usage: "all of a long prompt or observation, and every token"},
			&cli.BoolFlag{Name: "json", Usage: "the trajectory as one JSON line, token by token"},
		},
	}
}

// jobAndModel reads the job that a command line names, or that of the run, whose last checkpoint is then the model. --model goes before both.
func (e *env) jobAndModel(x *cli.Context, what string) (j *job.Job, model string, err error) {
	path, err := one(x, what)
	if err != nil {
		return nil, "", err
	}
	if model := x.String("model"); model != "" {
		if _, err := modelfile.Resolve(model); err != nil {
			return nil, "", usagef("--model: %s", job.Words(err))
		}
	}
	if !overview.Is(path) {
		j, err = e.load(x)
		return j, x.String("model"), err
	}
	if len(x.StringSlice("set")) > 0 {
		return nil, "", usagef("--set changes a job file; %s is a run, whose job is as it ran", path)
	}
	if j, err = orchestrator.OfRun(path, e.registries.Agents); err != nil {
		return nil, "", err
	}
	if x.IsSet("seed") {
		j.Seed = x.Uint64("seed")
	}
	if model = x.String("model"); model == "" {
		model = path
	}
	return j, model, nil
}

func (c tryCommand) try(x *cli.Context) (err error) {
	j, model, err := c.jobAndModel(x, "the job file or the run folder")
	if err != nil {
		return err
	}
	if x.Int("task") < 1 {
		return usagef("--task is %d; the first task is 1", x.Int("task"))
	}
	ctx, stop := runCommands(c).watch(x, j.Rollout.Watchdog)
	defer stop()
	p, err := orchestrator.NewPlayer(ctx, j, model, c.registries, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	n := x.Int("task")
	if n > len(p.Tasks) {
		return usagef("--task is %d; the data has %d tasks", n, len(p.Tasks))
	}
	c.tell(p.Known())
	t := p.Try(ctx, n-1)
	c.tell(p.Notes())
	if ctx.Err() != nil {
		return orchestrator.ErrStopped
	}
	if x.Bool("json") {
		if err := c.print(orchestrator.Inspect(store.Record{Phase: "try", Task: p.Tasks[n-1], Trajectory: t}, p.Decode)); err != nil {
			return err
		}
	} else if err := c.show(x, p, model, n, t); err != nil {
		return err
	}
	if t.Failed() {
		return errors.New("try: the trajectory failed: " + strings.TrimPrefix(t.Err, "orchestrator: "))
	}
	return nil
}

// tell prints notes on standard error.
func (e *env) tell(notes []string) {
	for _, note := range notes {
		fmt.Fprintln(e.errOut, "note: "+note)
	}
}

// show lays a trajectory out for a person.
func (c tryCommand) show(x *cli.Context, p *orchestrator.Player, model string, n int, t *trajectory.Trajectory) error {
	page, task := c.page(), p.Tasks[n-1]
	most, tokens := 12, 6
	if x.Bool("full") {
		most, tokens = 0, 1<<30
	}
	page.line("model", "%s", cmp.Or(model, p.Job.Model.Path, "from scratch"))
	page.line("task", "%d of %d, id %s", n, len(p.Tasks), task.ID)
	if len(t.Samples) > 0 && len(t.Turns) > 0 {
		ids := t.Samples[0].TokenIDs[:t.Turns[0].CompletionStart]
		page.line("prompt", "%s", plural(len(ids), "token"))
		page.block(p.Decode(ids), "", most)
	}
	for i, turn := range t.Turns {
		s := t.Samples[turn.Sample]
		page.line(fmt.Sprintf("turn %d", i+1), "%s sampled in %.1f s, finish reason %s", plural(turn.CompletionEnd-turn.CompletionStart, "token"), turn.EngineSeconds, turn.FinishReason)
		page.block(p.Decode(s.TokenIDs[turn.CompletionStart:turn.CompletionEnd]), "32", most)
		page.line("", "%s", likely(s, turn, p.Decode, tokens))
		if turn.ParseErrors > 0 {
			page.line("", "%s that could not be read", plural(turn.ParseErrors, "call"))
		}
		for _, r := range turn.Results {
			how := fmt.Sprintf("%.0f ms", float64(r.Duration.Microseconds())/1000)
			if r.Failed {
				how += ", failed: " + string(r.Cause)
			}
			page.line("call", "%s %s  (%s)", r.Call.Name, r.Call.Arguments, how)
			page.block(r.Observation, "", most)
		}
	}
	c.showEnd(page, p, t)
	return page.err
}

// likely are the logprobs of the first sampled tokens of a turn, and of all of them.
func likely(s *trajectory.Sample, turn trajectory.Turn, decode func([]int32) string, most int) string {
	var parts []string
	sum, least, at := 0.0, 1.0, turn.CompletionStart
	for i := turn.CompletionStart; i < turn.CompletionEnd; i++ {
		logprob := float64(s.SamplingLogprobs[i])
		if sum += logprob; logprob < least {
			least, at = logprob, i
		}
		if len(parts) < most {
			parts = append(parts, fmt.Sprintf("%s %.2f", strconv.Quote(decode(s.TokenIDs[i:i+1])), logprob))
		}
	}
	n := turn.CompletionEnd - turn.CompletionStart
	if n == 0 {
		return ""
	}
	out := "logprobs " + strings.Join(parts, "  ")
	if n > len(parts) {
		out += " …"
	}
	return out + fmt.Sprintf("\nmean %.2f, least %.2f (%s)", sum/float64(n), least, strconv.Quote(decode(s.TokenIDs[at:at+1])))
}

// showEnd is how the trajectory ended, what it was worth, and what of it would be trained.
func (c tryCommand) showEnd(page *page, p *orchestrator.Player, t *trajectory.Trajectory) {
	stop := string(t.StopReason)
	if answer, turn := t.FinalAnswer(); turn >= 0 {
		stop += ": " + answer
	}
	page.line("stopped", "%s", stop)
	if t.Failed() {
		page.line("failed", "%s: %s", t.ErrOrigin, t.Err)
		return
	}
	for k, s := range t.Samples {
		label := ""
		if k == 0 {
			label = "mask"
		}
		page.line(label, "%s", stretches(s.ResponseMask))
	}
	if len(p.Job.Rewards) == 0 {
		return
	}
	page.line("reward", "%.3f", t.Return())
	names := make([]string, 0, len(t.RewardParts))
	wide := 0
	for name := range t.RewardParts {
		names = append(names, name)
		wide = max(wide, len(name))
	}
	slices.Sort(names)
	for _, name := range names {
		line := fmt.Sprintf("%-*s %8.3f", wide, name, t.RewardParts[name])
		if weight, ok := p.Weight(name); ok {
			line += fmt.Sprintf("  × %g", weight)
		}
		page.line("", "%s", line)
	}
}

// stretches says how many tokens in a row are trained (sampled by the policy) and how many are only read.
func stretches(mask []bool) string {
	var parts []string
	trained := 0
	for i := 0; i < len(mask); {
		n := i
		for n < len(mask) && mask[n] == mask[i] {
			n++
		}
		what := "read"
		if mask[i] {
			what = "sampled"
			trained += n - i
		}
		parts = append(parts, fmt.Sprintf("%d %s", n-i, what))
		i = n
	}
	return fmt.Sprintf("%s; trained are %d of %s", strings.Join(parts, ", "), trained, plural(len(mask), "token"))
}

// plural is a number of things.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return terminal.Text(fmt.Sprintf("%d %s", n, what))
}
