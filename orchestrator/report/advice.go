package report

import (
	"fmt"
	"math"

	"github.com/agentfly/agentfly/internal/wording"
)

// Setup is what advice needs to know of how a run was set up.
type Setup struct {
	Dir      string // the run folder
	Overlaps bool   // rollouts go on beside updates
	NoAsync  bool   // the job refuses rollout.mode: async
	CutParse bool   // rollout.cut: parse: completions of a fixed length are wanted
	SFT      bool
	Distill  bool // rewards are reported, and nothing learns from them
	Epochs   int  // sft.epochs; 0: trainer.steps counts
}

// Advice is what to try next, from the figures of a run's steps and evaluations, each piece with the figure that it comes from; none where no figure
// stands out. The steps that count are those of the last third: what was mended earlier needs no advice.
func Advice(steps []map[string]float64, e Evaluations, s Setup) []string {
	if len(steps) == 0 {
		return nil
	}
	late := steps[len(steps)*2/3:]
	sum := func(key string) (v float64) {
		for _, m := range late {
			v += m[key]
		}
		return v
	}
	share := func(part, of string) float64 { return sum(part) / max(1e-9, sum(of)) }
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	percent := func(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }
	if best := e.Best(len(steps)); best != nil && best.Step < len(steps) {
		last := lastOf(e, len(steps))
		_, was := bestOf(e, best).score()
		_, is := last.score()
		add(was-is > 0.02*math.Abs(was), "the held-out score was best after step %d (%.3f) and is %.3f now: take RUN@best (checkpoint.best), end such runs with eval.stop_after, or lower trainer.learning_rate", best.Step, best.Score, last.Value())
	}
	if !s.SFT {
		flat := share("groups/flat", "groups/sampled")
		add(flat > 0.5, "%s of the groups of %s were flat and taught nothing: raise rollout.group_size or rollout.temperature, or take tasks that succeed now and then (data.curriculum)", percent(flat), stepsFrom(len(steps)-len(late)+1, len(steps)))
		cut := share("turns/cut", "turns")
		add(cut > 0.2 && !s.CutParse, "%s of the completions were cut by a token limit: raise rollout.max_new_tokens or rollout.max_tokens", percent(cut))
		failed := sum("tools/failed") / max(1, sum("tools/calls")+sum("tools/parse_errors"))
		add(failed > 0.3, "%s of the tool calls failed: agentfly inspect trajectory --run %s --table --tool-failed any", percent(failed), wording.ShellWord(s.Dir))
		wait := share("seconds/wait", "seconds/step")
		add(wait > 0.6 && !s.Overlaps && !s.NoAsync, "the trainer waited for rollouts %s of the time: rollout.mode: async samples beside updates", percent(wait))
		clip := sum("update/clip_fraction") / float64(len(late))
		add(clip > 0.3, "the loss clipped %s of the tokens: lower trainer.learning_rate or algorithm.mini_batches", percent(clip))
	}
	key, name, better := "reward/mean", "reward", 1.0 // what the run learns by
	switch {
	case s.SFT:
		key, name, better = "sft/loss", "loss", -1
	case s.Distill:
		key, name, better = "distill/reverse_kl", "reverse KL", -1
	}
	values, at := valuesOf(steps, key)
	fell := fall(values, at, better)
	if fell != nil {
		add(true, "the %s was %.3f in steps %d-%d and is %.3f now, and got worse most at step %d: agentfly view %s says why under Causes", name,
			fell.best, fell.from, fell.to, fell.last, fell.step, wording.ShellWord(s.Dir))
	}
	rise, sure := trend(values)
	further := fmt.Sprintf("trainer.steps=%d", 2*len(steps))
	if s.Epochs > 0 {
		further = fmt.Sprintf("sft.epochs=%d", 2*s.Epochs)
	}
	add(fell == nil && sure && rise*better > 0, "the %s was still getting better at the end (%+.3f over the last quarter): go on with --resume --set %s", name, rise, further)
	return out
}

// stepsFrom names the steps that a figure is of.
func stepsFrom(first, last int) string {
	if first == last {
		return fmt.Sprintf("step %d", last)
	}
	return fmt.Sprintf("steps %d-%d", first, last)
}

// bestOf is the evaluation that is the best.
func bestOf(all Evaluations, best *Best) Evaluation {
	for _, e := range all {
		if e.Name == best.Name && e.Step == best.Step {
			return e
		}
	}
	return Evaluation{}
}

// lastOf is the last evaluation up to a step.
func lastOf(all Evaluations, step int) (last Evaluation) {
	for _, e := range all.ranked(step) {
		if e.Step >= last.Step {
			last = e
		}
	}
	return last
}

// valuesOf are those of a metric, and the steps that have one, as people count.
func valuesOf(steps []map[string]float64, key string) (values []float64, at []int) {
	for i, m := range steps {
		if v, ok := m[key]; ok {
			values, at = append(values, v), append(at, i+1)
		}
	}
	return values, at
}

// fallen says how a metric got worse, in steps as people count.
type fallen struct {
	best, last     float64 // means of a window
	from, to, step int     // the steps of the best window; the one at which it got worse most
}

// fall finds the window of an eighth of the steps in which a metric was best, and tells whether the last window is worse by more than a tenth and by
// more than four standard errors of the difference; nil: it is not. Windows of fewer than four steps say nothing.
func fall(values []float64, steps []int, better float64) *fallen {
	n := min(20, len(values)/8)
	if n < 4 {
		return nil
	}
	mean := func(from int) (mean, variance float64) {
		for _, v := range values[from : from+n] {
			mean += v / float64(n)
		}
		for _, v := range values[from : from+n] {
			variance += (v - mean) * (v - mean) / float64(n-1)
		}
		return mean, variance / float64(n)
	}
	last, w := mean(len(values) - n)
	at, best, v := 0, math.Inf(-1), 0.0
	for i := 0; i+n <= len(values); i++ {
		if m, variance := mean(i); m*better > best {
			at, best, v = i, m*better, variance
		}
	}
	if drop := best - last*better; !(drop > 0.1*math.Abs(best) && drop > 4*math.Sqrt(v+w)) {
		return nil
	}
	out := &fallen{best: best * better, last: last, from: steps[at], to: steps[at+n-1]}
	most := math.Inf(-1)
	for i := max(n, at); i+n <= len(values); i++ {
		before, _ := mean(i - n)
		after, _ := mean(i)
		if d := (before - after) * better; d > most {
			most, out.step = d, steps[i]
		}
	}
	return out
}

// trend is by how much the mean of the last quarter of a metric's values differs from that of the quarter before it, and whether that is more than twice its
// standard error; fewer than eight values say nothing.
func trend(values []float64) (rise float64, sure bool) {
	n := len(values) / 4
	if n < 2 {
		return 0, false
	}
	of := func(values []float64) (mean, variance float64) {
		for _, v := range values {
			mean += v / float64(len(values))
		}
		for _, v := range values {
			variance += (v - mean) * (v - mean) / float64(len(values)-1)
		}
		return mean, variance / float64(len(values))
	}
	before, v := of(values[len(values)-2*n : len(values)-n])
	after, w := of(values[len(values)-n:])
	return after - before, math.Abs(after-before) > 2*math.Sqrt(v+w)
}
