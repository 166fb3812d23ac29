package algorithms

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
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
	Value             ValueSettings // zero without a critic
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
	if a.Estimator, err = lookup("advantage", choice.Name, r.estimators); err != nil {
		return err
	}
	if a.EstimatorSettings.keys, err = resolveKeys("advantage", choice, a.Estimator.Keys); err != nil {
		return err
	}
	a.estimator, err = panics.Value("its New", func() (Estimator, error) { return a.Estimator.New(a.EstimatorSettings) })
	if err == nil && a.estimator == nil {
		err = errors.New("its New returned no estimator")
	}
	if err != nil {
		return fmt.Errorf("algorithms: advantage %s: %w", choice.Name, err)
	}
	if _, ok := a.estimator.(Critic); ok != a.Estimator.Needs.Values {
		return fmt.Errorf("algorithms: advantage %s: an estimator reads values if and only if it is a Critic", choice.Name)
	}
	return nil
}

func (a *Algorithm) resolveLoss(c Config, r *Registry) (err error) {
	choice := c.Loss
	if choice.Name == "" {
		choice.Name = "ppo_clip"
	}
	if a.Loss, err = lookup("loss", choice.Name, r.losses); err != nil {
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
	if a.Loss.Check == nil {
		return nil
	}
	if err := panics.Guard("its Check", func() error { return a.Loss.Check(s) }); err != nil {
		return fmt.Errorf("algorithms: loss %s: %w", choice.Name, err)
	}
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
	case c.Value != nil && !a.HasCritic():
		return fmt.Errorf("algorithms: value is set, but advantage %s has no critic; leave it out", a.Estimator.Name)
	}
	if err := a.resolveValue(c.Value); err != nil {
		return err
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

func (a *Algorithm) resolveValue(v *Value) error {
	if !a.HasCritic() {
		return nil
	}
	a.Value = ValueSettings{Coefficient: 0.5, Clip: 0.2}
	if v == nil {
		return nil
	}
	for _, f := range []struct {
		key   string
		given *float64
		into  *float64
	}{{"coefficient", v.Coefficient, &a.Value.Coefficient}, {"clip", v.Clip, &a.Value.Clip}} {
		if f.given == nil {
			continue
		}
		if !(*f.given > 0) || math.IsInf(*f.given, 0) {
			return fmt.Errorf("algorithms: value.%s is %v; it must be a positive number", f.key, *f.given)
		}
		*f.into = *f.given
	}
	return nil
}

// HasCritic reports whether the estimator reads values, so that the model needs a value head, which is trained along.
func (a *Algorithm) HasCritic() bool { return a.Estimator.Needs.Values }

// withoutCritic is the algorithm with its policy's loss alone.
func (a *Algorithm) withoutCritic() *Algorithm {
	policy := *a
	policy.Estimator.Needs.Values = false
	return &policy
}

// NeedsReference reports whether the frozen reference policy must score the batch.
func (a *Algorithm) NeedsReference() bool { return a.KL.Coefficient > 0 }

// NeedsGreedy reports whether every group needs a greedy rollout of its task.
func (a *Algorithm) NeedsGreedy() bool { return a.Estimator.Needs.Greedy }

// NeedsSiblings reports whether the estimator compares the trajectories of a group with each other alone, so that one without
// siblings has advantage 0 whatever its reward. It asks the estimator: two groups of one trajectory each differ in their
// rewards, tokens, values and turns. One that cannot say, by an error or a panic, is taken to need none.
func (a *Algorithm) NeedsSiblings() bool {
	alone := func(reward float64) Group {
		return Group{{
			Reward: reward, Tokens: 3, Turn: []int{0, 1, 1}, TurnRewards: []*float64{nil, nil}, Anchors: []string{"", ""},
			Greedy: new(float64), Values: []float64{0, 0, 0},
		}}
	}
	advantages, err := a.ask(a.estimator.Advantages, []Group{alone(1), alone(2)})
	if err != nil {
		return false
	}
	for _, group := range advantages {
		for _, trajectory := range group {
			if slices.ContainsFunc(trajectory, func(x float64) bool { return x != 0 }) {
				return false
			}
		}
	}
	return true
}

// OldIsCurrent reports whether every batch gets exactly one optimizer step, so that the old policy is the current one
// and every ratio is 1: the trainer then takes old = current without gradient and needs no forward of its own for it.
func (a *Algorithm) OldIsCurrent() bool {
	return a.Epochs == 1 && a.MiniBatches == 1 && a.Correction.Kind != CorrectionBypass
}

// ZeroWithoutAdvantage reports whether a token with advantage 0 has neither loss nor gradient, so that the trainer may
// leave its backward out.
func (a *Algorithm) ZeroWithoutAdvantage() bool {
	return a.Loss.ZeroAtZero && a.Entropy == 0 && !a.HasCritic() && (a.KL.Coefficient == 0 || a.KL.In != "loss")
}

// Clipped reports whether the loss's clip holds back this token's gradient.
func (a *Algorithm) Clipped(t Token) bool {
	s := a.LossSettings
	if a.Loss.Clipped != nil {
		return a.ownClip(t)
	}
	ratio := math.Exp(t.Current - t.Old)
	return a.Loss.UsesClipHigh && t.Advantage > 0 && ratio > 1+s.ClipHigh ||
		a.Loss.UsesClipLow && t.Advantage < 0 && ratio < 1-s.ClipLow ||
		s.DualClip > 0 && t.Advantage < 0 && ratio > s.DualClip
}

// ownClip asks the loss. The trainer's worker catches a panic, which names the loss here.
func (a *Algorithm) ownClip(t Token) (clipped bool) {
	err := panics.Guard("loss "+a.Loss.Name+": its Clipped", func() error {
		clipped = a.Loss.Clipped(a.LossSettings, t)
		return nil
	})
	if err != nil {
		panic(err)
	}
	return clipped
}

// ValueLoss is the critic's loss of one token before its coefficient: ½ max((V - R)², (V_old + clip(V - V_old, ±c) - R)²).
func (a *Algorithm) ValueLoss(value, old, target float64) float64 {
	near := old + min(max(value-old, -a.Value.Clip), a.Value.Clip)
	return max((value-target)*(value-target), (near-target)*(near-target)) / 2
}

// Updates is how many optimizer steps, and so policy versions, a step adds at most.
func (a *Algorithm) Updates() int { return max(1, a.Epochs*a.MiniBatches) }
