//go:build torch

package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// stepRun is one call of Step: the order in which a batch is planned, packed, run forward and backward, and written by the optimizer.
type stepRun struct {
	model     *cgo.Model
	worker    *cgo.Worker
	optimizer *cgo.Optimizer
	algorithm *algorithms.Algorithm
	loss      algorithms.Loss
	config    Config
	ranks     ranks
	step      int  // of the run, from 0
	shared    bool // rank 0's parameters are read while it steps, behind the barrier

	plan    *plan
	packing packing
	probe   probe
	rows    rowBuilder
	tally   *tally // of this rank; of all after run
}

func newStepRun(t *Trainer, p *plan, step int) *stepRun {
	counts := &tally{}
	r := &stepRun{
		model: t.model, worker: t.worker, optimizer: t.optimizer, algorithm: t.algorithm, loss: t.loss, config: t.config, ranks: t.ranks,
		step: step, shared: t.shared, plan: p, packing: packing{p, newShare(t.ranks, p, t.algorithm.MiniBatches), t.config.packOptions(t.config.Temperature)}, tally: counts,
	}
	r.probe = probe{r.packing, t.model, t.config.Reference, t.ranks.near}
	r.rows = rowBuilder{plan: p, algorithm: t.algorithm, tally: counts}
	return r
}

// run takes the step. Afterwards the plan has the numbers, and the tally the counts, of all ranks.
func (r *stepRun) run(ctx context.Context) error {
	if err := r.early(ctx); err != nil {
		return err
	}
	if err := r.plan.estimate(r.algorithm); err != nil {
		return err
	}
	batches, err := r.begin(ctx)
	if _, err := r.ranks.together(0, err); err != nil {
		return err
	}
	for epoch := range r.algorithm.Epochs {
		for i, mb := range batches {
			if !mb.moves {
				continue
			}
			if err := r.update(ctx, mb, placeOf(r.algorithm, r.step, epoch, i)); err != nil {
				return fmt.Errorf("optimizer step %d of %d: %w", r.plan.metrics.OptimizerSteps+1, r.algorithm.Epochs*len(batches), err)
			}
		}
	}
	*r.tally, err = trade(r.ranks, r.plan, r.packing.share, *r.tally)
	return err
}

// placeOf is where an update stands on the schedule. Every step of the run has room for all its epochs and mini-batches,
// taken or not: the rate follows the run, so that it has fallen at the run's end however many steps had nothing to learn.
func placeOf(a *algorithms.Algorithm, step, epoch, miniBatch int) int {
	each := a.Epochs * a.MiniBatches
	return step*each + epoch*a.MiniBatches + miniBatch
}

// early gives every rank what the estimator reads of all trajectories, or the error of the rank that has one.
func (r *stepRun) early(ctx context.Context) error {
	err := r.measure(ctx)
	if _, err := r.ranks.together(0, err); err != nil {
		return err
	}
	if r.plan.reference == nil && r.plan.values == nil {
		return nil
	}
	_, err = trade(r.ranks, r.plan, r.packing.share, *r.tally)
	return err
}

// measure computes this rank's part of early.
func (r *stepRun) measure(ctx context.Context) error {
	if !r.algorithm.HasCritic() && !r.algorithm.NeedsReference() {
		return nil
	}
	batches, err := r.packing.all()
	if err != nil {
		return err
	}
	return r.worker.Do(ctx, func() error { return r.probe.early(ctx, r.algorithm, batches) })
}

// begin packs the mini-batches and computes the old logprobs that must be there before the first update.
func (r *stepRun) begin(ctx context.Context) ([]miniBatch, error) {
	var batches []miniBatch
	for _, units := range r.plan.miniBatches(r.algorithm.MiniBatches) {
		mb, err := r.packing.miniBatch(units, r.algorithm)
		if err != nil {
			return nil, err
		}
		r.tally.count(mb.train)
		r.tally.count(mb.forward)
		batches = append(batches, mb)
	}
	return batches, r.before(ctx, batches)
}

// before computes the old logprobs that the updates do not: trajectories without gradient; all of them where the batch gets several updates,
// so that old is fixed before the first; and those of which a correction must see the whole while a micro-batch holds a
// part. Otherwise, with a single update, old is current, read from its own forward.
func (r *stepRun) before(ctx context.Context, batches []miniBatch) error {
	several := r.algorithm.Epochs*r.algorithm.MiniBatches > 1
	return r.worker.Do(ctx, func() error {
		for _, b := range batches {
			micro := b.forward
			if several || r.algorithm.Correction.PerSequence() && len(b.cut) > 0 {
				micro = append(micro[:len(micro):len(micro)], b.train...)
			}
			for i := range micro {
				if r.plan.known(&micro[i]) {
					continue
				}
				if err := r.probe.old(ctx, &micro[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// update accumulates the gradient of a mini-batch and takes one optimizer step at the rate of its place on the schedule.
func (r *stepRun) update(ctx context.Context, mb miniBatch, place int) error {
	loss := 0.0
	err := r.worker.Do(ctx, func() error {
		if err := r.rows.sequences(ctx, r.model, r.ranks.near, mb); err != nil {
			return err
		}
		for i := range mb.train {
			if err := ctx.Err(); err != nil {
				return err
			}
			value, err := r.backward(&mb.train[i], mb, i == len(mb.train)-1)
			if err != nil {
				return err
			}
			loss += value
		}
		return nil
	})
	r.ranks.abandon(err) // before the sums, which wait for ranks that may wait in this micro-batch
	// also of a rank that has failed, or nothing to compute: the others' backwards have begun to sum
	if sendErr := r.worker.Do(context.WithoutCancel(ctx), r.optimizer.Send); err == nil {
		err = sendErr
	}
	if loss, err = r.ranks.together(loss, err); err != nil {
		return err
	}
	rate, norm := r.config.Schedule.At(place), 0.0
	write := func(ctx context.Context) error {
		return r.worker.Do(ctx, func() (err error) {
			norm, err = r.optimizer.Step(rate, r.config.ClipGrad)
			if err != nil || !r.shared {
				return err
			}
			return r.optimizer.Gather()
		})
	}
	if r.config.Barrier != nil {
		err = r.config.Barrier(ctx, write)
	} else {
		err = write(ctx)
	}
	if errors.Is(err, cgo.ErrNonFinite) { // the norm is the same on every rank
		return fmt.Errorf("%s: %w", r.ranks.accused(r.culprit(ctx, mb)), err)
	}
	if err != nil {
		r.ranks.fail(err) // the others wait in the optimizer's step
		return err
	}
	m := &r.plan.metrics
	m.OptimizerSteps++
	m.LearningRate = rate
	m.Loss += loss
	m.GradNorm += norm
	return nil
}

// backward runs one micro-batch of mb through forward, loss and backward and returns its share of the loss. last: the optimizer
// steps next.
func (r *stepRun) backward(micro *MicroBatch, mb miniBatch, last bool) (float64, error) {
	defer cgo.Drain() // what a custom loss left to the garbage collector
	f, err := forward(r.model, &micro.Batch, r.ranks.near, r.config.Checkpoint, r.plan.values != nil)
	if err != nil {
		return 0, err
	}
	defer closeOutputs(f)
	n, err := read(f)
	if err != nil {
		return 0, err
	}
	if err := r.plan.checkFinite(micro, n.logprobs, "the trainer's logprob"); err != nil {
		return 0, err
	}
	if !r.plan.known(micro) {
		if err := r.plan.record(micro, n); err != nil {
			return 0, err
		}
	}
	rows := r.rows.rows(micro, n, mb)
	total, err := r.algorithm.Objective(r.model, r.loss, f, rows)
	if err != nil {
		return 0, r.blame(micro, err)
	}
	defer cgo.CloseTensor(total)
	return r.differentiate(micro, total, last)
}

func (r *stepRun) differentiate(mb *MicroBatch, total gotorch.Tensor, last bool) (float64, error) {
	value, err := cgo.Scalar(total)
	if err != nil {
		return 0, err
	}
	if x := float64(value); math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, nonFinite{fmt.Errorf("the loss of the micro-batch that begins with trajectory %s is %v", r.plan.items[mb.Rows[0].Item].Name, x)}
	}
	if last {
		if err := r.optimizer.ExpectLast(); err != nil {
			return 0, err
		}
	}
	if err := cgo.Backward(total); err != nil {
		return 0, err
	}
	return float64(value), nil
}

// blame puts the trajectory's name in place of a row's number.
func (r *stepRun) blame(mb *MicroBatch, err error) error {
	var row *algorithms.RowError
	if errors.As(err, &row) && row.Row < len(mb.Rows) {
		at := mb.Rows[row.Row]
		return nonFinite{fmt.Errorf("trajectory %s: token %d: the loss is %v (loss %s)", r.plan.items[at.Item].Name, at.Token, row.Value, r.loss.Name())}
	}
	return err
}

// culprit looks for the trajectory whose gradient alone is not finite. It costs a backward per trajectory, which only a
// failing step pays.
func (r *stepRun) culprit(ctx context.Context, mb miniBatch) string {
	name := nobody
	err := r.worker.Do(ctx, func() error {
		for _, u := range mb.units {
			if !r.packing.share.mine(u) {
				continue
			}
			batches, err := r.packing.pack([]int{u}, func(unit) bool { return true })
			if err != nil {
				return err
			}
			for i := range batches {
				if _, err := r.backward(&batches[i], mb, false); err != nil {
					return err
				}
			}
			finite, err := finiteGradient(r.model)
			if err == nil {
				finite, err = r.ranks.alike(finite) // each has the terms of its own tokens
			}
			if err != nil {
				return err
			}
			if err := r.optimizer.ZeroGrad(); err != nil {
				return err
			}
			if !finite {
				name = "trajectory " + r.plan.units[u].name
				return nil
			}
		}
		return nil
	})
	if err != nil {
		r.ranks.abandon(err)
		return "the search for the trajectory failed: " + err.Error()
	}
	return name
}

// finiteGradient tells whether the gradients of all trained parameters are finite.
func finiteGradient(m *cgo.Model) (bool, error) {
	for _, p := range m.Trained() {
		gradient, err := m.Gradient(p.Name)
		if err != nil {
			return false, err
		}
		for _, g := range gradient {
			if x := float64(g); math.IsNaN(x) || math.IsInf(x, 0) {
				return false, nil
			}
		}
	}
	return true, nil
}
