package algorithms

import (
	"fmt"
	"math"
	"strings"
)

// Algorithm is a resolved algorithm block: every setting has its value and none contradicts another.
type Algorithm struct {
	Estimator       ResolvedEstimator
	Loss            ResolvedLoss
	Aggregation     Aggregation
	KL              KL
	Value           ValueSettings // zero without a critic
	Entropy         float64
	Correction      CorrectionSettings
	Epochs          int
	MiniBatches     int
	DynamicSampling bool     // the orchestrator drops groups that are not Informative and refills the batch
	Overlong        Overlong // the orchestrator adds its Penalty to the rewards
}

// Refused is why settings of an algorithm block are refused, in the order in which they are checked.
type Refused []RefusedSetting

// RefusedSetting is why one setting is refused. Key is its place in the block, such as kl.estimator.
type RefusedSetting struct {
	Key string
	Err error
}

// Error is one line.
func (r Refused) Error() string {
	texts := make([]string, len(r))
	for i, s := range r {
		texts[i] = s.Err.Error()
	}
	return "algorithms: " + strings.Join(texts, "; ")
}

// refuse is the error of one setting, by its place in the block and in words that name it.
func refuse(key, format string, args ...any) error {
	return Refused{{key, fmt.Errorf(format, args...)}}
}

// Resolve fills in defaults and checks the block. Its error is Refused, with every setting that something is wrong with.
func (c Config) Resolve(r *Registry) (*Algorithm, error) {
	a := &Algorithm{Entropy: c.Entropy, Epochs: 1, MiniBatches: 1, DynamicSampling: c.DynamicSampling, Overlong: c.Overlong}
	var refused Refused
	good := func(err error) bool {
		if err != nil {
			refused = append(refused, err.(Refused)...) //nolint:errorlint // what refuse made, and nothing around it
		}
		return err == nil
	}
	var err error
	a.Estimator, err = c.Advantage.estimator(r)
	estimator := good(err)
	if a.Loss, err = c.loss(r); good(err) { // which aggregations there are depends on it
		a.Aggregation, err = c.aggregation(a.Loss.LossSpec)
		good(err)
	}
	a.KL, err = c.KL.resolve()
	good(err)
	good(c.checkEntropy())
	if estimator {
		a.Value, err = c.Value.resolve(a.Estimator.EstimatorSpec)
		good(err)
	}
	good(c.Overlong.validate())
	good(c.updates(a))
	a.Correction, err = c.Correction.resolve()
	good(err)
	if len(refused) > 0 {
		return nil, refused
	}
	return a, nil
}

// checkEntropy refuses a bonus that is no number.
func (c Config) checkEntropy() error {
	if !(c.Entropy >= 0) || math.IsInf(c.Entropy, 0) {
		return refuse("entropy", "entropy is %v; allowed is 0 or more", c.Entropy)
	}
	return nil
}

// updates sets how many optimizer steps a batch gets.
func (c Config) updates(a *Algorithm) error {
	for _, f := range []struct {
		key   string
		given *int
		into  *int
	}{{"epochs", c.Epochs, &a.Epochs}, {"mini_batches", c.MiniBatches, &a.MiniBatches}} {
		if f.given == nil {
			continue
		}
		if *f.given < 1 {
			return refuse(f.key, "%s is %d; allowed is 1 or more", f.key, *f.given)
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

// NeedsReference reports whether the frozen reference policy must compute the batch's logprobs.
func (a *Algorithm) NeedsReference() bool { return a.KL.Coefficient > 0 }

// OldIsCurrent reports whether every batch gets exactly one optimizer step, so that the old policy is the current one
// and every ratio is 1: the trainer then takes old = current without gradient and needs no forward of its own for it.
func (a *Algorithm) OldIsCurrent() bool {
	return a.Epochs == 1 && a.MiniBatches == 1 && a.Correction.Kind != CorrectionBypass
}

// CorrectsStale reports whether tokens that an older policy sampled do not count as the present one's: a correction weighs them, or the ratio of a
// clipped loss is taken against what sampled them.
func (a *Algorithm) CorrectsStale() bool {
	return a.Correction.Active() || a.Correction.Kind == CorrectionBypass && !a.Loss.IgnoresOld
}

// ZeroWithoutAdvantage reports whether a token with advantage 0 has neither loss nor gradient, so that the trainer may
// leave its backward out.
func (a *Algorithm) ZeroWithoutAdvantage() bool {
	return a.Loss.ZeroAtZero && a.Entropy == 0 && !a.HasCritic() && (a.KL.Coefficient == 0 || a.KL.In != "loss")
}

// Updates is how many optimizer steps, and so policy versions, a step adds at most.
func (a *Algorithm) Updates() int { return max(1, a.Epochs*a.MiniBatches) }
