package algorithms

import (
	"cmp"
	"math"

	"github.com/agentfly/agentfly/internal/panics"
)

// LossInput is what a loss sees of a micro-batch: one row for each loss-mask token, in the order of the packing. Tensors
// are float32 [N] on the model's device; only Current carries gradient.
type LossInput struct {
	*Ops
	Current   Tensor // log-probability under the policy that is trained
	Old       Tensor // under the policy before the batch's first step (the sampling logprobs with correction bypass)
	Sampling  Tensor // from the engine
	Advantage Tensor //
	Sequence  Tensor // exp(mean_t(current - old)) over the row's trajectory; only for losses with NeedsSequence
}

// Loss is the policy term of an update. PerToken returns the loss of every row, [N], from in's operations; the caller
// weighs and sums it, multiplies corrections, and adds KL and entropy. Rows must not mix: row i of the result depends on
// row i of the input alone. PerToken runs on the trainer's worker; it keeps nothing, and its error or panic fails the
// step. The tensors of in are freed after it.
type Loss interface {
	Name() string
	PerToken(in LossInput) (Tensor, error)
}

// ResolvedLoss is a loss with its settings, checked.
type ResolvedLoss struct {
	LossSpec
	Settings Settings
}

// loss resolves the loss that the job names, DefaultLoss where it names none, and its clipping.
func (c Config) loss(r *Registry) (out ResolvedLoss, err error) {
	choice := c.Loss
	choice.Name = cmp.Or(choice.Name, DefaultLoss)
	if out.LossSpec, err = lookup("loss", choice.Name, r.losses); err != nil {
		return out, err
	}
	s := Settings{ClipLow: out.ClipLow, ClipHigh: out.ClipHigh}
	for _, f := range []struct {
		key   string
		given *float64
		used  bool
		into  *float64
		ok    func(float64) bool
		want  string
	}{
		{"clip_low", c.ClipLow, out.UsesClipLow, &s.ClipLow, func(v float64) bool { return v >= 0 && v <= 1 }, "0 to 1"},
		{"clip_high", c.ClipHigh, out.UsesClipHigh, &s.ClipHigh, func(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }, "0 or more"},
		{"dual_clip", c.DualClip, out.UsesDualClip, &s.DualClip, func(v float64) bool { return v == 0 || v > 1 && !math.IsInf(v, 1) }, "0 (off) or more than 1"},
	} {
		if f.given == nil || f.key == "dual_clip" && *f.given == 0 {
			continue
		}
		if !f.used {
			return out, refuse(f.key, "%s is set, but loss %s does not clip that way; leave it out", f.key, choice.Name)
		}
		if !f.ok(*f.given) {
			return out, refuse(f.key, "%s is %v; allowed is %s", f.key, *f.given, f.want)
		}
		*f.into = *f.given
	}
	if s.keys, err = resolveKeys("loss", choice, out.Keys); err != nil {
		return out, err
	}
	out.Settings = s
	if out.Check == nil {
		return out, nil
	}
	if err := panics.Guard("its Check", func() error { return out.Check(s) }); err != nil {
		return out, refuse("loss", "loss %s: %w", choice.Name, err)
	}
	return out, nil
}

// HoldsBack reports whether the loss's clip holds back this token's gradient.
func (l *ResolvedLoss) HoldsBack(t Token) bool {
	s := l.Settings
	if l.Clipped != nil {
		return l.ownClip(t)
	}
	ratio := math.Exp(t.Current - t.Old)
	return l.UsesClipHigh && t.Advantage > 0 && ratio > 1+s.ClipHigh ||
		l.UsesClipLow && t.Advantage < 0 && ratio < 1-s.ClipLow ||
		s.DualClip > 0 && t.Advantage < 0 && ratio > s.DualClip
}

// ownClip asks the loss. The trainer's worker catches a panic, which names the loss here.
func (l *ResolvedLoss) ownClip(t Token) (clipped bool) {
	err := panics.Guard("loss "+l.Name+": its Clipped", func() error {
		clipped = l.Clipped(l.Settings, t)
		return nil
	})
	if err != nil {
		panic(err)
	}
	return clipped
}
