//go:build torch

package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// Trainer takes the policy-gradient step on a model:
//
//	groups ─► advantages ─► mini-batches ─► Pack ─► forward ─► loss ─► backward ─► ... ─► clip, AdamW
//	          (plain Go)                    └────────── per micro-batch ──────────┘       (behind Barrier)
//
// All tensor work runs on the worker, which must be the model's only trainer. Steps must not overlap.
type Trainer struct {
	model     *cgo.Model
	worker    *cgo.Worker
	algorithm *algorithms.Algorithm
	loss      algorithms.Loss
	config    Config
	optimizer *cgo.Optimizer
	ranks     ranks
	shared    bool // rank 0's Config.Shared

	base, reference hashOnce // of an adapter's frozen base and of the reference policy
}

// NewTrainer makes a trainer with a fresh optimizer. Close it before the model; model and worker stay the caller's.
func NewTrainer(m *cgo.Model, w *cgo.Worker, a *algorithms.Algorithm, c Config) (*Trainer, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if a.NeedsReference() && c.Reference == nil {
		return nil, fmt.Errorf("trainer: kl.coefficient is %v, which needs a reference policy; give one or set it to 0", a.KL.Coefficient)
	}
	if a.HasCritic() && !hasValueHead(m) {
		return nil, fmt.Errorf("trainer: advantage %s has a critic, but the model has no value head; add one before the trainer is made", a.Estimator.Name)
	}
	loss, err := a.Loss.NewLoss()
	if err != nil {
		return nil, err
	}
	if c.AdamW == (cgo.AdamWConfig{WeightDecay: c.AdamW.WeightDecay}) {
		decay := c.AdamW.WeightDecay
		c.AdamW = cgo.DefaultAdamW()
		c.AdamW.WeightDecay = decay
	}
	ranks, err := newRanks(c)
	if err != nil {
		return nil, err
	}
	if !ranks.alone() {
		if err := shareModel(ranks.group, m); err != nil {
			return nil, fmt.Errorf("trainer: %w", err)
		}
	}
	o, err := cgo.NewOptimizer(m, c.AdamW, ranks.group)
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	return &Trainer{model: m, worker: w, algorithm: a, loss: loss, config: c, optimizer: o, ranks: ranks, shared: c.Shared}, nil
}

// shareModel gives every rank the weights of rank 0, whenever that comes to it: it may have a server to start first, so the
// others wait as long as its process is seen to live.
func shareModel(g *cgo.Group, m *cgo.Model) (err error) {
	if g.Rank() == 0 {
		_, err = g.Broadcast(0, nil)
	} else {
		_, err = g.Await(0)
	}
	if err != nil {
		return err
	}
	return g.BroadcastModel(m)
}

// Close frees the optimizer's state.
func (t *Trainer) Close() error { return t.optimizer.Close() }

// Steps counts the optimizer steps that were taken, over resumes too.
func (t *Trainer) Steps() int64 { return t.optimizer.StepCount() }

// Step updates the model once per mini-batch and epoch. On an error the gradients are dropped and the optimizer step that
// was being prepared is not taken; it names the batch's step and, where one is to blame, the trajectory. A mini-batch in
// which nothing can move the weights (every advantage 0, no entropy bonus) takes no optimizer step.
func (t *Trainer) Step(ctx context.Context, b Batch) (Metrics, error) {
	defer watchdog.Enter(ctx, "trainer", "step "+strconv.Itoa(b.Step+1)).Leave()
	p, err := newPlan(t.algorithm, b)
	if err != nil {
		return Metrics{}, err
	}
	if t.ranks.leads() {
		o := stepOrder(b, t.config.Schedule)
		o.Shared = t.shared
		if err := t.ranks.tell(o); err != nil {
			return Metrics{}, fmt.Errorf("trainer: step %d: %w", b.Step+1, err)
		}
	}
	r := newStepRun(t, p, b.Step)
	if err := t.spread(ctx, r.run); err != nil {
		return Metrics{}, fmt.Errorf("trainer: step %d: %w", b.Step+1, err)
	}
	return finish(p, *r.tally, t.algorithm), nil
}

// spread calls run while no rank holds more of the parameters than it computes with. Rank 0 has them whole again afterwards, also
// when run fails, and gradients are dropped then. An engine that shares the parameters keeps them whole meanwhile.
func (t *Trainer) spread(ctx context.Context, run func(context.Context) error) error {
	apart := !t.shared && !t.ranks.alone()
	if apart {
		if err := t.worker.Do(context.WithoutCancel(ctx), t.optimizer.Spread); err != nil {
			return err
		}
	}
	err := run(ctx)
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		if cleanup := t.worker.Do(ctx, t.optimizer.ZeroGrad); cleanup != nil {
			err = errors.Join(err, cleanup)
		}
	}
	if apart {
		if gathered := t.worker.Do(ctx, t.optimizer.Gather); err == nil || !errors.Is(gathered, cgo.ErrRank) {
			err = errors.Join(err, gathered)
		}
	}
	return err
}

// Logprobs computes the trainer's logprobs and entropies of the samples' response tokens at a temperature. It must not overlap with a step; the
// ranks that compute micro-batches together with this one do their part. Where ctx ends, all of them stop before the same micro-batch.
func (t *Trainer) Logprobs(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]SampleLogprobs, error) {
	if err := ctx.Err(); err != nil { // nobody has begun
		return nil, fmt.Errorf("trainer: logprobs: %w", err)
	}
	if t.ranks.perBatch() > 1 && t.ranks.leads() {
		if err := t.ranks.tell(order{Kind: "logprobs", Samples: samples, Temperature: temperature}); err != nil {
			return nil, fmt.Errorf("trainer: logprobs: %w", err)
		}
	}
	out, err := t.logprobs(ctx, samples, temperature)
	if !errors.Is(err, ctx.Err()) { // all stop when ctx ends, and nobody waits
		t.ranks.abandon(err)
	}
	return out, err
}

// logprobs is this rank's part of Logprobs. The ctx of rank 0 says when all stop.
func (t *Trainer) logprobs(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]SampleLogprobs, error) {
	items := make([]PackItem, len(samples))
	out := make([]SampleLogprobs, len(samples))
	for i, s := range samples {
		if err := textOnly(s); err != nil {
			return nil, fmt.Errorf("trainer: logprobs: sample %d: %w", i, err)
		}
		items[i] = PackItem{Sample: s, Group: i, Name: fmt.Sprint(i)}
		out[i] = SampleLogprobs{Logprobs: make([]float32, s.Len()), Entropy: make([]float32, s.Len())}
	}
	batches, err := Pack(items, t.config.packOptions(temperature))
	if err != nil {
		return nil, err
	}
	err = t.worker.Do(context.WithoutCancel(ctx), func() error {
		for i := range batches {
			ended := ctx.Err()
			if going, err := t.ranks.alike(ended == nil); err != nil || !going {
				return cmp.Or(err, ended)
			}
			n, err := infer(t.model, &batches[i].Batch, t.ranks.near, false)
			if err != nil {
				return err
			}
			for j, row := range batches[i].Rows {
				out[row.Item].Logprobs[row.Token], out[row.Item].Entropy[row.Token] = n.logprobs[j], n.entropy[j]
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("trainer: logprobs: %w", err)
	}
	return out, nil
}
