package algorithms

import (
	"fmt"
	"strings"
)

// Describe says what the block really computes, one setting a line, for `agentfly job effective`.
func (a *Algorithm) Describe() string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("advantage", "%s: %s [%s]%s", a.Estimator.Name, a.Estimator.Formula, a.Estimator.Source, ownKeys(a.Estimator.Keys, a.EstimatorSettings))
	line("", "exactly 0 for a group whose rewards are all equal, and for a group of one; failed trajectories are left out of the group")
	line("loss", "%s: %s [%s]%s", a.Loss.Name, a.Loss.Formula, a.Loss.Source, ownKeys(a.Loss.Keys, a.LossSettings))
	a.describeClip(line)
	line("aggregation", "%s: %s", a.Aggregation, a.denominator())
	if a.KL.Coefficient == 0 {
		line("kl", "none; no reference policy is needed")
	} else {
		line("kl", "%v * %s against the frozen reference, in the %s", a.KL.Coefficient, a.KL.Estimator, a.KL.In)
	}
	if a.Entropy == 0 {
		line("entropy", "no bonus")
	} else {
		line("entropy", "loss_t - %v * H_t", a.Entropy)
	}
	line("correction", "%s", a.Correction.describe())
	if a.Overlong.Buffer > 0 {
		line("overlong", "reward - %v * how much of the last %d tokens before the limit is used, 0 to 1", a.Overlong.Factor, a.Overlong.Buffer)
	}
	if a.DynamicSampling {
		line("sampling", "dynamic: groups whose rewards are all equal are dropped and the batch is refilled")
	}
	line("updates", "%s", a.describeUpdates())
	return b.String()
}

func ownKeys(keys []Key, s Settings) string {
	out := ""
	for _, k := range keys {
		out += fmt.Sprintf("; %s = %v", k.Name, s.keys[k.Name])
	}
	return out
}

func (a *Algorithm) describeClip(line func(key, format string, args ...any)) {
	s := a.LossSettings
	switch {
	case !a.Loss.UsesClipLow && !a.Loss.UsesClipHigh:
		line("clip", "this loss does not clip")
		return
	case a.Loss.UsesClipLow:
		line("clip", "ratio in [%.6g, %.6g]", 1-s.ClipLow, 1+s.ClipHigh)
	default:
		line("clip", "ratio up to %.6g", 1+s.ClipHigh)
	}
	if s.DualClip > 0 {
		line("", "dual clip: for A < 0 the loss is at most -%.6gA", s.DualClip)
	} else if a.Loss.UsesDualClip {
		line("", "dual clip off")
	}
	if a.OldIsCurrent() {
		line("", "clipping never acts: each batch gets one update, so every ratio is 1")
	}
}

func (s CorrectionSettings) describe() string {
	switch s.Kind {
	case CorrectionTIS:
		return fmt.Sprintf("tis_token: the policy term of a token is multiplied by min(exp(old - sampling), %.6g), without gradient", s.Cap)
	case CorrectionIcePop:
		return fmt.Sprintf("icepop: the policy term is multiplied by exp(old - sampling) inside [%.6g, %.6g] and by 0 outside; the denominator stays", s.Low, s.High)
	case CorrectionBypass:
		return "bypass: the sampling logprobs take the place of old"
	}
	return "none"
}

func (a *Algorithm) describeUpdates() string {
	if a.OldIsCurrent() {
		return "1 optimizer step a batch; old = current without gradient, so no forward of its own"
	}
	steps := fmt.Sprintf("%d optimizer steps a batch (%d epochs of %d mini-batches)", a.Epochs*a.MiniBatches, a.Epochs, a.MiniBatches)
	if a.Correction.Kind == CorrectionBypass {
		return steps + "; old = sampling"
	}
	return steps + "; old is computed once before the first"
}
