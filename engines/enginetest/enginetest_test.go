package enginetest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	noisyVocab   = 600
	noisyContext = 400
	noise        = 2e-2 // of a logit
)

// noisy is an engine over a random model whose logits are a little off, in another way each time that it sees a prompt: as on a device that
// computes a row by other kernels when the number of rows is another. So the completions of one request fork after a few tokens.
type noisy struct {
	*scripted.Engine
	fault   string      // of TestFaultsAreFound
	changed atomic.Bool // by a fault

	mu   sync.Mutex
	seen map[string]uint64 // how often a prompt was
}

var (
	_ engines.Streamer  = (*noisy)(nil)
	_ engines.Logprober = (*noisy)(nil)
)

func newNoisy(fault string) *noisy {
	e := &noisy{fault: fault, seen: map[string]uint64{}}
	e.Engine = scripted.New(scripted.Options{
		Respond: e.respond, Delay: time.Millisecond, TokenDelay: 10 * time.Microsecond, MaxModelLen: noisyContext, Version: 3, Decode: Letters{}.Decode,
	})
	return e
}

func (e *noisy) Capabilities() engines.Capabilities {
	c := e.Engine.Capabilities()
	c.BatchInvariant, c.Top = false, noisyVocab
	return c
}

func (e *noisy) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	c, err := e.Engine.Generate(ctx, r)
	if err != nil && e.fault == "cancelled" {
		e.changed.Store(true)
	}
	return c, err
}

func (e *noisy) Update(ctx context.Context, w engines.Weights) error {
	err := e.Engine.Update(ctx, w)
	if err != nil && e.fault == "failed" {
		e.changed.Store(true)
	}
	return err
}

// Stream gives what scripted's does, and raw logprobs where they are asked for.
func (e *noisy) Stream(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	ids := slices.Clone(r.Prompt)
	return e.Engine.Stream(ctx, r, d, func(piece []engines.Token) {
		for i, token := range piece {
			ids = append(ids, token.ID)
			if d.Raw {
				raw := logprobs(e.logits(ids[:len(ids)-1], 0))
				piece[i].Logprob = float32(raw[token.ID])
				piece[i].Top = likeliest(raw, d.Top)
			}
			if e.fault == "pieces" {
				piece[i].ID++
			}
		}
		on(piece)
	})
}

func (e *noisy) Logprobs(_ context.Context, ids []int32) (out []float32, err error) {
	if len(ids) > noisyContext {
		return nil, engines.ErrTooLong
	}
	if len(ids) < 2 || slices.Min(ids) < 0 || slices.Max(ids) >= noisyVocab {
		return nil, errors.New("no sequence of the model's tokens")
	}
	visit := e.visit(ids)
	for i, id := range ids[1:] {
		out = append(out, float32(logprobs(e.logits(ids[:i+1], visit))[id]))
	}
	return out, nil
}

// respond samples a completion.
func (e *noisy) respond(r engines.Request) (c engines.Completion, err error) {
	if err := r.ValidateTop(noisyVocab); err != nil {
		return c, err
	}
	visit := e.visit(r.Prompt)
	seed := e.seed(r, visit)
	for c.FinishReason == "" {
		distribution := e.distribution(r, c.TokenIDs, visit)
		id := sample(distribution, random(nil, seed, uint64(len(c.TokenIDs))).Float64())
		if r.Sampling.Temperature == 0 && e.fault != "greedy" {
			id = likeliest(distribution, 1)[0].ID
		}
		c.TokenIDs, c.Logprobs = append(c.TokenIDs, id), append(c.Logprobs, float32(distribution[id]))
		if r.Top > 0 {
			c.Top = append(c.Top, likeliest(distribution, r.Top))
		}
		c.FinishReason = e.finish(r, c.TokenIDs)
		if e.fault == "drift" {
			seed = visit
		}
	}
	if e.fault == "logprobs" {
		c.Logprobs[0] -= float32(visit%3) / 5
	}
	if n := len(c.TokenIDs) - 1; n > 0 && c.FinishReason == trajectory.FinishStop && e.fault == "stop left out" {
		c.TokenIDs, c.Logprobs = c.TokenIDs[:n], c.Logprobs[:n]
	}
	return c, nil
}

// seed is the request's, or what a fault makes of it.
func (e *noisy) seed(r engines.Request, visit uint64) uint64 {
	switch {
	case e.fault == "one seed":
		return 0
	case e.fault == "no seed":
		return visit
	case e.fault == "session":
		return r.Seed + uint64(len(r.Session))
	case e.fault == "top":
		return r.Seed + uint64(r.Top)
	case e.fault == "neutral":
		return r.Seed + uint64(r.Sampling.Repetition)
	case e.changed.Load():
		return r.Seed + 1
	}
	return r.Seed
}

// finish says why a completion ends here; "": it goes on.
func (e *noisy) finish(r engines.Request, ids []int32) trajectory.FinishReason {
	p, last := r.Sampling, len(ids) == min(r.Sampling.MaxTokens, noisyContext-len(r.Prompt))
	text := Letters{}.Decode(ids[min(len(ids), p.MinTokens):])
	stops := slices.Contains(p.StopIDs, ids[len(ids)-1]) || slices.ContainsFunc(p.Stop, func(stop string) bool { return strings.Contains(text, stop) })
	switch {
	case stops && e.fault != "stop unseen" && !(last && e.fault == "last stop"):
		return trajectory.FinishStop
	case last:
		return trajectory.FinishLength
	}
	return ""
}

// distribution are the logprobs that a request samples from behind the tokens that it sampled, [noisyVocab].
func (e *noisy) distribution(r engines.Request, sampled []int32, visit uint64) []float64 {
	p, ids := r.Sampling, slices.Concat(r.Prompt, sampled)
	out := e.logits(ids, visit)
	if p.Repeats() && e.fault != "repetition" {
		for id := range out {
			if slices.Contains(ids, int32(id)) {
				out[id] = min(out[id]/p.Repetition, out[id]*p.Repetition)
			}
		}
	}
	if len(sampled) < p.MinTokens {
		for _, id := range p.StopIDs {
			out[id] = math.Inf(-1)
		}
	}
	if p.Temperature > 0 {
		for id := range out {
			out[id] /= p.Temperature
		}
	}
	if p.TopK > 0 {
		least := slices.Sorted(slices.Values(out))[noisyVocab-p.TopK]
		for id, l := range out {
			if l < least {
				out[id] = math.Inf(-1)
			}
		}
	}
	return logprobs(out)
}

// visit counts how often a prompt was seen: each time has other logits.
func (e *noisy) visit(prompt []int32) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[fmt.Sprint(prompt)]++
	return e.seen[fmt.Sprint(prompt)]
}

// logits are those behind tokens, [noisyVocab].
func (e *noisy) logits(ids []int32, visit uint64) []float64 {
	out := make([]float64, noisyVocab)
	model, off := random(ids), random(ids, visit)
	for id := range out {
		out[id] = model.NormFloat64() + noise*(2*off.Float64()-1)
	}
	return out
}

// random is a source that depends on tokens and on other values.
func random(ids []int32, more ...uint64) *rand.Rand {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, ids) // a hash never fails
	_ = binary.Write(h, binary.LittleEndian, more)
	return rand.New(rand.NewPCG(h.Sum64(), 0))
}

// logprobs are the log-softmax of logits.
func logprobs(logits []float64) []float64 {
	total := 0.0
	for _, l := range logits {
		total += math.Exp(l)
	}
	out := slices.Clone(logits)
	for id := range out {
		out[id] -= math.Log(total)
	}
	return out
}

// sample takes the token where the cumulative probability comes above u, of [0, 1).
func sample(distribution []float64, u float64) (id int32) {
	for i, l := range distribution {
		if math.IsInf(l, -1) {
			continue
		}
		id = int32(i)
		if u -= math.Exp(l); u < 0 {
			break
		}
	}
	return id
}

// likeliest are the n most likely tokens.
func likeliest(distribution []float64, n int) (out []engines.Alternative) {
	for id, l := range distribution {
		out = append(out, engines.Alternative{ID: int32(id), Logprob: float32(l)})
	}
	slices.SortStableFunc(out, func(a, b engines.Alternative) int { return cmp.Compare(b.Logprob, a.Logprob) })
	return out[:n]
}

const faultOf = "AGENTFLY_ENGINETEST_FAULT" // names the fault of TestForks in a process of TestFaultsAreFound

// An engine whose completions fork passes.
func TestForks(t *testing.T) {
	Run(t, func(*testing.T) Subject {
		return Subject{
			Engine: newNoisy(os.Getenv(faultOf)), Vocab: noisyVocab, Version: 3, Decode: Letters{}.Decode, Distribution: true, Apart: 5e-2,
		}
	})
}

// The suite finds each fault also where completions fork.
func TestFaultsAreFound(t *testing.T) {
	for fault, c := range map[string]struct{ test, want string }{
		"one seed":      {"Seed", "another seed has the same tokens"},
		"no seed":       {"Seed", "a point does not hold"},
		"drift":         {"Seed", "a point does not hold"},
		"session":       {"Seed", "a point does not hold"},
		"logprobs":      {"Seed", "Max difference"},
		"greedy":        {"Greedy", "both take the likeliest"},
		"stop left out": {"StopID", "it has nothing that stops it"},
		"stop unseen":   {"StopString", "the token that stops it is the last one"},
		"last stop":     {"StopID", `expected: "stop"`},
		"neutral":       {"Penalties", "a point does not hold"},
		"repetition":    {"Penalties", "a penalty changes the logprobs; prompts: 16"},
		"top":           {"Top", "a point does not hold"},
		"pieces":        {"Stream", "the pieces are the completion"},
		"cancelled":     {"Cancel", "a point does not hold"},
		"failed":        {"UpdateFails", "a point does not hold"},
	} {
		t.Run(fault, func(t *testing.T) {
			p := exec.Command(os.Args[0], fmt.Sprintf("-test.run=^TestForks$/^%s$", c.test))
			p.Env = append(os.Environ(), faultOf+"="+fault)
			out, err := p.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "--- FAIL: TestForks/"+c.test)
			require.Contains(t, string(out), c.want)
		})
	}
}
