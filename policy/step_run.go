//go:build torch

package policy

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
	entropy         [][]float64 // [item][T] before the step; nil until computed
	clipped, passed int         // tokens clipped, tokens passed through the loss
	owner           []int       // [unit] the rank that computes it; nil: this process is alone
}

// miniBatch is what one optimizer step needs.
type miniBatch struct {
	units  []int
	weight map[int]float64 // of every token, by unit
	moves  bool            // whether a trajectory of it, on any rank, can move the weights
	train  []MicroBatch    // forward, loss, backward
	score  []MicroBatch    // forward alone, for the metrics
}

func (r *stepRun) packOptions() PackOptions {
	c := r.config
	return PackOptions{MicroBatchTokens: c.MicroBatchTokens, MinShared: c.MinShared, MaxLength: c.MaxLength, Temperature: c.Temperature}
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
	batches, err := Pack(items, r.packOptions())
	if err != nil {
		return nil, err
	}
	for _, mb := range batches {
		for i := range mb.Rows {
			mb.Rows[i].Item = index[mb.Rows[i].Item]
		}
		r.metrics.MicroBatches++
		r.metrics.PackedTokens += len(mb.Tokens)
		r.metrics.UnpackedTokens += mb.Unpacked
	}
	return batches, nil
}

func (r *stepRun) prepare(units []int) (miniBatch, error) {
	mb := miniBatch{units: units, weight: map[int]float64{}}
	var tokens []int
	for _, u := range units {
		tokens = append(tokens, r.units[u].tokens)
	}
	weights, err := r.algorithm.TokenWeights(tokens)
	if err != nil {
		return mb, err
	}
	for i, u := range units {
		mb.weight[u] = weights[i]
	}
	flat := func(u unit) bool { return u.flat && r.algorithm.ZeroWithoutAdvantage() }
	mb.moves = slices.ContainsFunc(units, func(u int) bool { return !flat(r.units[u]) })
	r.assign(units)
	if mb.train, err = r.pack(units, func(u unit) bool { return !flat(u) }); err != nil {
		return mb, err
	}
	if !r.config.SkipFlat {
		mb.score, err = r.pack(units, flat)
	}
	return mb, err
}

func (r *stepRun) run(ctx context.Context) error {
	batches, err := r.begin(ctx)
	if _, err := r.together(0, err); err != nil {
		return err
	}
	for range r.algorithm.Epochs {
		for _, mb := range batches {
			if !mb.moves {
				continue
			}
			if err := r.update(ctx, mb); err != nil {
				return fmt.Errorf("optimizer step %d of %d: %w", r.metrics.OptimizerSteps+1, r.algorithm.Epochs*len(batches), err)
			}
		}
	}
	return r.collect()
}

// begin packs the mini-batches and scores what must be scored before the first update.
func (r *stepRun) begin(ctx context.Context) ([]miniBatch, error) {
	var batches []miniBatch
	for _, units := range r.miniBatches(r.algorithm.MiniBatches) {
		mb, err := r.prepare(units)
		if err != nil {
			return nil, err
		}
		batches = append(batches, mb)
	}
	severalSteps := r.algorithm.Epochs*r.algorithm.MiniBatches > 1
	return batches, r.before(ctx, batches, severalSteps)
}

// before scores what the updates do not: trajectories without gradient, and all of them where the batch gets several
// updates, so that old is fixed before the first. With a single update old is current, read from its own forward.
func (r *stepRun) before(ctx context.Context, batches []miniBatch, all bool) error {
	return r.worker.Do(ctx, func() error {
		for _, b := range batches {
			micro := b.score
			if all {
				micro = append(micro[:len(micro):len(micro)], b.train...)
			}
			for i := range micro {
				if err := ctx.Err(); err != nil {
					return err
				}
				logprobs, entropy, err := r.model.Score(&micro[i].Batch)
				if err != nil {
					return err
				}
				if err := r.record(&micro[i], logprobs, entropy); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// record keeps the logprobs and entropies of a forward before the first optimizer step.
func (r *stepRun) record(mb *MicroBatch, logprobs, entropy []float32) error {
	if err := r.checkFinite(mb, logprobs); err != nil {
		return err
	}
	for i, row := range mb.Rows {
		if r.old[row.Item] == nil {
			r.old[row.Item] = make([]float64, r.items[row.Item].Sample.Len())
			r.entropy[row.Item] = make([]float64, r.items[row.Item].Sample.Len())
		}
		r.old[row.Item][row.Token] = float64(logprobs[i])
		r.entropy[row.Item][row.Token] = float64(entropy[i])
	}
	return nil
}

func (r *stepRun) checkFinite(mb *MicroBatch, logprobs []float32) error {
	for i, v := range logprobs {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("trajectory %s: token %d: the trainer's logprob is %v", r.items[mb.Rows[i].Item].Name, mb.Rows[i].Token, x)
		}
	}
	return nil
}

// update accumulates the gradient of a mini-batch and takes one optimizer step.
func (r *stepRun) update(ctx context.Context, mb miniBatch) error {
	loss := 0.0
	err := r.worker.Do(ctx, func() error {
		for i := range mb.train {
			if err := ctx.Err(); err != nil {
				return err
			}
			value, err := r.backward(&mb.train[i], mb.weight)
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
	rate, norm := r.config.Schedule.At(int(r.optimizer.StepCount())), 0.0
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

// backward runs one micro-batch through forward, loss and backward and returns its share of the loss.
func (r *stepRun) backward(mb *MicroBatch, weight map[int]float64) (float64, error) {
	defer cgo.Drain() // what a custom loss left to the garbage collector
	logprobs, entropy, err := r.model.Forward(&mb.Batch, cgo.ForwardOptions{Grad: true, Checkpoint: r.config.Checkpoint, Entropy: true})
	if err != nil {
		return 0, err
	}
	defer cgo.CloseTensor(logprobs)
	defer cgo.CloseTensor(entropy)
	current, err := cgo.Read(logprobs)
	if err != nil {
		return 0, err
	}
	if err := r.checkFinite(mb, current); err != nil {
		return 0, err
	}
	if r.old[mb.Rows[0].Item] == nil {
		h, err := cgo.Read(entropy)
		if err != nil {
			return 0, err
		}
		if err := r.record(mb, current, h); err != nil {
			return 0, err
		}
	}
	total, err := r.algorithm.Objective(r.model, r.loss, logprobs, entropy, r.rows(mb, current, weight))
	if err != nil {
		return 0, r.blame(mb, err)
	}
	defer cgo.CloseTensor(total)
	return r.differentiate(mb, total)
}

func (r *stepRun) differentiate(mb *MicroBatch, total gotorch.Tensor) (float64, error) {
	value, err := cgo.Scalar(total)
	if err != nil {
		return 0, err
	}
	if x := float64(value); math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("the loss of the micro-batch that begins with trajectory %s is %v", r.items[mb.Rows[0].Item].Name, x)
	}
	if err := cgo.Backward(total); err != nil {
		return 0, err
	}
	return float64(value), nil
}

// rows are the numbers that go with the tensors of a micro-batch.
func (r *stepRun) rows(mb *MicroBatch, current []float32, weight map[int]float64) algorithms.Rows {
	n := len(mb.Rows)
	rows := algorithms.Rows{Old: make([]float64, n), Sampling: make([]float64, n), Advantage: make([]float64, n), Weight: make([]float64, n)}
	for i, row := range mb.Rows {
		rows.Old[i] = r.old[row.Item][row.Token]
		rows.Sampling[i] = float64(r.items[row.Item].Sample.SamplingLogprobs[row.Token])
		rows.Advantage[i] = r.advantage[row.Item][row.Token]
		rows.Weight[i] = weight[r.unitOf[row.Item]]
		base := rows.Old[i]
		if r.algorithm.Correction.Kind == algorithms.CorrectionBypass {
			base = rows.Sampling[i]
		}
		if r.algorithm.Clipped(float64(current[i]), base, rows.Advantage[i]) {
			r.clipped++
		}
	}
	r.passed += n
	return rows
}

// blame puts the trajectory's name in place of a row's number.
func (r *stepRun) blame(mb *MicroBatch, err error) error {
	var row *algorithms.RowError
	if errors.As(err, &row) && row.Row < len(mb.Rows) {
		at := mb.Rows[row.Row]
		return fmt.Errorf("trajectory %s: token %d: the loss is %v (loss %s)", r.items[at.Item].Name, at.Token, row.Value, r.loss.Name())
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
				if _, err := r.backward(&batches[i], mb.weight); err != nil {
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
	for _, p := range r.model.Parameters() {
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
	}
	for _, u := range r.units {
		for n, i := range u.items {
			m.Samples = append(m.Samples, SampleUpdate{u.name, n, narrow(r.old[i]), narrow(r.advantage[i])})
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
