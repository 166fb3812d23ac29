//go:build torch

package trainer

import (
	"math"

	"github.com/agentfly/agentfly/algorithms"
)

// tally counts over the passes of a step. Ranks send theirs to each other.
type tally struct {
	Clipped, Dropped, Passed                   int     // tokens that the loss clipped, that a correction weighs 0, that passed through the loss
	MicroBatches, PackedTokens, UnpackedTokens int     // of one pass
	ValueLoss                                  float64 // the critic's, summed
}

// count counts micro-batches.
func (t *tally) count(batches []MicroBatch) {
	for _, mb := range batches {
		t.MicroBatches++
		t.PackedTokens += len(mb.Tokens)
		t.UnpackedTokens += mb.Unpacked
	}
}

// observe counts what the loss and the correction hold back of rows.
func (t *tally) observe(a *algorithms.Algorithm, rows algorithms.Rows, current, base []float64) {
	for i := range current {
		token := algorithms.Token{Current: current[i], Old: base[i], Sampling: rows.Sampling[i], Advantage: rows.Advantage[i]}
		if rows.Sequence != nil {
			token.Sequence = rows.Sequence[i]
		}
		if a.Loss.HoldsBack(token) {
			t.Clipped++
		}
		if rows.Correction != nil && rows.Correction[i] == 0 {
			t.Dropped++
		}
	}
	t.Passed += len(current)
}

func (t *tally) add(o tally) {
	t.Clipped += o.Clipped
	t.Dropped += o.Dropped
	t.Passed += o.Passed
	t.MicroBatches += o.MicroBatches
	t.PackedTokens += o.PackedTokens
	t.UnpackedTokens += o.UnpackedTokens
	t.ValueLoss += o.ValueLoss
}

// finish completes the metrics of a plan whose step was taken: sums over the optimizer steps become means.
func finish(p *plan, t tally, a *algorithms.Algorithm) Metrics {
	m := p.metrics
	m.MicroBatches, m.PackedTokens, m.UnpackedTokens, m.ValueLoss = t.MicroBatches, t.PackedTokens, t.UnpackedTokens, t.ValueLoss
	if m.OptimizerSteps > 0 {
		m.Loss /= float64(m.OptimizerSteps)
		m.GradNorm /= float64(m.OptimizerSteps)
		m.ValueLoss /= float64(m.OptimizerSteps)
	}
	if t.Passed > 0 {
		m.ClipFraction = float64(t.Clipped) / float64(t.Passed)
		m.Dropped = float64(t.Dropped) / float64(t.Passed)
	}
	m.Samples = sampleUpdates(p)
	finishMismatch(&m, p)
	finishCritic(&m, p, a)
	return m
}

// sampleUpdates is what the step computed for each sample that counted.
func sampleUpdates(p *plan) (out []SampleUpdate) {
	for _, u := range p.units {
		for n, i := range u.items {
			s := SampleUpdate{Trajectory: u.name, Sample: u.samples[n], OldLogprobs: narrow(p.old[i]), Advantages: narrow(p.advantage[i]), Entropy: narrow(p.entropy[i])}
			if p.reference != nil {
				s.ReferenceLogprobs = narrow(p.reference[i])
			}
			if p.values != nil {
				s.Values = narrow(p.values[i])
			}
			out = append(out, s)
		}
	}
	return out
}

// finishMismatch completes the metrics of old against sampling logprobs, and the entropy.
func finishMismatch(m *Metrics, p *plan) {
	var old, sampling []float64
	for i, it := range p.items {
		if p.old[i] == nil {
			continue
		}
		for t, on := range it.Sample.ResponseMask {
			if on {
				old = append(old, p.old[i][t])
				sampling = append(sampling, float64(it.Sample.SamplingLogprobs[t]))
				m.Entropy += p.entropy[i][t]
			}
		}
	}
	if len(old) > 0 {
		m.Entropy /= float64(len(old))
	}
	d := algorithms.Measure(old, sampling)
	m.MismatchMean, m.MismatchMax, m.MismatchK3, m.ESS = d.MeanAbs, d.MaxAbs, d.K3, d.ESS
}

// finishCritic completes the metrics that need a reference or a critic.
func finishCritic(m *Metrics, p *plan, a *algorithms.Algorithm) {
	var old, reference, errors, returns []float64
	for _, u := range p.units {
		if p.reference != nil {
			old, reference = append(old, p.gather(u, p.old)...), append(reference, p.gather(u, p.reference)...)
		}
		if p.values != nil {
			target := p.gather(u, p.returns)
			returns = append(returns, target...)
			for t, v := range p.gather(u, p.values) {
				errors = append(errors, target[t]-v)
			}
		}
	}
	m.KL = a.KL.Mean(old, reference)
	if v := variance(returns); v > 0 {
		m.Explained = 1 - variance(errors)/v
	}
}

func variance(v []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	if len(v) == 0 || math.IsNaN(sum) {
		return 0
	}
	return sum / float64(len(v))
}

// narrow is v in float32; nil stays nil.
func narrow(v []float64) []float32 {
	if v == nil {
		return nil
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
