package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// Distillation is on-policy distillation: the policy samples, the teacher scores what was sampled. See job/algorithm_distill.go for the formula.
type Distillation struct {
	*RL
	teacher Teacher
	note    func(string) // tells the user something while the run goes on
}

var _ Objective = (*Distillation)(nil)

// NewDistillation learns from a teacher what o samples; note tells the user something while the run goes on.
func NewDistillation(o *RL, t Teacher, note func(string)) *Distillation {
	return &Distillation{RL: o, teacher: t, note: note}
}

// Batch implements Objective: the rollouts' batch with the teacher's advantages.
func (o *Distillation) Batch(ctx context.Context, at At) (*Batch, error) {
	b, err := o.batch(ctx, at)
	if err != nil {
		return nil, err
	}
	var shuffle *rand.Rand
	if o.job.Control.ShuffleTeacher {
		shuffle = rand.New(rand.NewPCG(o.job.Seed, uint64(at.Step)))
	}
	d, err := o.distill(ctx, b.Rollouts.Trained, o.sampler.Cut == rollout.CutFilter, shuffle)
	if err != nil {
		return nil, err
	}
	if err := o.refused(b.Rollouts); err != nil {
		return nil, err
	}
	if b.Advantages = d.advantages; d.tokens > 0 {
		b.KL = &d.reverseKL
	}
	o.reward(b) // of what the teacher has logprobs of
	b.Groups = o.trained(b.Groups)
	return b, nil
}

// Report implements Objective.
func (o *Distillation) Report(b *Batch, m trainer.Metrics, f report.Facts) report.Step {
	s := o.RL.Report(b, m, f)
	if b.KL != nil {
		s.Distill = &report.Distill{ReverseKL: *b.KL}
	}
	return s
}

// Evaluate implements Objective: the rewards of held-out tasks, and the divergence from the teacher there.
func (o *Distillation) Evaluate(ctx context.Context, name string, step int, toolsOff bool) (report.Evaluation, error) {
	e, err := o.RL.Evaluate(ctx, name, step, toolsOff)
	if err == nil {
		err = o.evaluateKL(ctx, &e)
	}
	return e, err
}

// Close implements Objective.
func (o *Distillation) Close() error { return o.teacher.Close() }

// LimitToTeacher ends trajectories where the teacher's context ends, as they end with the policy's own. The text is the note of it; "": they
// end there anyway.
func LimitToTeacher(t Teacher, sampler *rollout.Sampler) string {
	tokens, _ := t.Takes()
	if tokens == 0 || sampler.MaxTotal <= tokens {
		return ""
	}
	note := fmt.Sprintf("the teacher takes %d tokens, so trajectories end there and not at %d (rollout.max_tokens, or the policy's context)", tokens, sampler.MaxTotal)
	sampler.MaxTotal = tokens
	return note
}

// distilled is what a teacher says of some groups.
type distilled struct {
	advantages [][][]float64 // [group][trajectory][L] of the tokens that are trained
	reverseKL  float64       // mean over those of sampling - teacher; an estimate of the divergence per token
	tokens     int
}

// taught is what is trained of a trajectory, with its teacher's logprobs.
type taught struct {
	of       *trajectory.Trajectory
	samples  []*trajectory.Sample // those with a token that is trained; the response mask is of such tokens
	logprobs [][]float32          // [sample][T]
}

// distill compares the teacher's logprobs of what is trained of the finished trajectories with the policy's. filter leaves out those that a token limit
// cut, as the update does. shuffle permutes the teacher's logprobs over all tokens. A trajectory of which the teacher can never have logprobs (it is
// too long, has a token that the teacher does not know or finds impossible) fails, and leaves the update: a batch that was recorded with it must not
// keep a run from going on.
func (o *Distillation) distill(ctx context.Context, groups []trajectory.Group, filter bool, shuffle *rand.Rand) (*distilled, error) {
	withTeacher, err := o.askTeacher(ctx, groups, filter)
	if err != nil {
		return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
	}
	var all []float64 // of the tokens that are trained, in order
	d := &distilled{}
	for _, l := range withTeacher {
		for i, s := range l.samples {
			for k, on := range s.ResponseMask {
				if on {
					x := float64(l.logprobs[i][k])
					all = append(all, x)
					d.reverseKL += float64(s.SamplingLogprobs[k]) - x
				}
			}
		}
	}
	d.tokens = len(all)
	d.reverseKL /= max(1, float64(d.tokens))
	if shuffle != nil {
		shuffle.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	}
	for _, g := range groups {
		group := make([][]float64, len(g.Trajectories))
		for i, tr := range g.Trajectories {
			if leftOut(tr, filter) {
				continue
			}
			for _, s := range withTeacher[0].samples {
				for k, on := range s.ResponseMask {
					if on {
						group[i] = append(group[i], all[0]-float64(s.SamplingLogprobs[k]))
						all = all[1:]
					}
				}
			}
			withTeacher = withTeacher[1:]
		}
		d.advantages = append(d.advantages, group)
	}
	return d, nil
}

// leftOut tells whether a trajectory failed, or a token limit cut it and such are filtered.
func leftOut(tr *trajectory.Trajectory, filter bool) bool {
	fate := trainer.FateOf(tr, nil, filter)
	return fate == trainer.Failed || fate == trainer.Filtered
}

// askTeacher asks for the teacher's logprobs of what is trained of the finished trajectories, and fails those of which it has none. It returns
// the others, in order.
func (o *Distillation) askTeacher(ctx context.Context, groups []trajectory.Group, filter bool) (withTeacher []taught, err error) {
	fail := func(tr *trajectory.Trajectory, err error) {
		tr.Fail(trajectory.OriginTeacher, fmt.Sprintf("orchestrator: %s: the teacher has no logprobs of it: %v", tr.ID, err))
	}
	var asked []taught
	var samples []*trajectory.Sample
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			if leftOut(tr, filter) {
				continue
			}
			l := taught{of: tr}
			for _, s := range tr.Trained(o.sampler.Frozen).Samples {
				if slices.Contains(s.ResponseMask, true) {
					l.samples = append(l.samples, s)
				}
			}
			if err := tooMuch(o.teacher, l.samples); err != nil {
				fail(tr, err)
				continue
			}
			asked, samples = append(asked, l), append(samples, l.samples...)
		}
	}
	logprobs, refused, err := o.teacher.Logprobs(ctx, samples)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, l := range asked {
		l.logprobs = logprobs[next : next+len(l.samples)]
		for i, s := range l.samples {
			err := impossible(s, l.logprobs[i])
			if refused != nil && refused[next+i] != nil {
				err = refused[next+i]
			}
			if err != nil {
				fail(l.of, err)
				break
			}
		}
		next += len(l.samples)
		if !l.of.Failed() {
			withTeacher = append(withTeacher, l)
		}
	}
	return withTeacher, nil
}

// tooMuch tells what of a trajectory's samples is beyond the teacher.
func tooMuch(t Teacher, samples []*trajectory.Sample) error {
	tokens, ids := t.Takes()
	for _, s := range samples {
		if len(s.Media) > 0 {
			return fmt.Errorf("it has a medium (%s) at token %d, the teacher takes text only", s.Media[0].Kind, s.Media[0].At)
		}
		if tokens > 0 && s.Len() > tokens {
			return fmt.Errorf("it has %d tokens, the teacher takes %d", s.Len(), tokens)
		}
		if id := slices.Max(s.TokenIDs); ids > 0 && int(id) >= ids {
			return fmt.Errorf("the teacher has no token %d, its ids end at %d", id, ids-1)
		}
	}
	return nil
}

// impossible tells whether a logprob of a response token is no number that could be learned from.
func impossible(s *trajectory.Sample, logprobs []float32) error {
	for k, on := range s.ResponseMask {
		if on && logprobs != nil && (math.IsNaN(float64(logprobs[k])) || math.IsInf(float64(logprobs[k]), 0)) {
			return fmt.Errorf("its logprob of token %d (%d) of a sample is %v", k, s.TokenIDs[k], logprobs[k])
		}
	}
	return nil
}

// refused stops a run whose teacher has no logprobs of more than rollout.max_failed of what was just sampled. Of a batch that
// was recorded before, nothing can be sampled again: it is trained on what is left of it, as are those of a replay.
func (o *Distillation) refused(b *schedule.Batch) error {
	if _, recorded := o.found.Batches[b.Step]; !recorded && o.found.Recording == nil {
		return o.rollouts().TooManyFailed(b.Step, b.All)
	}
	n, first := 0, ""
	for _, g := range b.Trained {
		for _, tr := range g.Trajectories {
			if tr.ErrOrigin != trajectory.OriginTeacher {
				continue
			}
			if n++; first == "" {
				first = tr.Err
			}
		}
	}
	if n > 0 {
		o.note(fmt.Sprintf("step %d: %d recorded trajectories are left out: %s", b.Step+1, n, first))
	}
	return nil
}

// evaluateKL estimates the divergence from the teacher on the held-out tasks, sampled as in training.
func (o *Distillation) evaluateKL(ctx context.Context, e *report.Evaluation) error {
	r := evaluating(*o.sampler)
	groups, err := r.Groups(ctx, "eval-"+e.Name+"-kl", e.Step, o.held.Tasks, o.job.Rollout.GroupSize, rollout.Fatal)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	d, err := o.distill(ctx, groups, false, nil) // rollout.cut: filter is of updates
	if err == nil {
		err = rollout.TooManyFailed(o.job.Rollout, "evaluation "+e.Name+", divergence from the teacher", groups)
	}
	if err != nil {
		return err
	}
	if d.tokens == 0 {
		return fmt.Errorf("orchestrator: evaluation %s, divergence from the teacher: there is no token to compare: %s", e.Name, whyNoToken(groups))
	}
	e.ReverseKL = &d.reverseKL
	return nil
}

// whyNoToken says why nothing of some groups can be compared with the teacher.
func whyNoToken(groups []trajectory.Group) string {
	all, failed, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			if all++; !tr.Failed() {
				continue
			}
			if failed++; failed == 1 {
				first = tr.Err
			}
		}
	}
	if failed == 0 {
		return fmt.Sprintf("none of the %d trajectories has one that is trained", all)
	}
	return fmt.Sprintf("%d of %d trajectories failed, the first with: %s", failed, all, first)
}
