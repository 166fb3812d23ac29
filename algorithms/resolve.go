package algorithms

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Algorithm is a resolved algorithm block: every setting has its value and none contradicts another.
type Algorithm struct {
	Estimator         EstimatorSpec
	EstimatorSettings Settings
	Loss              LossSpec
	LossSettings      Settings
	Aggregation       string
	MaxTokens         int // of seq-mean-token-sum-norm; otherwise 0
	KL                KL
	Entropy           float64
	Correction        CorrectionSettings
	Epochs            int
	MiniBatches       int
	DynamicSampling   bool     // the orchestrator drops groups that are not Informative and refills the batch
	Overlong          Overlong // the orchestrator adds its Penalty to the rewards

	estimator Estimator
}

// Resolve fills in defaults and checks the block. The error names the setting and why it is refused.
func (c Config) Resolve(r *Registry) (*Algorithm, error) {
	a := &Algorithm{MaxTokens: c.MaxTokens, KL: c.KL, Entropy: c.Entropy, Epochs: 1, MiniBatches: 1, DynamicSampling: c.DynamicSampling, Overlong: c.Overlong}
	steps := []func() error{
		func() error { return a.resolveEstimator(c, r) },
		func() error { return a.resolveLoss(c, r) },
		func() error { return a.resolveAggregation(c) },
		func() error { return a.resolveKL() },
		func() error { return a.resolveRest(c) },
		func() (err error) { a.Correction, err = c.Correction.resolve(); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Algorithm) resolveEstimator(c Config, r *Registry) (err error) {
	choice := c.Advantage
	if choice.Name == "" {
		choice.Name = "grpo"
	}
	if a.Estimator, err = lookup("advantage", choice.Name, r.estimators, laterEstimators); err != nil {
		return err
	}
	if a.EstimatorSettings.keys, err = resolveKeys("advantage", choice, a.Estimator.Keys); err != nil {
		return err
	}
	if a.estimator, err = a.Estimator.New(a.EstimatorSettings); err != nil {
		return fmt.Errorf("algorithms: advantage %s: %w", choice.Name, err)
	}
	return nil
}

func (a *Algorithm) resolveLoss(c Config, r *Registry) (err error) {
	choice := c.Loss
	if choice.Name == "" {
		choice.Name = "ppo_clip"
	}
	if a.Loss, err = lookup("loss", choice.Name, r.losses, laterLosses); err != nil {
		return err
	}
	s := Settings{ClipLow: a.Loss.ClipLow, ClipHigh: a.Loss.ClipHigh}
	for _, f := range []struct {
		key   string
		given *float64
		used  bool
		into  *float64
		ok    func(float64) bool
		want  string
	}{
		{"clip_low", c.ClipLow, a.Loss.UsesClipLow, &s.ClipLow, func(v float64) bool { return v >= 0 && v <= 1 }, "0 to 1"},
		{"clip_high", c.ClipHigh, a.Loss.UsesClipHigh, &s.ClipHigh, func(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }, "0 or more"},
		{"dual_clip", c.DualClip, a.Loss.UsesDualClip, &s.DualClip, func(v float64) bool { return v == 0 || v > 1 && !math.IsInf(v, 1) }, "0 (off) or more than 1"},
	} {
		if f.given == nil || f.key == "dual_clip" && *f.given == 0 {
			continue
		}
		if !f.used {
			return fmt.Errorf("algorithms: %s is set, but loss %s does not clip that way; leave it out", f.key, choice.Name)
		}
		if !f.ok(*f.given) {
			return fmt.Errorf("algorithms: %s is %v; allowed is %s", f.key, *f.given, f.want)
		}
		*f.into = *f.given
	}
	if s.keys, err = resolveKeys("loss", choice, a.Loss.Keys); err != nil {
		return err
	}
	a.LossSettings = s
	return nil
}

func (a *Algorithm) resolveAggregation(c Config) error {
	a.Aggregation = c.Aggregation
	if a.Aggregation == "" {
		a.Aggregation = a.Loss.Only
	}
	if a.Aggregation == "" {
		a.Aggregation = a.Loss.Aggregation
	}
	if a.Aggregation == "" {
		a.Aggregation = TokenMean
	}
	if !slices.Contains(Aggregations, a.Aggregation) {
		return fmt.Errorf("algorithms: aggregation %q is unknown; allowed are %s", a.Aggregation, strings.Join(Aggregations, ", "))
	}
	if a.Loss.Only != "" && a.Aggregation != a.Loss.Only {
		return fmt.Errorf("algorithms: loss %s is defined with aggregation %s only, not %s", a.Loss.Name, a.Loss.Only, a.Aggregation)
	}
	if a.Aggregation == SeqMeanTokenSumNorm && c.MaxTokens < 1 {
		return fmt.Errorf("algorithms: aggregation %s divides by max_tokens; set it to 1 or more (it is %d)", a.Aggregation, c.MaxTokens)
	}
	if a.Aggregation != SeqMeanTokenSumNorm && c.MaxTokens != 0 {
		return fmt.Errorf("algorithms: max_tokens is set, but aggregation %s does not use it; leave it out", a.Aggregation)
	}
	return nil
}

func (a *Algorithm) resolveKL() error {
	if a.KL.Estimator == "" {
		a.KL.Estimator = "k3"
	}
	if a.KL.In == "" {
		a.KL.In = "loss"
	}
	switch {
	case !(a.KL.Coefficient >= 0) || math.IsInf(a.KL.Coefficient, 0):
		return fmt.Errorf("algorithms: kl.coefficient is %v; allowed is 0 or more", a.KL.Coefficient)
	case !slices.Contains([]string{"k1", "k2", "k3"}, a.KL.Estimator):
		return fmt.Errorf("algorithms: kl.estimator %q is unknown; allowed are k1, k2, k3", a.KL.Estimator)
	case a.KL.In != "loss" && a.KL.In != "reward":
		return fmt.Errorf("algorithms: kl.in is %q; allowed are loss, reward", a.KL.In)
	case a.KL.In == "loss" && a.KL.Estimator == "k1":
		return fmt.Errorf("algorithms: kl: k1 in the loss has zero expected gradient on-policy, so it would do nothing; use k2 or k3, or put it in the reward")
	}
	return nil
}

func (a *Algorithm) resolveRest(c Config) error {
	switch {
	case !(c.Entropy >= 0) || math.IsInf(c.Entropy, 0):
		return fmt.Errorf("algorithms: entropy is %v; allowed is 0 or more", c.Entropy)
	case c.Value != nil:
		return fmt.Errorf("algorithms: value is set, but advantage %s has no critic; leave it out", a.Estimator.Name)
	}
	if err := c.Overlong.validate(); err != nil {
		return err
	}
	for _, f := range []struct {
		key   string
		given *int
		into  *int
	}{{"epochs", c.Epochs, &a.Epochs}, {"mini_batches", c.MiniBatches, &a.MiniBatches}} {
		if f.given == nil {
			continue
		}
		if *f.given < 1 {
			return fmt.Errorf("algorithms: %s is %d; allowed is 1 or more", f.key, *f.given)
		}
		*f.into = *f.given
	}
	return nil
}

// OldIsCurrent reports whether every batch gets exactly one optimizer step, so that the old policy is the current one
// and every ratio is 1: the trainer then takes old = current without gradient and needs no forward of its own for it.
func (a *Algorithm) OldIsCurrent() bool {
	return a.Epochs == 1 && a.MiniBatches == 1 && a.Correction.Kind != CorrectionBypass
}

// ZeroWithoutAdvantage reports whether a token with advantage 0 has neither loss nor gradient, so that the trainer may
// leave its backward out.
func (a *Algorithm) ZeroWithoutAdvantage() bool {
	return a.Loss.ZeroAtZero && a.Entropy == 0 && (a.KL.Coefficient == 0 || a.KL.In != "loss")
}

// Clipped reports whether the clip of the ratio holds back this token's gradient.
func (a *Algorithm) Clipped(current, old, advantage float64) bool {
	ratio := math.Exp(current - old)
	return a.Loss.UsesClipHigh && advantage > 0 && ratio > 1+a.LossSettings.ClipHigh ||
		a.Loss.UsesClipLow && advantage < 0 && ratio < 1-a.LossSettings.ClipLow
}
