package algorithms

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The corrections.
const (
	CorrectionNone   = "none"
	CorrectionTIS    = "tis_token" // min(w, cap)
	CorrectionIcePop = "icepop"    // w inside [low, high], otherwise 0
	CorrectionBypass = "bypass"    // the loss takes the sampling logprobs for old
)

// CorrectionSettings is a resolved Correction.
type CorrectionSettings struct {
	Kind           string
	Cap, Low, High float64
}

func (c Correction) resolve() (CorrectionSettings, error) {
	s := CorrectionSettings{Kind: c.Kind, Cap: 2, Low: 0.5, High: 5}
	if s.Kind == "" {
		s.Kind = CorrectionNone
	}
	if slices.Contains(laterCorrections, s.Kind) {
		return s, fmt.Errorf("algorithms: not implemented yet: correction %s", s.Kind)
	}
	uses := map[string][]string{CorrectionNone: nil, CorrectionTIS: {"cap"}, CorrectionIcePop: {"low", "high"}, CorrectionBypass: nil}
	keys, ok := uses[s.Kind]
	if !ok {
		return s, fmt.Errorf("algorithms: correction %q is unknown; allowed are none, tis_token, icepop, bypass", s.Kind)
	}
	for _, f := range []struct {
		key   string
		given *float64
		into  *float64
	}{{"cap", c.Cap, &s.Cap}, {"low", c.Low, &s.Low}, {"high", c.High, &s.High}} {
		if f.given == nil {
			continue
		}
		if !slices.Contains(keys, f.key) {
			return s, fmt.Errorf("algorithms: correction.%s is set, but correction %s does not use it (it uses: %s); leave it out",
				f.key, s.Kind, cmp.Or(strings.Join(keys, ", "), "no key"))
		}
		if !(*f.given >= 0) || math.IsInf(*f.given, 0) || f.key != "low" && *f.given == 0 {
			return s, fmt.Errorf("algorithms: correction.%s is %v; it must be a positive number", f.key, *f.given)
		}
		*f.into = *f.given
	}
	if s.Kind == CorrectionIcePop && s.Low >= s.High {
		return s, fmt.Errorf("algorithms: correction: low %v must be below high %v", s.Low, s.High)
	}
	return s, nil
}

// Weight is the factor of one token's policy term, without gradient; w = exp(old - sampling) is how much likelier the
// trainer finds the token than the engine did. It multiplies neither KL nor entropy, and no denominator shrinks with it.
func (s CorrectionSettings) Weight(old, sampling float64) float64 {
	w := math.Exp(old - sampling)
	switch s.Kind {
	case CorrectionTIS: // truncated importance sampling
		return min(w, s.Cap)
	case CorrectionIcePop:
		if w < s.Low || w > s.High {
			return 0
		}
		return w
	}
	return 1
}

// Mismatch is how far the trainer's old logprobs are from the engine's sampling logprobs, d = old - sampling, over N
// tokens.
type Mismatch struct {
	Tokens  int
	MeanAbs float64 // mean |d|
	MaxAbs  float64 // max |d|
	K3      float64 // mean exp(d) - d - 1, the k3 estimate of KL(sampling, old)
	ESS     float64 // (Σw)² / (N Σw²) of w = exp(d): 1 when engine and trainer agree
}

// Measure compares the two, [N] each and parallel; all fields are 0 for N = 0.
func Measure(old, sampling []float64) Mismatch {
	m := Mismatch{Tokens: len(old)}
	if len(old) == 0 {
		return m
	}
	n, sum, squares := float64(len(old)), 0.0, 0.0
	for i := range old {
		d := old[i] - sampling[i]
		w := math.Exp(d)
		m.MeanAbs += math.Abs(d) / n
		m.MaxAbs = max(m.MaxAbs, math.Abs(d))
		m.K3 += (w - d - 1) / n
		sum += w
		squares += w * w
	}
	if squares > 0 {
		m.ESS = sum * sum / (n * squares)
	}
	return m
}
