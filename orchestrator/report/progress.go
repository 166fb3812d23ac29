package report

import (
	"fmt"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Progress writes the line of each step of a process, with the time that is left.
type Progress struct {
	steps   int     // of this process
	seconds float64 // spent on them
}

// Line is that of a step, after which the run has done so many of its steps. overlaps: rollouts go on beside updates.
func (p *Progress) Line(s Step, done, steps int, overlaps bool) string {
	p.steps++
	p.seconds += s.Seconds.Step
	left := time.Duration(p.seconds / float64(p.steps) * float64(steps-done) * float64(time.Second)).Round(time.Second)
	line := fmt.Sprintf("step %3d/%d   %s  %4.1f s", done, steps, s.progress(), s.Seconds.Step)
	if overlaps && s.overlappable() {
		line += s.Rollouts.overlap()
	}
	return fmt.Sprintf("%s  left %s", line, left)
}

// overlappable tells whether the line of the step says what of its rollouts overlapped.
func (s Step) overlappable() bool { return s.Rollouts != nil && s.Distill == nil }

// progress is what the line says of the step itself.
func (s Step) progress() string {
	if s.SFT != nil {
		return fmt.Sprintf("loss %.4f  epoch %.2f  %d conversations, %d tokens learned  train %4.0f tok/s",
			s.SFT.Loss, s.SFT.Epoch, s.SFT.Conversations, s.SFT.TokensLearned, s.Tokens.TrainPerSecond)
	}
	r := s.Rollouts
	if r == nil {
		r = &Rollouts{}
	}
	if s.Distill != nil {
		return fmt.Sprintf("reverse KL %.4f  reward %s  sample %4.0f tok/s  train %4.0f tok/s",
			s.Distill.ReverseKL, shown("%.3f", r.Reward.Mean), r.Sampling.TokensPerSecond, s.Tokens.TrainPerSecond)
	}
	var calls Calls
	if r.Turns != nil {
		calls = r.Turns.Calls
	}
	ends, what, acts := r.Trajectories.Stops[string(trajectory.StopAnswer)], "answered", "calls"
	if r.Environments != nil { // nobody answers there: an episode ends
		ends, what, acts = r.Trajectories.Stops[string(trajectory.StopTerminated)], "ended", "actions"
	}
	return fmt.Sprintf("reward %s  %s %2d/%2d  %s %2d (%d failed)  sample %4.0f tok/s  train %4.0f tok/s", shown("%.3f", r.Reward.Mean),
		what, ends, r.Trajectories.Finished+r.Trajectories.Failed, acts, calls.Read+calls.ParseErrors, calls.Failed,
		r.Sampling.TokensPerSecond, s.Tokens.TrainPerSecond)
}

// shown is a number as text; a dash where there is none.
func shown(form string, v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(form, *v)
}

// overlap is what the line says of rollouts beside the update.
func (r *Rollouts) overlap() string {
	var trained, cut Spread
	if r.Lengths.Trained != nil {
		trained = *r.Lengths.Trained
	}
	if r.Lengths.Cut != nil {
		cut = *r.Lengths.Cut
	}
	out := fmt.Sprintf("  stale %.1f (%d)  waited %.1f s  length %.0f", r.Policy.StalenessMean, r.Policy.StalenessMax, r.Sampling.Wait, trained.Mean)
	if r.Trajectories.Cut > 0 {
		out += fmt.Sprintf(" (%d cut before: %.0f)", r.Trajectories.Cut, cut.Mean)
	}
	return out
}
