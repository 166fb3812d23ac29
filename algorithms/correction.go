package algorithms

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// The corrections.
const (
	CorrectionNone        = "none"
	CorrectionTIS         = "tis_token"    // min(w, cap)
	CorrectionTISSequence = "tis_sequence" // min(Π w, cap), the product over the trajectory
	CorrectionIcePop      = "icepop"       // w inside [low, high], otherwise 0
	CorrectionSeqMask     = "seq_mask"     // min(w, cap) where the trajectory's geometric mean of w is inside [low, high], otherwise 0
	CorrectionBypass      = "bypass"       // the loss takes the sampling logprobs for old
)

// CorrectionSettings is a resolved Correction.
type CorrectionSettings struct {
	Kind           string
	Cap, Low, High float64
}

var correctionKeys = map[string][]string{
	CorrectionNone: nil, CorrectionTIS: {"cap"}, CorrectionTISSequence: {"cap"}, CorrectionIcePop: {"low", "high"},
	CorrectionSeqMask: {"cap", "low", "high"}, CorrectionBypass: nil,
}

func (c Correction) resolve() (CorrectionSettings, error) {
	s := CorrectionSettings{Kind: c.Kind, Cap: 2, Low: 0.5, High: 5}
	if s.Kind == "" {
		s.Kind = CorrectionNone
	}
	if s.Kind == CorrectionTISSequence {
		s.Cap = 5
	}
	keys, ok := correctionKeys[s.Kind]
	if !ok {
		return s, refuse("correction.kind", "correction %q is unknown; allowed are none, tis_token, tis_sequence, icepop, seq_mask, bypass", s.Kind)
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
			return s, refuse("correction."+f.key, "correction.%s is set, but correction %s does not use it (it uses: %s); leave it out",
				f.key, s.Kind, cmp.Or(strings.Join(keys, ", "), "no key"))
		}
		if !(*f.given >= 0) || math.IsInf(*f.given, 0) || f.key != "low" && *f.given == 0 {
			return s, refuse("correction."+f.key, "correction.%s is %v; it must be a positive number", f.key, *f.given)
		}
		*f.into = *f.given
	}
	if slices.Contains(keys, "low") && s.Low >= s.High {
		return s, refuse("correction", "correction: low %v must be below high %v", s.Low, s.High)
	}
	return s, nil
}

// Active reports whether the policy terms are weighed at all.
func (s CorrectionSettings) Active() bool {
	return s.Kind != CorrectionNone && s.Kind != CorrectionBypass
}

// PerSequence reports whether a token's weight depends on the other tokens of its trajectory.
func (s CorrectionSettings) PerSequence() bool {
	return s.Kind == CorrectionTISSequence || s.Kind == CorrectionSeqMask
}

// Weights are the factors [L] of a trajectory's policy terms, without gradient, from the logprobs of all its response
// tokens over all its samples, [L]; w = exp(old - sampling) is how much likelier the trainer finds a token than the engine
// did. They multiply neither KL nor entropy, and no denominator shrinks with them.
func (s CorrectionSettings) Weights(old, sampling []float64) []float64 {
	out, sum := make([]float64, len(old)), 0.0
	for t := range old {
		sum += old[t] - sampling[t]
	}
	geometric := math.Exp(sum / float64(len(old)))
	for t := range old {
		w := math.Exp(old[t] - sampling[t])
		switch s.Kind {
		case CorrectionTIS: // truncated importance sampling
			out[t] = min(w, s.Cap)
		case CorrectionTISSequence:
			out[t] = min(math.Exp(sum), s.Cap)
		case CorrectionIcePop:
			if w >= s.Low && w <= s.High {
				out[t] = w
			}
		case CorrectionSeqMask:
			if geometric >= s.Low && geometric <= s.High {
				out[t] = min(w, s.Cap)
			}
		default:
			out[t] = 1
		}
	}
	return out
}

// SequenceRatio is gspo's s = exp(mean_t(current - old)) over all response tokens of a trajectory; 1 without a token.
func SequenceRatio(current, old []float64) float64 {
	sum := 0.0
	for t := range current {
		sum += current[t] - old[t]
	}
	return math.Exp(sum / float64(max(len(current), 1)))
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
