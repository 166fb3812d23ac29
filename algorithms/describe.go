package algorithms

import (
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
)

// Describe says what the block really computes, one setting a line, for `agentfly job effective`.
func (a *Algorithm) Describe() string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("advantage", "%s: %s [%s]%s", a.Estimator.Name, a.Estimator.Formula, a.Estimator.Source, ownKeys(a.Estimator.Keys, a.Estimator.Settings))
	for _, note := range a.Estimator.Notes {
		line("", "%s", note)
	}
	line("loss", "%s: %s [%s]%s", a.Loss.Name, a.Loss.Formula, a.Loss.Source, ownKeys(a.Loss.Keys, a.Loss.Settings))
	describeClip(a, line)
	line("aggregation", "%s: %s", a.Aggregation.Name, a.Aggregation.denominator())
	if a.HasCritic() {
		line("value", "%s", a.Value.formula())
		line("", "the critic is a linear head on the policy's last hidden state, trained with it")
	}
	if a.KL.Coefficient == 0 {
		line("kl", "none; no reference policy is needed")
	} else {
		line("kl", "%v * %s against the frozen reference, in the %s", a.KL.Coefficient, a.KL.Estimator, a.KL.In)
		line("", "%s", a.KL.formula())
	}
	if a.Entropy == 0 {
		line("entropy", "no bonus")
	} else {
		line("entropy", "loss_t - %v * H_t", a.Entropy)
	}
	line("correction", "%s", a.Correction.describe())
	if a.Loss.IgnoresOld && a.Correction.Kind == CorrectionBypass {
		line("", "loss %s does not read old: nothing is corrected", a.Loss.Name)
	}
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

func describeClip(a *Algorithm, line func(key, format string, args ...any)) {
	s := a.Loss.Settings
	if a.Loss.ClipNote != nil {
		key := "clip"
		var notes []string
		err := panics.Guard("the loss's ClipNote", func() error {
			notes = a.Loss.ClipNote(s, a)
			return nil
		})
		if err != nil { // what is described is not what is computed
			notes = []string{err.Error()}
		}
		for _, note := range notes {
			line(key, "%s", note)
			key = ""
		}
		return
	}
	what := "ratio"
	if a.Loss.NeedsSequence {
		what = "the trajectory's ratio s"
	}
	switch {
	case !a.Loss.UsesClipLow && !a.Loss.UsesClipHigh:
		line("clip", "this loss does not clip")
		return
	case a.Loss.UsesClipLow:
		line("clip", "%s in [%.6g, %.6g]", what, 1-s.ClipLow, 1+s.ClipHigh)
	default:
		line("clip", "%s up to %.6g", what, 1+s.ClipHigh)
	}
	if s.DualClip > 0 {
		line("", "dual clip: for A < 0 the loss is at most -%.6gA", s.DualClip)
	} else if a.Loss.UsesDualClip {
		line("", "dual clip off")
	}
	if a.OldIsCurrent() {
		line("", neverActs)
	}
}

const neverActs = "clipping never acts: each batch gets one update, so every ratio is 1"

func (s CorrectionSettings) describe() string {
	switch s.Kind {
	case CorrectionTISSequence:
		return fmt.Sprintf("tis_sequence: the policy terms of a trajectory are multiplied by min(exp(Σ_t(old - sampling)), %.6g), without gradient", s.Cap)
	case CorrectionSeqMask:
		return fmt.Sprintf("seq_mask: a trajectory whose exp(mean_t(old - sampling)) lies outside [%.6g, %.6g] gets policy term 0; in others a token's is multiplied by min(exp(old - sampling), %.6g), without gradient; the denominator stays", s.Low, s.High, s.Cap)
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
