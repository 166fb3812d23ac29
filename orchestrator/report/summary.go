package report

import (
	"path/filepath"
	"time"
)

// Summary is summary.json.
type Summary struct {
	Job             string             `json:"job" doc:"the job's name"`
	Steps           int                `json:"steps" unit:"steps" doc:"steps of the run"`
	Seconds         float64            `json:"seconds" unit:"seconds" doc:"from the first rollout to the last evaluation"`
	Reward          map[string]float64 `json:"reward" unit:"reward" doc:"first, last: mean of the first and of the last three steps"`
	Loss            map[string]float64 `json:"loss,omitempty" unit:"nats" doc:"supervised fine-tuning: first, last: mean of the first and of the last three steps; eval_before, eval_after: of held-out conversations"`
	Eval            map[string]float64 `json:"eval" doc:"before, after: mean reward; tool_off: share of right answers without tools; reverse_kl_NAME: distillation, of each evaluation"`
	TokensPerSecond map[string]float64 `json:"tokens_per_second" unit:"tokens per second" doc:"sample, train: of all steps"`
	Trajectories    map[string]int     `json:"trajectories" unit:"trajectories" doc:"finished, failed"`
	MismatchMax     float64            `json:"mismatch_max" unit:"nats" doc:"largest update/mismatch_max of a step"`
	Skipped         int                `json:"skipped,omitempty" unit:"steps" doc:"steps whose update was passed over (trainer.on_nonfinite)"`
	Errors          map[string]int     `json:"errors,omitempty" unit:"errors" doc:"by origin: trajectories that failed, tool calls that broke"`
	Best            *Best              `json:"best,omitempty" doc:"name, step and score of the best evaluation (docs/evaluation.md); left out without one"`
	Stopped         string             `json:"stopped,omitempty" doc:"why the run ended before trainer.steps; left out where it did not"`
}

// Summary is that of a run after so many steps, but for what the job says. sft: it is one of supervised fine-tuning.
func (t Totals) Summary(steps int, sft bool) Summary {
	out := Summary{
		Steps: steps, Seconds: t.Seconds, MismatchMax: t.MismatchMax, Skipped: t.Skipped,
		Reward: firstAndLast(t.Rewards), Eval: map[string]float64{},
		TokensPerSecond: map[string]float64{"sample": t.SampledTokens / max(1e-9, t.SampleSeconds), "train": t.TrainTokens / max(1e-9, t.TrainSeconds)},
		Trajectories:    map[string]int{"finished": t.Finished, "failed": t.Failed},
		Errors:          t.Errors, Best: t.Evaluations.Best(steps),
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
			out.Eval[e.Name] = e.Reward
		case "tool_off":
			out.Eval[e.Name] = e.Accuracy
		}
	}
	return out
}

// firstAndLast are the means of the first and of the last three steps.
func firstAndLast(steps []float64) map[string]float64 {
	n := min(3, len(steps))
	return map[string]float64{"first": mean(steps[:n]), "last": mean(steps[len(steps)-n:])}
}

// Say prints one line.
type Say func(format string, args ...any)

// Print says what a run came to, and where to look next. dir is its folder, job the job's file, last its last checkpoint and bestKept that of
// its best evaluation; "": none was kept.
func (s Summary) Print(say Say, dir, job, last, bestKept string) {
	took := (time.Duration(s.Seconds) * time.Second).String()
	best := func() {
		if s.Stopped != "" {
			say("stopped early: %s", s.Stopped)
		}
		if s.Best != nil && bestKept != "" {
			say("best: %.3f after step %d (evaluation %s), kept in %s", s.Best.Score, s.Best.Step, s.Best.Name, bestKept)
		}
	}
	say("")
	if s.Loss != nil {
		say("%s: %d steps in %s; loss %.4f -> %.4f", s.Job, s.Steps, took, s.Loss["first"], s.Loss["last"])
		if before, ok := s.Loss["eval_before"]; ok {
			say("held-out conversations: loss %.4f before, %.4f after", before, s.Loss["eval_after"])
		}
		best()
		say("checkpoint     %s (Hugging Face format)", last)
		say("look next      agentfly inspect trajectory --run %s --view    what was learned, coloured by mask", dir)
		return
	}
	say("%s: %d steps in %s; reward %.3f -> %.3f", s.Job, s.Steps, took, s.Reward["first"], s.Reward["last"])
	if before, ok := s.Eval["before"]; ok {
		say("held-out tasks: reward %.3f before, %.3f after", before, s.Eval["after"])
	}
	if off, ok := s.Eval["tool_off"]; ok {
		say("with the tools switched off the trained model answers %.0f%% right", 100*off)
	}
	best()
	say("sampled %.0f tok/s, trained %.0f tok/s; %d trajectories finished, %d failed; engine and trainer logprobs at most %.1e apart",
		s.TokensPerSecond["sample"], s.TokensPerSecond["train"], s.Trajectories["finished"], s.Trajectories["failed"], s.MismatchMax)
	say("")
	say("checkpoint     %s (Hugging Face format)", last)
	say("metrics        %s", filepath.Join(dir, "metrics.jsonl"))
	say("look next      agentfly inspect trajectory --run %s --view    the tokens of a trajectory, coloured by mask and logprob", dir)
	say("               agentfly eval %s --model %s", job, last)
}
