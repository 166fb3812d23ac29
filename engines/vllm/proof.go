package vllm

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/agentfly/agentfly/engines"
)

// ProofError says that a server does not compute what the trainer does.
type ProofError struct {
	What            string  // what disagreed
	Token           int     // index in the sequence, of the largest difference
	Engine, Trainer float64 // its logprobs
	Tolerance       float64 // of the largest difference
	Mean            float64 // difference over the sequence, where that alone is too large; else 0
}

func (e *ProofError) Error() string {
	if e.Mean > 0 {
		return fmt.Sprintf("%s: the logprobs are %.2g apart on average, more than %.2g, an eighth of the tolerance", e.What, e.Mean, e.Tolerance/MeanShare)
	}
	return fmt.Sprintf("%s: the logprob of token %d is %.6f, the trainer's %.6f: %.2g apart, more than the tolerance of %.2g",
		e.What, e.Token, e.Engine, e.Trainer, math.Abs(e.Engine-e.Trainer), e.Tolerance)
}

// MeanShare is how many times smaller than the tolerance the mean difference must be, over meanTokens or more: rounding moves a few
// tokens far, other weights move all of them.
const (
	MeanShare  = 8
	meanTokens = 32
)

// compare finds the largest difference. first is the index of the first logprob's token.
func compare(what string, engine, trainer []float32, first int, tolerance float64) error {
	if len(engine) != len(trainer) {
		return fmt.Errorf("%w: %d logprobs for %d tokens", errReply, len(engine), len(trainer))
	}
	worst := ProofError{What: what, Tolerance: tolerance}
	most, mean := -1.0, 0.0
	for i := range engine {
		d := math.Abs(float64(engine[i]) - float64(trainer[i]))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		mean += d / float64(len(engine))
		if d > most {
			most = d
			worst.Token, worst.Engine, worst.Trainer = first+i, float64(engine[i]), float64(trainer[i])
		}
	}
	if most > tolerance {
		return &worst
	}
	if mean > tolerance/MeanShare && len(engine) >= meanTokens {
		worst.Mean = mean
		return &worst
	}
	return nil
}

// VersionMismatch says that a server reports another version than the one that it was given.
type VersionMismatch struct{ Got, Want string }

func (e *VersionMismatch) Error() string {
	return fmt.Sprintf("the server reports weight version %q, not %q", e.Got, e.Want)
}

// Tolerance is the largest difference in the logprob of a probe token that computing in these types explains, those of the
// server and of the trainer ("float32", "bfloat16", "float16"; "" for one that is not known).
//
// float32: vLLM against the trainer is at most 1e-5 apart (make test-vllm), so 0.001 leaves a hundredfold. bfloat16 has 8
// bits: over 12 probes of 64 random tokens SmolLM2-135M in bfloat16 is at most 1.24 from itself in float32, and 0.17 on
// average over a probe (TestToleranceOfBFloat16 of orchestrator/weights), so 2 leaves 1.6 times the largest, and its share of the
// mean 0.25. Two different models are nats apart on average.
func Tolerance(types ...string) float64 {
	for _, t := range types {
		if t == "bfloat16" || t == "float16" {
			return 2
		}
	}
	return 1e-3
}

// proofTokens are decoded after the prompt that may be cached.
const proofTokens = 4

// prove asks three things: does the server name the version; are its logprobs of the probe, computed anew, the trainer's;
// and are the logprobs of a decode, which reads the prefix cache, those that the server computes anew for the same tokens.
func (u *updateRun) prove(ctx context.Context) error {
	got, err := u.client.weightVersion(ctx)
	if err != nil {
		return err
	}
	if got != u.version {
		return u.mismatch(got, u.version)
	}
	p, native := u.weights.Probe, u.standing.info().Native
	fresh, err := u.completer.logprobs(ctx, native, u.model, p.TokenIDs)
	if err != nil {
		return err
	}
	if err := compare("probe", fresh, p.Logprobs, 1, p.Tolerance); err != nil {
		return err
	}
	prompt := cachePrompt(u.weights.Probe.TokenIDs, u.standing.info().MaxModelLen)
	decoded, err := u.completer.send(ctx, native, u.model, prompt, samplingParams(engines.Sampling{MaxTokens: proofTokens, Temperature: 1, TopP: 1}, 1))
	if err != nil {
		return err
	}
	for _, s := range decoded.spans {
		if s.Version != u.version {
			return u.mismatch(s.Version, u.version)
		}
	}
	anew, err := u.completer.logprobs(ctx, native, u.model, append(prompt, decoded.ids...))
	if err != nil {
		return err
	}
	if got, err = u.client.weightVersion(ctx); err != nil {
		return err
	}
	if got != u.version { // what was compared may be another run's
		return u.mismatch(got, u.version)
	}
	n := len(decoded.ids)
	if n == 0 || len(anew) < n {
		return fmt.Errorf("%w: %d tokens were decoded, %d have a logprob", errReply, n, len(anew))
	}
	err = compare("decoding after the prefix cache against computing anew", decoded.logprobs, anew[len(anew)-n:], len(prompt), p.Tolerance)
	if stale := (*ProofError)(nil); errors.As(err, &stale) {
		stale.What += " (the second is the server's own)"
	}
	return err
}

// cachePrompt repeats the probe's tokens until they fill blocks of the prefix cache (16 tokens on a GPU, 128 on a CPU).
func cachePrompt(ids []int32, maxModelLen int) []int32 {
	const want = 288
	most := min(want, maxModelLen-proofTokens-1)
	var out []int32
	for len(out) < most {
		out = append(out, ids[:min(len(ids), most-len(out))]...)
	}
	return out
}
