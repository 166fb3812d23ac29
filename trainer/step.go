//go:build torch

package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// stepRun is one call of Step.
type stepRun struct {
	*Trainer
	*plan
	step            int             // of the run, from 0
	owner           []int           // [unit] the rank that computes it; nil: this process is alone
	sequence        map[int]float64 // gspo's s of trajectories that several micro-batches share, by unit
	correction      [][]float64     // [item][T] weights that depend on whole trajectories; nil until computed
	clipped, passed int             // tokens clipped, tokens passed through the loss
	dropped         int             // tokens that a correction weighs 0
}

// miniBatch is what one optimizer step needs.
type miniBatch struct {
	units   []int
	weight  map[int]float64 // of every token, by unit
	moves   bool            // whether a trajectory of it, on any rank, can move the weights
	value   float64         // of every token in the critic's loss
	train   []MicroBatch    // forward, loss, backward
	forward []MicroBatch    // forward alone, for the metrics
	cut     map[int]bool    // units of which one micro-batch of train does not hold all rows
}

func (c Config) packOptions(temperature float64) PackOptions {
	return PackOptions{MicroBatchTokens: c.MicroBatchTokens, MaxLength: c.MaxLength, Temperature: temperature, minShared: c.minShared}
}

// pack packs the units for which use is true. Rows keep indexing plan.items.
func (r *stepRun) pack(units []int, use func(u unit) bool) ([]MicroBatch, error) {
	var items []PackItem
	var index []int
	for _, u := range units {
		if !use(r.units[u]) || !r.mine(u) {
			continue
		}
		for _, i := range r.units[u].items {
			items = append(items, r.items[i])
			index = append(index, i)
		}
	}
	batches, err := Pack(items, r.config.packOptions(r.config.Temperature))
	if err != nil {
		return nil, err
	}
	for _, mb := range batches {
		for i := range mb.Rows {
			mb.Rows[i].Item = index[mb.Rows[i].Item]
		}
	}
	return batches, nil
}

// count adds micro-batches to the metrics.
func (r *stepRun) count(batches []MicroBatch) {
	for _, mb := range batches {
		r.metrics.MicroBatches++
		r.metrics.PackedTokens += len(mb.Tokens)
		r.metrics.UnpackedTokens += mb.Unpacked
	}
}

func (r *stepRun) prepare(units []int) (miniBatch, error) {
	mb := miniBatch{units: units, weight: map[int]float64{}}
	var tokens []int
	for _, u := range units {
		tokens = append(tokens, r.units[u].tokens)
	}
	weights, err := r.algorithm.Aggregation.TokenWeights(tokens)
	if err != nil {
		return mb, err
	}
	total := 0
	for i, u := range units {
		mb.weight[u] = weights[i]
		total += tokens[i]
	}
	mb.value = 1 / float64(max(total, 1))
	flat := func(u unit) bool { return u.flat && r.algorithm.ZeroWithoutAdvantage() }
	mb.moves = slices.ContainsFunc(units, func(u int) bool { return !flat(r.units[u]) })
	if mb.train, err = r.pack(units, func(u unit) bool { return !flat(u) }); err != nil {
		return mb, err
	}
	r.count(mb.train)
	mb.cut = r.cutUnits(mb.train)
	mb.forward, err = r.pack(units, flat)
	r.count(mb.forward)
	return mb, err
}

// cutUnits finds the units whose rows lie in several micro-batches: trajectories of several samples.
func (r *stepRun) cutUnits(batches []MicroBatch) map[int]bool {
	in, cut := map[int]int{}, map[int]bool{}
	for i, mb := range batches {
		for _, row := range mb.Rows {
			u := r.unitOf[row.Item]
			if at, seen := in[u]; seen && at != i {
				cut[u] = true
			}
			in[u] = i
		}
	}
	return cut
}

func (r *stepRun) run(ctx context.Context) error {
	r.assign()
	if err := r.shareEarly(r.early(ctx)); err != nil {
		return err
	}
	if err := r.estimate(r.algorithm); err != nil {
		return err
	}
	batches, err := r.begin(ctx)
	if _, err := r.together(0, err); err != nil {
		return err
	}
	for epoch := range r.algorithm.Epochs {
		for i, mb := range batches {
			if !mb.moves {
				continue
			}
			if err := r.update(ctx, mb, r.place(epoch, i)); err != nil {
				return fmt.Errorf("optimizer step %d of %d: %w", r.metrics.OptimizerSteps+1, r.algorithm.Epochs*len(batches), err)
			}
		}
	}
	return r.collect()
}

// place is where an update stands on the schedule. Every step of the run has room for all its epochs and mini-batches,
// taken or not: the rate follows the run, so that it has fallen at the run's end however many steps had nothing to learn.
func (r *stepRun) place(epoch, miniBatch int) int {
	each := r.algorithm.Epochs * r.algorithm.MiniBatches
	return r.step*each + epoch*r.algorithm.MiniBatches + miniBatch
}

// begin packs the mini-batches and computes the old logprobs that must be there before the first update.
func (r *stepRun) begin(ctx context.Context) ([]miniBatch, error) {
	var batches []miniBatch
	for _, units := range r.miniBatches(r.algorithm.MiniBatches) {
		mb, err := r.prepare(units)
		if err != nil {
			return nil, err
		}
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
				if r.known(&micro[i]) {
					continue
				}
				if err := r.oldLogprobs(ctx, &micro[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// known reports whether old is there for all rows of a micro-batch.
func (r *stepRun) known(mb *MicroBatch) bool {
	for _, row := range mb.Rows {
		if r.old[row.Item] == nil {
			return false
		}
	}
	return true
}

// oldLogprobs runs a forward before the first optimizer step and keeps its numbers: old logprobs, entropies, values.
func (r *stepRun) oldLogprobs(ctx context.Context, mb *MicroBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := r.numbers(&mb.Batch, r.values != nil)
	if err != nil {
		return err
	}
	return r.record(mb, f)
}

// record keeps the numbers of a forward before the first optimizer step.
func (r *stepRun) record(mb *MicroBatch, f numbers) error {
	if err := r.checkFinite(mb, f.logprobs, "the trainer's logprob"); err != nil {
		return err
	}
	if err := r.checkFinite(mb, f.values, "the critic's value"); err != nil {
		return err
	}
	r.keep(mb, f.logprobs, r.old)
	r.keep(mb, f.entropy, r.entropy)
	if f.values != nil {
		r.keep(mb, f.values, r.values)
	}
	return nil
}

// keep puts the numbers [N] of a micro-batch's rows in place.
func (r *stepRun) keep(mb *MicroBatch, from []float32, values [][]float64) {
	for i, row := range mb.Rows {
		if values[row.Item] == nil {
			values[row.Item] = make([]float64, r.items[row.Item].Sample.Len())
		}
		values[row.Item][row.Token] = float64(from[i])
	}
}

func (r *stepRun) checkFinite(mb *MicroBatch, values []float32, what string) error {
	for i, v := range values {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return nonFinite{fmt.Errorf("trajectory %s: token %d: %s is %v", r.items[mb.Rows[i].Item].Name, mb.Rows[i].Token, what, x)}
		}
	}
	return nil
}

// update accumulates the gradient of a mini-batch and takes one optimizer step at the rate of its place on the schedule.
func (r *stepRun) update(ctx context.Context, mb miniBatch, place int) error {
	loss := 0.0
	err := r.worker.Do(ctx, func() error {
		if err := r.sequences(ctx, mb); err != nil {
			return err
		}
		for i := range mb.train {
			if err := ctx.Err(); err != nil {
				return err
			}
			value, err := r.backward(&mb.train[i], mb)
			if err != nil {
				return err
			}
			loss += value
		}
		return nil
	})
	if loss, err = r.together(loss, err); err != nil {
		return err
	}
	rate, norm := r.config.Schedule.At(place), 0.0
	write := func(ctx context.Context) error {
		return r.worker.Do(ctx, func() (err error) {
			norm, err = r.optimizer.Step(rate, r.config.ClipGrad)
			return err
		})
	}
	if r.config.Barrier != nil {
		err = r.config.Barrier(ctx, write)
	} else {
		err = write(ctx)
	}
	if errors.Is(err, cgo.ErrNonFinite) { // the norm is the same on every rank
		return fmt.Errorf("%s: %w", r.accused(r.culprit(ctx, mb)), err)
	}
	if err != nil {
		if r.group != nil && !errors.Is(err, cgo.ErrRank) {
			r.group.Fail(err.Error()) // the others wait in the optimizer's step
		}
		return err
	}
	r.metrics.OptimizerSteps++
	r.metrics.LearningRate = rate
	r.metrics.Loss += loss
	r.metrics.GradNorm += norm
	return nil
}

// backward runs one micro-batch of mb through forward, loss and backward and returns its share of the loss.
func (r *stepRun) backward(micro *MicroBatch, mb miniBatch) (float64, error) {
	defer cgo.Drain() // what a custom loss left to the garbage collector
	f, err := r.forward(&micro.Batch, true, r.values != nil)
	if err != nil {
		return 0, err
	}
	defer closeOutputs(f)
	n, err := read(f)
	if err != nil {
		return 0, err
	}
	if err := r.checkFinite(micro, n.logprobs, "the trainer's logprob"); err != nil {
		return 0, err
	}
	if !r.known(micro) {
		if err := r.record(micro, n); err != nil {
			return 0, err
		}
	}
	rows := r.rows(micro, n, mb)
	total, err := r.algorithm.Objective(r.model, r.loss, f, rows)
	if err != nil {
		return 0, r.blame(micro, err)
	}
	defer cgo.CloseTensor(total)
	return r.differentiate(micro, total)
}

func (r *stepRun) differentiate(mb *MicroBatch, total gotorch.Tensor) (float64, error) {
	value, err := cgo.Scalar(total)
	if err != nil {
		return 0, err
	}
	if x := float64(value); math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, nonFinite{fmt.Errorf("the loss of the micro-batch that begins with trajectory %s is %v", r.items[mb.Rows[0].Item].Name, x)}
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
		return nonFinite{fmt.Errorf("trajectory %s: token %d: the loss is %v (loss %s)", r.items[at.Item].Name, at.Token, row.Value, r.loss.Name())}
	}
	return err
}

const nobody = "no single trajectory is to blame"

// culprit looks for the trajectory whose gradient alone is not finite. It costs a backward per trajectory, which only a
// failing step pays.
func (r *stepRun) culprit(ctx context.Context, mb miniBatch) string {
	name := nobody
	err := r.worker.Do(ctx, func() error {
		for _, u := range mb.units {
			if !r.mine(u) {
				continue
			}
			batches, err := r.pack([]int{u}, func(unit) bool { return true })
			if err != nil {
				return err
			}
			for i := range batches {
				if _, err := r.backward(&batches[i], mb); err != nil {
					return err
				}
			}
			finite, err := r.finiteGradient()
			if err != nil {
				return err
			}
			if err := r.optimizer.ZeroGrad(); err != nil {
				return err
			}
			if !finite {
				name = "trajectory " + r.units[u].name
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return "the search for the trajectory failed: " + err.Error()
	}
	return name
}

func (r *stepRun) finiteGradient() (bool, error) {
	for _, p := range r.model.Trained() {
		gradient, err := r.model.Gradient(p.Name)
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

// finish turns sums into means.
func (r *stepRun) finish() {
	m := &r.metrics
	if m.OptimizerSteps > 0 {
		m.Loss /= float64(m.OptimizerSteps)
		m.GradNorm /= float64(m.OptimizerSteps)
	}
	if r.passed > 0 {
		m.ClipFraction = float64(r.clipped) / float64(r.passed)
		m.Dropped = float64(r.dropped) / float64(r.passed)
	}
	for _, u := range r.units {
		for n, i := range u.items {
			s := SampleUpdate{Trajectory: u.name, Sample: u.samples[n], OldLogprobs: narrow(r.old[i]), Advantages: narrow(r.advantage[i])}
			if r.reference != nil {
				s.ReferenceLogprobs = narrow(r.reference[i])
			}
			if r.values != nil {
				s.Values = narrow(r.values[i])
			}
			m.Samples = append(m.Samples, s)
		}
	}
	var old, sampling []float64
	for i, it := range r.items {
		if r.old[i] == nil {
			continue
		}
		for t, on := range it.Sample.ResponseMask {
			if on {
				old = append(old, r.old[i][t])
				sampling = append(sampling, float64(it.Sample.SamplingLogprobs[t]))
				m.Entropy += r.entropy[i][t]
			}
		}
	}
	if len(old) > 0 {
		m.Entropy /= float64(len(old))
	}
	d := algorithms.Measure(old, sampling)
	m.MismatchMean, m.MismatchMax, m.MismatchK3, m.ESS = d.MeanAbs, d.MaxAbs, d.K3, d.ESS
	r.finishCritic()
}

// narrow is v in float32; nil stays nil.
func narrow(v []float64) []float32 {
	if v == nil {
		return nil
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
