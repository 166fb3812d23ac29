//go:build torch

package bench_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// bench is SmolLM2 behind the local engine. Prompts of different seeds share no prefix.
type bench struct {
	t      *testing.T
	policy *policy.Policy
	out    *json.Encoder
	seed   int32
	dtype  string // of the engine that runs
}

// newBench skips unless `make bench-engine` runs: AGENTFLY_BENCH_OUT names the file that takes one JSON line a figure.
func newBench(t *testing.T) *bench {
	path := os.Getenv("AGENTFLY_BENCH_OUT")
	if path == "" {
		t.Skip("minutes on an idle machine: run by make bench-engine, which sets AGENTFLY_BENCH_OUT")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	p, err := policy.Load("HuggingFaceTB/SmolLM2-135M-Instruct", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return &bench{t: t, policy: p, out: json.NewEncoder(f)}
}

func (b *bench) start(dtype string) *local.Engine {
	b.dtype = dtype
	e, err := local.New(b.policy.Model, local.Options{MaxModelLen: 2048, Threads: 2, BFloat16: dtype == "bfloat16"})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, e.Close()) })
	return e
}

// prompt returns n ids that no other call returned.
func (b *bench) prompt(n int) []int32 {
	b.seed++
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = 1000 + (b.seed*7919+int32(i)*104729)%40000
	}
	return ids
}

// generate samples n tokens after each prompt, all requests at once, and returns completions and seconds.
func (b *bench) generate(e *local.Engine, n int, prompts [][]int32) ([]engines.Completion, float64) {
	completions := make([]engines.Completion, len(prompts))
	var wait sync.WaitGroup
	start := time.Now()
	for i := range prompts {
		wait.Go(func() {
			c, err := e.Generate(context.Background(), engines.Request{
				ID: fmt.Sprint(i), Prompt: prompts[i], Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: n, Temperature: 1, TopP: 1},
			})
			if err != nil {
				b.t.Error(err)
			}
			completions[i] = c
		})
	}
	wait.Wait()
	return completions, time.Since(start).Seconds()
}

func (b *bench) prompts(count, n int) [][]int32 {
	var all [][]int32
	for range count {
		all = append(all, b.prompt(n))
	}
	return all
}

func (b *bench) report(what string, sequences int, value float64) {
	b.t.Logf("%s %s at %d sequences: %.4g", b.dtype, what, sequences, value)
	require.NoError(b.t, b.out.Encode(map[string]any{"engine": "agentfly", "dtype": b.dtype, "what": what, "sequences": sequences, "value": value}))
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

const benchRepeats = 3 // of each measurement; the median counts

// benchTypes are those of the engine's matrices; BENCH_DTYPES names fewer.
var benchTypes = strings.Fields(cmp.Or(os.Getenv("BENCH_DTYPES"), "float32 bfloat16"))

// benchSteps is how many decode steps are timed.
const benchSteps = 32

// Decode is the median of 32 decode steps, each timed by itself: those in which every sequence gets a token and no prompt is
// computed. One round of three: make bench-engine runs the other side between them.
func TestBenchThroughput(t *testing.T) {
	b := newBench(t)
	for _, dtype := range benchTypes {
		e := b.start(dtype)
		b.generate(e, 8, b.prompts(32, 100)) // packs the weights
		for _, sequences := range []int{1, 8, 32} {
			_, first := b.generate(e, 1, b.prompts(sequences, 100))
			steps, err := decodeSteps(b.arrivals(e, b.prompts(sequences, 100)), benchSteps)
			require.NoError(t, err)
			b.report("prefill", sequences, float64(sequences*100)/first)
			b.report("decode", sequences, float64(sequences)/median(steps))
			b.report("decode_spread", sequences, spread(steps))
		}
	}
}

// arrivals samples more tokens after each prompt than are timed, all requests at once, and returns when each came: [sequence][token]
// seconds. Prompts that are computed later begin later, at most one step for each prompt.
func (b *bench) arrivals(e *local.Engine, prompts [][]int32) [][]float64 {
	times := make([][]float64, len(prompts))
	var wait sync.WaitGroup
	start := time.Now()
	for i := range prompts {
		wait.Go(func() {
			q := engines.Request{ID: fmt.Sprint(i), Prompt: prompts[i], Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: 1 + benchSteps + len(prompts), Temperature: 1, TopP: 1}}
			_, err := e.Stream(context.Background(), q, engines.Detail{}, func(tokens []engines.Token) {
				for range tokens {
					times[i] = append(times[i], time.Since(start).Seconds())
				}
			})
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	wait.Wait()
	return times
}

// decodeSteps are the seconds of n decode steps in a row: from the moment when every sequence has its first token, each until
// the last of the sequences got its next one.
func decodeSteps(times [][]float64, n int) ([]float64, error) {
	begun := 0.0
	for _, own := range times {
		if len(own) == 0 {
			return nil, errors.New("a sequence has no token")
		}
		begun = max(begun, own[0])
	}
	next := make([]int, len(times)) // of each sequence, the first token after begun
	for i, own := range times {
		next[i], _ = slices.BinarySearch(own, math.Nextafter(begun, math.Inf(1)))
	}
	steps := make([]float64, n)
	at := begun
	for k := range steps {
		end := at
		for i, own := range times {
			if next[i]+k >= len(own) {
				return nil, fmt.Errorf("sequence %d ends in decode step %d of %d", i, k, n)
			}
			end = max(end, own[next[i]+k])
		}
		steps[k], at = end-at, end
	}
	return steps, nil
}

// spread is the slow tenth of some times over their median.
func spread(times []float64) float64 {
	times = slices.Sorted(slices.Values(times))
	return times[len(times)*9/10] / median(times)
}

func TestDecodeSteps(t *testing.T) {
	// The second prompt is computed in the step in which the first sequence decodes: its steps count from there.
	steps, err := decodeSteps([][]float64{{1, 3, 4, 5, 6}, {3.1, 4.2, 5.1, 6.3}}, 3)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{1.1, 0.9, 1.2}, steps, 1e-9)
	steps, err = decodeSteps([][]float64{{1, 3, 6}}, 2)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{2, 3}, steps, 1e-9)
	_, err = decodeSteps([][]float64{{1, 3, 6}}, 3)
	require.EqualError(t, err, "sequence 0 ends in decode step 2 of 3")
	_, err = decodeSteps([][]float64{{1}, nil}, 1)
	require.EqualError(t, err, "a sequence has no token")
	require.InDelta(t, 4.0/2, spread([]float64{2, 1, 2, 4, 2, 2, 2, 2, 2, 2}), 1e-9)
}

// The shapes of RL: a group shares its prompt, and a turn shares its history.
func TestBenchShapes(t *testing.T) {
	b := newBench(t)
	e := b.start("float32")
	b.generate(e, 8, b.prompts(32, 100))
	var single, group, whole []float64
	var groupRows float64
	for range benchRepeats {
		_, s := b.generate(e, 1, b.prompts(1, 512))
		before := e.Stats().ComputedTokens
		_, g := b.generate(e, 1, slices.Repeat(b.prompts(1, 512), 32))
		groupRows = float64(e.Stats().ComputedTokens - before)
		_, w := b.generate(e, 64, slices.Repeat(b.prompts(1, 512), 32))
		single, group, whole = append(single, s), append(group, g), append(whole, w)
	}
	b.report("prefill_512_seconds", 1, median(single))
	b.report("group_512_seconds", 32, median(group))
	b.report("group_512_rows", 32, groupRows)
	b.report("group_512_64_seconds", 32, median(whole))

	// Three turns: the third has a history of 1,000 tokens, of which the second turn computed all but its last sample.
	history := b.prompt(940)
	for range 2 {
		c, _ := b.generate(e, 20, [][]int32{history})
		history = slices.Concat(history, c[0].TokenIDs, b.prompt(10))
	}
	require.Len(t, history, 1000)
	third := slices.Concat(history, b.prompt(20))
	before := e.Stats().ComputedTokens
	c, seconds := b.generate(e, 1, [][]int32{third})
	rows := e.Stats().ComputedTokens - before
	b.report("third_turn_rows", 1, float64(rows))
	b.report("third_turn_seconds", 1, seconds)
	require.Equal(t, int64(len(third)-c[0].CachedTokens), rows)
	require.Less(t, rows, int64(10+20+1+16), "new tokens, the last sample, and less than a block")
}

// Over 10,000 tokens sampled at temperature 1 the engine's and the trainer's logprobs are at most 1e-4 apart, 1e-5 on
// average; with both in bfloat16 1e-3 on average. Of an engine in bfloat16 against a trainer in float32 the gap is only measured.
func TestBenchMismatch(t *testing.T) {
	b := newBench(t)
	for _, dtype := range benchTypes {
		s := b.sampled(b.start(dtype))
		greatest, mean := b.mismatch(s, "mismatch")
		if dtype == "float32" {
			require.Less(t, greatest, 1e-4)
			require.Less(t, mean, 1e-5)
			continue
		}
		require.NoError(t, b.policy.Model.SetDType(cgo.BF16))
		_, mean = b.mismatch(s, "mismatch_half")
		require.Less(t, mean, 1e-3)
		require.NoError(t, b.policy.Model.SetDType(cgo.F32))
	}
}

// sampledTokens are completions with their prompts.
type sampledTokens struct {
	prompts     [][]int32
	completions []engines.Completion
}

func (b *bench) sampled(e *local.Engine) sampledTokens {
	const sequences, n = 40, 256
	prompts := b.prompts(sequences, 20)
	completions, _ := b.generate(e, n, prompts)
	for _, c := range completions {
		require.Len(b.t, c.TokenIDs, n)
	}
	return sampledTokens{prompts, completions}
}

// mismatch holds the engine's logprobs against those of the trainer's forward.
func (b *bench) mismatch(s sampledTokens, what string) (greatest, mean float64) {
	var sum, bias float64
	n := 0
	for i, c := range s.completions {
		lp, _, err := trainer.LogprobsOf(b.policy.Model, slices.Concat(s.prompts[i], c.TokenIDs), 1)
		require.NoError(b.t, err)
		for j, v := range c.Logprobs {
			d := float64(v) - float64(lp[len(s.prompts[i])-1+j])
			greatest, sum, bias = max(greatest, math.Abs(d)), sum+math.Abs(d), bias+d
			n++
		}
	}
	sequences := len(s.completions)
	b.report(what+"_tokens", sequences, float64(n))
	b.report(what+"_max", sequences, greatest)
	b.report(what+"_mean", sequences, sum/float64(n))
	b.report(what+"_bias", sequences, bias/float64(n))
	return greatest, sum / float64(n)
}
