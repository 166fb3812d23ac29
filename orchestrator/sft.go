package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// sftPhase is the phase of what supervised fine-tuning learned, in the store.
const sftPhase = "sft"

// supervised is what a run of supervised fine-tuning learns from. The order of the conversations of an epoch derives from
// the seed; position p of all epochs is conversation p mod N of epoch p / N.
type supervised struct {
	train, eval []*trajectory.Trajectory
	total       int // conversations of the whole run, over its epochs; 0: as many as trainer.steps take
}

// sftAlgorithm is the negative log-likelihood of the response tokens: reinforce with advantage 1.
func sftAlgorithm(j *job.Job, r Registries) (*algorithms.Algorithm, error) {
	c := j.Algorithm
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"advantage", c.Advantage.Name != ""},
		{"loss", c.Loss.Name != ""},
		{"clip_low", c.ClipLow != nil},
		{"clip_high", c.ClipHigh != nil},
		{"dual_clip", c.DualClip != nil},
		{"kl", c.KL != algorithms.KL{}},
		{"entropy", c.Entropy != 0},
		{"value", c.Value != nil},
		{"correction", c.Correction != algorithms.Correction{}},
		{"epochs", c.Epochs != nil},
		{"mini_batches", c.MiniBatches != nil},
		{"dynamic_sampling", c.DynamicSampling},
		{"overlong", c.Overlong != algorithms.Overlong{}},
	} {
		if f.set {
			return nil, j.Fail("algorithm."+f.path, "the job has a block sft, whose loss is the negative log-likelihood; only aggregation and max_tokens can be set, leave this out")
		}
	}
	c.Loss.Name = "reinforce"
	a, err := c.Resolve(r.Algorithms)
	if err != nil {
		return nil, j.Fail("algorithm", "%s", job.Plain(err, "algorithms: "))
	}
	a.Estimator = algorithms.EstimatorSpec{Name: "none", Formula: "A = 1 on every response token", Source: "supervised fine-tuning"}
	a.Loss.Name, a.Loss.Formula, a.Loss.Source = "sft", "loss_t = -current, the negative log-likelihood", "supervised fine-tuning"
	return a, nil
}

// prepareSFT reads what the run learns from, before a model is opened.
func (t *run) prepareSFT(j *job.Job) (*job.Job, *data.Material, error) {
	m, err := data.ReadMaterial(j)
	if err != nil {
		return nil, nil, err
	}
	t.sft = &supervised{}
	if j.SFT.Epochs > 0 {
		counted := *j
		t.sft.total = j.SFT.Epochs * m.Len()
		counted.Trainer.Steps = (t.sft.total + j.SFT.Batch - 1) / j.SFT.Batch
		if fault := counted.Trainer.WarmupFault(fmt.Sprintf("the steps of %d epochs", j.SFT.Epochs)); fault != "" {
			return nil, nil, j.Fail("trainer.warmup_steps", "%s", fault)
		}
		j = &counted
	}
	return j, m, nil
}

// learn takes one step of supervised fine-tuning.
func (t *run) learn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	step, start := t.state.Step, time.Now()
	groups, end, err := t.nextLessons(ctx, step)
	if err != nil {
		return err
	}
	ones := make([][][]float64, len(groups))
	for i, g := range groups {
		ones[i] = [][]float64{slices.Repeat([]float64{1}, g.Trajectories[0].ResponseTokens())}
	}
	t.halfway = true
	m, err := t.trainer.Step(context.WithoutCancel(ctx), trainer.Batch{Step: step, Version: t.state.Version, Groups: pointers(groups), Advantages: ones})
	skipped, err := t.skip(step, err)
	if err != nil {
		return err
	}
	record := report.DescribeSFT(len(groups), float64(end)/float64(len(t.sft.train)), m, report.Facts{
		Version: t.state.Version, Whole: time.Since(start), Elapsed: t.elapsed(),
	})
	t.state.Dealt = []int{end}
	if skipped == nil {
		t.state.Losses = append(t.state.Losses, record.SFT.Loss)
	}
	return t.finish(ctx, record, m, len(groups), skipped)
}

// nextLessons are the lessons of a step, stored as trajectories of it, and the position after them.
func (t *run) nextLessons(ctx context.Context, step int) (groups []trajectory.Group, end int, err error) {
	at := step * t.job.SFT.Batch
	if len(t.state.Dealt) == 1 {
		at = t.state.Dealt[0]
	}
	end = at + t.job.SFT.Batch
	if t.sft.total > 0 {
		end = min(end, t.sft.total)
	}
	var all sync.WaitGroup
	errs := make([]error, end-at)
	for i := range end - at {
		lesson := *t.sft.train[data.Index(t.job.Seed, 0, len(t.sft.train), at+i)]
		lesson.ID, lesson.Step, lesson.Group, lesson.Index = sftPhase+"-"+strconv.Itoa(step)+"-"+strconv.Itoa(i), step, i, 0
		task := trajectory.Task{ID: lesson.TaskID}
		groups = append(groups, trajectory.Group{Task: task, Trajectories: []*trajectory.Trajectory{&lesson}})
		all.Go(func() { errs[i] = t.db.AddTrajectory(ctx, sftPhase, task, &lesson) })
	}
	all.Wait()
	return groups, end, errors.Join(errs...)
}

// evaluateLoss computes the loss of the held-out conversations, the mean over their response tokens.
func (t *run) evaluateLoss(ctx context.Context, name string) (report.Evaluation, error) {
	start := time.Now()
	samples := samplesOf(t.sft.eval)
	scores, err := t.trainer.Score(ctx, samples, 1)
	if err != nil {
		return report.Evaluation{}, fmt.Errorf("orchestrator: evaluation %s: %w", name, err)
	}
	nll, tokens := 0.0, 0
	for i, s := range samples {
		for k, on := range s.ResponseMask {
			if on {
				nll -= float64(scores[i].Logprobs[k])
				tokens++
			}
		}
	}
	loss := nll / float64(tokens)
	return report.Evaluation{Name: name, Step: t.state.Step, Tasks: len(t.sft.eval), Loss: &loss, Parts: map[string]float64{}, Seconds: time.Since(start).Seconds()}, nil
}

func samplesOf(all []*trajectory.Trajectory) (out []*trajectory.Sample) {
	for _, t := range all {
		out = append(out, t.Samples...)
	}
	return out
}
