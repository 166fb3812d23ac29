package objective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// SFT is supervised fine-tuning: the negative log-likelihood of recorded conversations, or of trajectories of a run. The order of the
// conversations of an epoch derives from the seed; position p of all epochs is conversation p mod N of epoch p / N.
type SFT struct {
	job         *job.Job
	train, eval []*trajectory.Trajectory
	orders      *data.Orders
	total       int // conversations of the whole run, over its epochs; 0: as many as trainer.steps take
	found       Found
}

var _ Objective = (*SFT)(nil)

// NewSFT learns conversations, and evaluates the loss of others; total is how many the run learns over its epochs, 0: as many as its steps take.
func NewSFT(j *job.Job, train, eval []*trajectory.Trajectory, total int) *SFT {
	return &SFT{job: j, train: train, eval: eval, orders: data.NewOrders(j.Seed), total: total}
}

// ReadSFT reads what a job of supervised fine-tuning learns from, before a model is opened. total is the number of conversations of the whole
// run, over its epochs; 0: as many as its steps take.
func ReadSFT(j *job.Job) (m *data.SFT, total int, err error) {
	if m, err = data.ReadSFT(j); err != nil {
		return nil, 0, err
	}
	return m, j.SFT.Epochs * m.Len(), nil
}

// WithSteps is the job with the steps that total conversations make of a run that stands there: those that it took, whatever their batch was, and those
// of the conversations that are left. Where total is 0, the job counts its steps itself.
func WithSteps(j *job.Job, total int, at At) (*job.Job, error) {
	if total == 0 {
		return j, nil
	}
	counted, left := *j, max(0, total-learned(j, at))
	counted.Trainer.Steps = at.Step + (left+j.SFT.Batch-1)/j.SFT.Batch
	if fault := counted.Trainer.WarmupFault(fmt.Sprintf("the steps of %d epochs", j.SFT.Epochs)); fault != "" {
		return nil, j.Fail("trainer.warmup_steps", "%s", fault)
	}
	return &counted, nil
}

// learned is how many conversations a run has learned, over its epochs.
func learned(j *job.Job, at At) int {
	if len(at.Dealt) == 1 {
		return at.Dealt[0]
	}
	return at.Step * j.SFT.Batch
}

// Prepare implements Objective.
func (o *SFT) Prepare(f Found) { o.found = f }

// String implements Objective.
func (o *SFT) String() string {
	return fmt.Sprintf("%d conversations out of %d", o.job.SFT.Batch, len(o.train))
}

// Batch implements Objective: the next conversations, stored as trajectories of the step.
func (o *SFT) Batch(ctx context.Context, at At) (*Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	groups, end, err := o.next(ctx, at)
	if err != nil {
		return nil, err
	}
	ones := make([][][]float64, len(groups))
	for i, g := range groups {
		ones[i] = [][]float64{slices.Repeat([]float64{1}, g.Trajectories[0].ResponseTokens())}
	}
	return &Batch{
		Batch: trainer.Batch{Step: at.Step, Version: at.Version, Groups: pointers(groups), Advantages: ones}, Dealt: []int{end}, Finished: len(groups),
	}, nil
}

// Trained implements Objective.
func (o *SFT) Trained(context.Context, int32, bool) {}

// Report implements Objective.
func (o *SFT) Report(b *Batch, m trainer.Metrics, f report.Facts) report.Step {
	return report.DescribeSFT(b.Finished, float64(b.Dealt[0])/float64(len(o.train)), m, f)
}

// Evaluates implements Objective.
func (o *SFT) Evaluates() bool { return len(o.eval) > 0 }

// Stop implements Objective.
func (o *SFT) Stop() {}

// Groups implements Objective.
func (o *SFT) Groups() *schedule.Groups { return nil }

// Close implements Objective.
func (o *SFT) Close() error { return nil }

// next are the conversations of a step, stored as trajectories of it, and the position after them.
func (o *SFT) next(ctx context.Context, from At) (groups []trajectory.Group, end int, err error) {
	step, at := from.Step, learned(o.job, from)
	end = at + o.job.SFT.Batch
	if o.total > 0 {
		end = min(end, o.total)
	}
	var all sync.WaitGroup
	errs := make([]error, end-at)
	for i := range end - at {
		recorded := alone(o.train[o.orders.Index(0, len(o.train), at+i)])
		recorded.ID, recorded.Step, recorded.Group, recorded.Index = store.SFT+"-"+strconv.Itoa(step)+"-"+strconv.Itoa(i), step, i, 0
		task := trajectory.Task{ID: recorded.TaskID}
		groups = append(groups, trajectory.Group{Task: task, Trajectories: []*trajectory.Trajectory{&recorded}})
		all.Go(func() { errs[i] = o.found.DB.AddTrajectory(ctx, store.SFT, task, &recorded) })
	}
	all.Wait()
	return groups, end, errors.Join(errs...)
}

// alone is a trajectory without the tree of the run that it was sampled in: here it has a place of its own, and what it forked off is not in the store.
func alone(t *trajectory.Trajectory) trajectory.Trajectory {
	out := *t
	out.Branch, out.Forked, out.ForkedAt, out.Turns = "", 0, 0, slices.Clone(t.Turns)
	for k := range out.Turns {
		out.Turns[k].Shared, out.Turns[k].Begun = "", nil
	}
	return out
}

// Evaluate implements Objective: it computes the loss of the held-out conversations, the mean over their response tokens.
func (o *SFT) Evaluate(ctx context.Context, name string, step int, _ bool) (report.Evaluation, error) {
	start := time.Now()
	samples := samplesOf(o.eval)
	scores, err := o.found.Scorer.Logprobs(ctx, samples, 1)
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
	return report.Evaluation{Name: name, Step: step, Tasks: len(o.eval), Loss: &loss, Parts: map[string]float64{}, Seconds: time.Since(start).Seconds()}, nil
}

func samplesOf(all []*trajectory.Trajectory) (out []*trajectory.Sample) {
	for _, t := range all {
		out = append(out, t.Samples...)
	}
	return out
}
