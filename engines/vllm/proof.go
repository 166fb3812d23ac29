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
	Tolerance       float64 // of a token's difference
	Far, Tokens     int     // how many tokens differ by more than the tolerance, of how many
	Mean            float64 // difference over the sequence, where that alone is too large; else 0
}

func (e *ProofError) Error() string {
	if e.Mean > 0 {
		return fmt.Sprintf("%s: the logprobs are %.3g apart on average, more than %.3g, an eighth of the tolerance", e.What, e.Mean, e.Tolerance/MeanShare)
	}
	text := fmt.Sprintf("%s: the logprob of token %d is %.6f, the trainer's %.6f: ", e.What, e.Token, e.Engine, e.Trainer)
	d := distance(e.Engine, e.Trainer)
	if math.IsInf(d, 0) {
		return text + "their difference is not finite"
	}
	text += fmt.Sprintf("%.2g apart, more than the tolerance of %.2g", d, e.Tolerance)
	if may := e.Tokens / FarShare; may > 0 {
		text += fmt.Sprintf("; %d tokens of %d are, %d may be", e.Far, e.Tokens, may)
	}
	return text
}

// A proof judges a whole sequence, because rounding moves a few tokens far and other weights move all of them.
const (
	FarShare  = 32 // of so many tokens one may differ by more than the tolerance
	MeanShare = 8  // the mean difference must be so many times smaller than the tolerance; over FarShare tokens or more, because that of fewer says little
)

// distance is infinite where the difference is no finite number.
func distance(engine, trainer float64) float64 {
	d := math.Abs(engine - trainer)
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}

// Compare is the rule of a proof: it returns a [ProofError] where the engine's logprobs are too far from the trainer's for the two to have the same
// weights. Over fewer than FarShare tokens no difference may be above the tolerance, which is finite. Over more, one token in FarShare may be
// further, as long as the mean difference is at most the tolerance's MeanShare-th part, which so bounds these tokens too. A
// difference that is not finite is always too far. what names the sequence in the error, first is the index of the first logprob's token.
func Compare(what string, engine, trainer []float32, first int, tolerance float64) error {
	if len(engine) != len(trainer) {
		return fmt.Errorf("%w: %d logprobs for %d tokens", errReply, len(engine), len(trainer))
	}
	found := ProofError{What: what, Tolerance: tolerance, Tokens: len(engine)}
	most, mean := -1.0, 0.0
	for i := range engine {
		e, t := float64(engine[i]), float64(trainer[i])
		d := distance(e, t)
		mean += d / float64(len(engine))
		if d > tolerance {
			found.Far++
		}
		if d > most {
			most, found.Token, found.Engine, found.Trainer = d, first+i, e, t
		}
	}
	if math.IsInf(most, 0) || found.Far > len(engine)/FarShare {
		return &found
	}
	if mean > tolerance/MeanShare && len(engine) >= FarShare {
		found.Mean = mean
		return &found
	}
	return nil
}

// VersionMismatch says that a server reports another version than the one that it was given.
type VersionMismatch struct{ Got, Want string }

func (e *VersionMismatch) Error() string {
	return fmt.Sprintf("the server reports weight version %q, not %q", e.Got, e.Want)
}

// Tolerance is how far the logprob of a probe token may be from the trainer's, as [Compare] has it, where server and trainer compute in these
// types ("float32", "bfloat16", "float16"; "" for one that is not known).
//
// float32: vLLM against the trainer is at most 1e-5 apart (make test-vllm), so 0.001 leaves a hundredfold. bfloat16 has 8 bits: SmolLM2-135M in
// bfloat16 is at most 0.17 from itself in float32 on average over any of 24 probes of 64 random tokens, and 2 lets it be 0.25. All of these tokens but
// one are at most 1.24 apart; that one is 5.64 (TestToleranceOfBFloat16 of orchestrator/weights). Two different models are nats apart on average.
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
	if err := Compare("probe", fresh, p.Logprobs, 1, p.Tolerance); err != nil {
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
	err = Compare("decoding after the prefix cache against computing anew", decoded.logprobs, anew[len(anew)-n:], len(prompt), p.Tolerance)
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
