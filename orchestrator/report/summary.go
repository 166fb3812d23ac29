package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
)

// Summary is summary.json.
type Summary struct {
	Job             string             `json:"job" doc:"the job's name"`
	Steps           int                `json:"steps" unit:"steps" doc:"steps of the run"`
	Seconds         float64            `json:"seconds" unit:"seconds" doc:"from the first rollout to the last evaluation"`
	Reward          map[string]float64 `json:"reward" unit:"reward" doc:"first_step, last_step: of these steps; first, last: means of window steps at the beginning and at the end, which do not overlap, at most three each; steps: how many have a reward, where some have none, which these numbers pass over"`
	Loss            map[string]float64 `json:"loss,omitempty" unit:"nats" doc:"supervised fine-tuning: first_step, last_step, first, last and window as of the reward; eval_before, eval_after: of held-out conversations"`
	Eval            map[string]float64 `json:"eval" doc:"before, after: mean reward, in a job with rewards; tool_off: share of right answers without tools; reverse_kl_NAME: distillation, of each evaluation"`
	Time            map[string]float64 `json:"time" unit:"seconds" doc:"sample, train, evaluate, rest: where the run's time went; in mode async sampling goes on beside training, and rest is left out"`
	TokensPerSecond map[string]float64 `json:"tokens_per_second" unit:"tokens per second" doc:"sample, train: of all steps; sample without tokens that an earlier process of the run recorded"`
	Trajectories    map[string]int     `json:"trajectories" unit:"trajectories" doc:"finished, failed"`
	MismatchMax     float64            `json:"mismatch_max" unit:"nats" doc:"largest update/mismatch_max of a step"`
	StalenessMax    int                `json:"staleness_max,omitempty" unit:"versions" doc:"largest update/staleness_max of a step; left out where it is 0"`
	Skipped         int                `json:"skipped,omitempty" unit:"steps" doc:"steps whose update was passed over (trainer.on_nonfinite)"`
	Errors          map[string]int     `json:"errors,omitempty" unit:"errors" doc:"by origin: trajectories that failed, tool calls that broke"`
	Best            *Best              `json:"best,omitempty" doc:"name, step and score of the best evaluation (docs/evaluation.md); left out without one"`
	Tasks           map[string]float64 `json:"tasks,omitempty" unit:"tasks" doc:"held-out tasks from the first evaluation to the last: tasks that both have, better, worse; and of the difference in reward mean, low and high (95% interval, paired bootstrap over tasks)"`
	Advice          []string           `json:"advice,omitempty" doc:"what to try next, from the run's figures"`
	Reports         []string           `json:"reports,omitempty" doc:"targets of report that have not all of the run, why, and the command that catches up"`
	Stopped         string             `json:"stopped,omitempty" doc:"why the run ended before trainer.steps; left out where it did not"`
	Distill         bool               `json:"distill,omitempty" doc:"true in distillation, where rewards are reported and nothing learns from them; left out elsewhere"`
}

// Summary is that of a run after so many steps, but for what the job says. sft: it is one of supervised fine-tuning.
func (t Totals) Summary(steps int, sft bool) Summary {
	out := Summary{
		Steps: steps, Seconds: t.Seconds, MismatchMax: t.MismatchMax, StalenessMax: t.StalenessMax, Skipped: t.Skipped,
		Reward: firstAndLast(t.Rewards), Eval: map[string]float64{}, Time: t.time(),
		TokensPerSecond: map[string]float64{"sample": t.SampledTokens / max(1e-9, t.SampleSeconds), "train": t.TrainTokens / max(1e-9, t.TrainSeconds)},
		Trajectories:    map[string]int{"finished": t.Finished, "failed": t.Failed},
		Errors:          t.Errors, Best: t.Evaluations.Best(steps),
	}
	if n := len(t.Rewards); n > 0 && n < steps {
		out.Reward["steps"] = float64(n)
	}
	if sft {
		out.Reward, out.Loss = map[string]float64{}, firstAndLast(t.Losses)
	}
	for _, e := range t.Evaluations {
		if e.ReverseKL != nil {
			out.Eval["reverse_kl_"+e.Name] = *e.ReverseKL
		}
		if e.Loss != nil {
			if e.Name == "before" || e.Name == "after" {
				out.Loss["eval_"+e.Name] = *e.Loss
			}
			continue
		}
		switch e.Name {
		case "before", "after":
			if !e.Unscored {
				out.Eval[e.Name] = e.Reward
			}
		case "tool_off":
			out.Eval[e.Name] = e.Accuracy
		}
	}
	return out
}

// time is where the run's time went.
func (t Totals) time() map[string]float64 {
	out := map[string]float64{"sample": t.SampleSeconds, "train": t.TrainSeconds, "evaluate": 0}
	for _, e := range t.Evaluations {
		out["evaluate"] += e.Seconds
	}
	if rest := t.Seconds - out["sample"] - out["train"] - out["evaluate"]; rest >= 0 { // else sampling overlaps training
		out["rest"] = rest
	}
	return out
}

// firstAndLast are the first and the last step that has the number, and the means of as many steps at the beginning and at the end: at most three, and so few that
// no step is in both, but for the only one of a run. Without such a step there are none.
func firstAndLast(steps []float64) map[string]float64 {
	if len(steps) == 0 {
		return map[string]float64{}
	}
	n := max(1, min(3, len(steps)/2))
	return map[string]float64{
		"first_step": steps[0], "last_step": steps[len(steps)-1],
		"first": mean(steps[:n]), "last": mean(steps[len(steps)-n:]), "window": float64(n),
	}
}

// Say prints one line.
type Say func(format string, args ...any)

// Print says what a run came to, and what to do next. dir is its folder, job the job's file, last its last checkpoint and bestKept that of
// its best evaluation; "": none was kept. talks: a person can chat with its policy.
func (s Summary) Print(say Say, dir, job, last, bestKept string, talks bool) {
	line := func(label, format string, args ...any) { say("%-14s "+format, append([]any{label}, args...)...) }
	say("")
	steps := "steps"
	if s.Steps == 1 {
		steps = "step"
	}
	say("%s: %d %s in %s", s.Job, s.Steps, steps, (time.Duration(s.Seconds) * time.Second).String())
	if s.Stopped != "" {
		line("stopped early", "%s", s.Stopped)
	}
	if s.Loss != nil {
		s.trend(line, "loss", "%.4f", s.Loss)
		if before, ok := s.Loss["eval_before"]; ok {
			line("held-out loss", "%.4f before, %.4f after", before, s.Loss["eval_after"])
		}
	} else {
		s.trend(line, "reward", "%.3f", s.Reward)
		if before, ok := s.Eval["reverse_kl_before"]; ok {
			line("held-out KL", "%.4f before, %.4f after", before, s.Eval["reverse_kl_after"])
		}
		if before, ok := s.Eval["before"]; ok {
			line("held-out tasks", "%.3f before, %.3f after", before, s.Eval["after"])
		}
		if n := s.Tasks["tasks"]; n > 1 {
			line("", "%.0f of %.0f tasks better, %.0f worse; by %+.3f, 95%% interval %+.3f to %+.3f", s.Tasks["better"], n, s.Tasks["worse"], s.Tasks["mean"], s.Tasks["low"], s.Tasks["high"])
		}
		if off, ok := s.Eval["tool_off"]; ok {
			line("without tools", "%.0f%% right", 100*off)
		}
	}
	if s.Best != nil && (bestKept != "" || s.Best.Step > 0 && s.Best.Step < s.Steps) {
		kept := "not kept: checkpoint.best was off"
		if bestKept != "" {
			kept = bestKept
		}
		line("best", "%.3f after step %d (evaluation %s): %s", s.Best.Score, s.Best.Step, s.Best.Name, kept)
	}
	for i, worse := range s.worse() {
		line([]string{"worse", ""}[min(i, 1)], "%s", worse)
	}
	line("time", "%s", s.timeLine())
	if s.Loss == nil {
		line("speed", "sampled %.0f tok/s, trained %.0f tok/s", s.TokensPerSecond["sample"], s.TokensPerSecond["train"])
		line("trajectories", "%d finished, %d failed; engine and trainer logprobs at most %.1e apart%s", s.Trajectories["finished"], s.Trajectories["failed"], s.MismatchMax, s.older())
	}
	for i, advice := range s.Advice {
		line([]string{"try", ""}[min(i, 1)], "%s", advice)
	}
	for i, behind := range s.Reports {
		line([]string{"report", ""}[min(i, 1)], "%s", behind)
	}
	line("checkpoint", "%s (Hugging Face format)", last)
	say("")
	job, dir = wording.ShellWord(job), wording.ShellWord(dir)
	next := []string{"agentfly inspect trajectory --run " + dir + " --view"}
	if s.Loss == nil && len(s.Eval) > 0 {
		next = append(next, "agentfly eval "+job+" --model "+dir)
	}
	look := "agentfly try " + job + " --model " + dir
	if talks {
		look = "agentfly chat " + dir
	}
	for i, command := range append(next, look, "agentfly serve "+dir) {
		line([]string{"next", ""}[min(i, 1)], "%s", command)
	}
}

// trend says how a number went: first and last step, and beside them the means of several where the run has enough.
func (s Summary) trend(line func(label, format string, args ...any), label, form string, of map[string]float64) {
	steps, which := s.Steps, ""
	if some, ok := of["steps"]; ok {
		steps, which = int(some), " of those that have one"
	}
	switch n := int(of["window"]); {
	case n == 0: // no step has it
	case steps == 1:
		line(label, form, of["first_step"])
	default:
		line(label, form+" -> "+form+"   step 1 and step %d%s", of["first_step"], of["last_step"], steps, which)
		if n > 1 {
			line("", form+" -> "+form+"   mean of steps 1-%d and %d-%d%s", of["first"], of["last"], n, steps-n+1, steps, which)
		}
	}
}

// older says of logprobs that older policy versions sampled with: a difference from the trainer's is not the engine's alone then.
func (s Summary) older() string {
	switch s.StalenessMax {
	case 0:
		return ""
	case 1:
		return " (tokens are up to 1 version old)"
	}
	return fmt.Sprintf(" (tokens are up to %d versions old)", s.StalenessMax)
}

// worse is what a run made worse, and what went wrong in it. Two numbers that print alike are not told apart.
func (s Summary) worse() (out []string) {
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	shown := func(form string, v float64) float64 {
		v, _ = strconv.ParseFloat(fmt.Sprintf(form, v), 64) // which wrote it
		return v
	}
	below := func(form string, a, b float64) bool { return shown(form, a) < shown(form, b) }
	n := int(s.Reward["window"])
	add(n > 0 && !s.Distill && below("%.3f", s.Reward["last"], s.Reward["first"]), "the reward fell from %.3f to %.3f", s.Reward["first"], s.Reward["last"])
	before, evaluated := s.Eval["before"]
	after, both := s.Eval["after"]
	add(evaluated && both && !s.Distill && below("%.3f", after, before), "the held-out tasks fell from %.3f to %.3f", before, after)
	add(s.Loss != nil && below("%.4f", s.Loss["first"], s.Loss["last"]), "the loss rose from %.4f to %.4f", s.Loss["first"], s.Loss["last"])
	if held, ok := s.Loss["eval_before"]; ok {
		add(below("%.4f", held, s.Loss["eval_after"]), "the held-out loss rose from %.4f to %.4f", held, s.Loss["eval_after"])
	}
	failed := s.Trajectories["failed"]
	add(failed > 0, "%d of %d trajectories failed%s", failed, failed+s.Trajectories["finished"], s.origins())
	add(s.Skipped > 0, "%d steps were skipped, because a number was not finite", s.Skipped)
	return out
}

// origins are those of the errors, the most frequent first.
func (s Summary) origins() string {
	names := slices.SortedFunc(maps.Keys(s.Errors), func(a, b string) int { return cmp.Or(s.Errors[b]-s.Errors[a], cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, s.Errors[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (errors: " + strings.Join(parts, ", ") + ")"
}

// timeLine says where the time went.
func (s Summary) timeLine() string {
	var parts []string
	add := func(what, key string) {
		if v := s.Time[key]; v >= 0.05 {
			parts = append(parts, fmt.Sprintf("%s %.1f s", what, v))
		}
	}
	if s.Loss == nil {
		add("sampling", "sample")
	}
	add("training", "train")
	add("evaluation", "evaluate")
	add("the rest", "rest")
	if _, ok := s.Time["rest"]; !ok && len(parts) > 0 {
		return strings.Join(parts, ", ") + " (side by side)"
	}
	if len(parts) == 0 {
		return "less than 0.1 s"
	}
	return strings.Join(parts, ", ")
}
