package algorithms

import (
	"errors"
	"fmt"
	"math"
)

var _ = declareLoss(LossSpec{
	Name:         "cispo",
	Formula:      "loss_t = -sg[clip(ρ, 0, limit)] * A * current, ρ = exp(current - old); the limit is 1 + clip_high with bound: relative, clip_high with bound: absolute",
	Source:       "arXiv 2506.13585",
	UsesClipHigh: true,
	ClipHigh:     0.2,
	ZeroAtZero:   true,
	Keys:         []Key{{"bound", "", "relative: the weight is at most 1 + clip_high; absolute: at most clip_high"}},
	Check: func(s Settings) error {
		switch s.String("bound") {
		case "relative", "absolute":
			return nil
		case "":
			return errors.New("it needs the key bound: relative (weights up to 1 + clip_high) or absolute (up to clip_high)")
		}
		return fmt.Errorf("bound is %q; allowed are relative, absolute", s.String("bound"))
	},
	Clipped: func(s Settings, t Token) bool { return math.Exp(t.Current-t.Old) > cispoLimit(s) },
	ClipNote: func(s Settings, a *Algorithm) []string {
		notes := []string{fmt.Sprintf("the weight sg[ρ] in [0, %.6g]; a token's gradient is bounded, never dropped", cispoLimit(s))}
		switch {
		case cispoLimit(s) < 1:
			notes = append(notes, fmt.Sprintf("a limit below 1 scales every gradient: a token whose policy has not changed has the weight %.6g, not 1", cispoLimit(s)))
		case a.OldIsCurrent():
			notes = append(notes, neverActs)
		}
		return notes
	},
	New: func(s Settings) (Loss, error) { return cispo{cispoLimit(s)}, nil },
})

func cispoLimit(s Settings) float64 {
	if s.String("bound") == "absolute" {
		return s.ClipHigh
	}
	return 1 + s.ClipHigh
}

type cispo struct{ limit float64 }

func (cispo) Name() string { return "cispo" }

// PerToken is -sg[clip(ρ, 0, limit)] · A · current.
func (l cispo) PerToken(in LossInput) (Tensor, error) {
	weight := in.Detach(in.Clamp(in.Exp(in.Sub(in.Current, in.Old)), 0, l.limit))
	return in.Neg(in.Mul(in.Mul(weight, in.Advantage), in.Current)), in.Err()
}
