//go:build torch

package local

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
)

func tinyModel(t testing.TB) *cgo.Model {
	t.Helper()
	c := cgo.ModelConfig{
		VocabSize: 600, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 6, NumKVHeads: 2, HeadDim: 8,
		RMSNormEps: 1e-5, QKVBias: true, QKNorm: true,
	}
	for i := range 4 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(1000, -float64(i)/4)))
	}
	m, err := cgo.NewModel(c, "cpu")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, m.Init(1, 0.15))
	return m
}

func startModel(t testing.TB, m *cgo.Model, o Options) *Engine {
	t.Helper()
	e, err := New(m, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func TestConformance(t *testing.T) {
	start := cgo.LiveHandles()
	enginetest.Run(t, func(t *testing.T) enginetest.Subject {
		e := startModel(t, tinyModel(t), Options{MaxModelLen: 1000, Version: 5, Decoder: letters{}, BlockSize: 8})
		return enginetest.Subject{
			Engine: e, Vocab: 600, Version: 5, Decode: letters{}.Decode, Distribution: true, Running: func() int { return e.Stats().Running + e.Stats().Waiting },
		}
	})
	require.Equal(t, start, cgo.LiveHandles())
}

// TestPenaltiesAgreeWithTrainer: the logprob of each sampled token is that of the trainer's distribution after the penalties, computed anew.
func TestPenaltiesAgreeWithTrainer(t *testing.T) {
	const vocab = 600
	m := tinyModel(t)
	e := startModel(t, m, Options{MaxModelLen: 200})
	for _, temperature := range []float64{1, 0} {
		s := engines.Sampling{MaxTokens: 14, Temperature: temperature, TopP: 1, MinTokens: 9, Presence: -2, Frequency: -1.5, StopIDs: numbered(0, 300)}
		r := engines.Request{ID: "a", Prompt: numbered(1, 20), Seed: 8, Sampling: s}
		c, err := e.Generate(context.Background(), r)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(c.TokenIDs), 9)
		again := 0
		for i, id := range c.TokenIDs {
			lp := nextLogprobs(t, m, slices.Concat(r.Prompt, c.TokenIDs[:i]))
			total, own, best := 0.0, 0.0, math.Inf(-1)
			for v := range int32(vocab) {
				z, count := float64(lp[v]), 0
				for _, sampled := range c.TokenIDs[:i] {
					if sampled == v {
						count++
					}
				}
				if count > 0 {
					z -= s.Presence + s.Frequency*float64(count)
				}
				if i < s.MinTokens && v < 300 {
					require.NotEqual(t, v, id)
					continue
				}
				total += math.Exp(z)
				best = max(best, z)
				if v == id {
					own = z
				}
			}
			require.InDelta(t, own-math.Log(total), c.Logprobs[i], 1e-4, "token %d", i)
			if temperature == 0 {
				require.InDelta(t, best, own, 1e-4)
			}
			if slices.Contains(c.TokenIDs[:i], id) {
				again++
			}
		}
		require.Positive(t, again, "negative penalties make tokens come again")
	}
}

// trainer returns the trainer's logprobs of a completion.
// evens is a scripted constraint: even tokens, then one of 7 and 9, and the end.
type evens struct{ left int }

func (c evens) Match() engines.Matcher { return &c }

func (c *evens) Allowed() (tokens []uint64, end bool, err error) {
	switch c.left {
	case 0:
		return nil, true, nil
	case 1:
		return []uint64{1<<7 | 1<<9}, false, nil
	}
	return slices.Repeat([]uint64{0x5555555555555555}, 10), false, nil // beyond the vocabulary too
}

func (c *evens) Take(int32) error {
	c.left--
	return nil
}

// TestConstraintAgreesWithTrainer: the logprob of each sampled token is that of the trainer's distribution over what is allowed.
func TestConstraintAgreesWithTrainer(t *testing.T) {
	m := tinyModel(t)
	e := startModel(t, m, Options{MaxModelLen: 200})
	for _, temperature := range []float64{1, 0} {
		r := engines.Request{ID: "a", Prompt: numbered(1, 20), Seed: 8, Constraint: evens{6}, Sampling: engines.Sampling{MaxTokens: 14, Temperature: temperature, TopP: 1}}
		c, err := e.Generate(context.Background(), r)
		require.NoError(t, err)
		require.Len(t, c.TokenIDs, 6)
		for i, id := range c.TokenIDs {
			total, own, best := 0.0, 0.0, math.Inf(-1)
			for v, lp := range nextLogprobs(t, m, slices.Concat(r.Prompt, c.TokenIDs[:i])) {
				if i < 5 && v%2 == 1 || i == 5 && v != 7 && v != 9 {
					continue
				}
				total, best = total+math.Exp(float64(lp)), max(best, float64(lp))
				if int32(v) == id {
					own = float64(lp)
				}
			}
			require.Negative(t, own)
			require.InDelta(t, own-math.Log(total), c.Logprobs[i], 5e-5)
			if temperature == 0 {
				require.Equal(t, best, own)
			}
		}
	}
}

// nextLogprobs are the trainer's logprobs of every token behind ids.
func nextLogprobs(t testing.TB, m *cgo.Model, ids []int32) []float32 {
	t.Helper()
	b := &cgo.Batch{Tokens: ids, SegmentStart: []int32{0}, SegmentLength: []int32{int32(len(ids))}, SegmentParent: []int32{-1}, Temperature: 1}
	for k := range ids {
		b.Positions = append(b.Positions, int32(k))
	}
	for v := range int32(m.Config().VocabSize) {
		b.RowToken, b.RowTarget = append(b.RowToken, int32(len(ids)-1)), append(b.RowTarget, v)
	}
	lp, _, err := m.Logprobs(b)
	require.NoError(t, err)
	return lp
}

func trainer(t testing.TB, m *cgo.Model, prompt, completion []int32) []float32 {
	t.Helper()
	ids := slices.Concat(prompt, completion)
	b := &cgo.Batch{Tokens: ids, SegmentStart: []int32{0}, SegmentLength: []int32{int32(len(ids))}, SegmentParent: []int32{-1}, Temperature: 1}
	for i := range ids {
		b.Positions = append(b.Positions, int32(i))
		if i >= len(prompt) {
			b.RowToken, b.RowTarget = append(b.RowToken, int32(i-1)), append(b.RowTarget, ids[i])
		}
	}
	lp, _, err := m.Logprobs(b)
	require.NoError(t, err)
	return lp
}

// Sampled logprobs are the trainer's, before and after the weights move; a completion that spans the move has each token's
// logprob from the weights of its version.
func TestEngineAgreesWithTrainer(t *testing.T) {
	m := tinyModel(t)
	e := startModel(t, m, Options{MaxModelLen: 700})
	ctx := context.Background()
	old := map[string][]float32{}
	for _, p := range m.Parameters() {
		values, err := m.Parameter(p.Name)
		require.NoError(t, err)
		old[p.Name] = values
	}
	request := engines.Request{ID: "a", Prompt: numbered(1, 50), Seed: 3, Sampling: engines.Sampling{MaxTokens: 600, Temperature: 1, TopP: 1}}
	var c engines.Completion
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { c, err = e.Generate(ctx, request) })
	for e.Stats().GeneratedTokens < 20 {
		runtime.Gosched()
	}
	require.NoError(t, e.Update(ctx, engines.Weights{Version: 1, Apply: func(context.Context) error { return m.Init(2, 0.15) }}))
	wait.Wait()
	require.NoError(t, err)
	require.Len(t, c.TokenIDs, 600)
	cut := slices.Index(c.Versions, 1)
	require.Greater(t, cut, 19, "the update came in the middle")
	after := trainer(t, m, request.Prompt, c.TokenIDs)
	require.InDeltaSlice(t, after[cut:], c.Logprobs[cut:], 2e-5)
	require.NoError(t, e.Update(ctx, engines.Weights{Version: 2, Apply: func(context.Context) error {
		for _, p := range m.Parameters() {
			if err := m.SetParameter(p.Name, cgo.F32, bytesOf(old[p.Name]), p.Shape); err != nil {
				return err
			}
		}
		m.Changed()
		return nil
	}}))
	before := trainer(t, m, request.Prompt, c.TokenIDs)
	require.InDeltaSlice(t, before[:cut], c.Logprobs[:cut], 2e-5)
	require.NotEqual(t, before[cut], after[cut])

	// With the old weights back, the same request begins with the same bits.
	again, err := e.Generate(ctx, request)
	require.NoError(t, err)
	require.Equal(t, c.TokenIDs[:cut], again.TokenIDs[:cut])
	require.Equal(t, c.Logprobs[:cut], again.Logprobs[:cut])
}

func bytesOf(values []float32) []byte {
	var b []byte
	for _, v := range values {
		u := math.Float32bits(v)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

// The same bits alone, among 32, from a warm prefix cache, and after preemption in a cache that is too small.
func TestSameBits(t *testing.T) {
	m := tinyModel(t)
	request := func(i int) engines.Request {
		return engines.Request{
			ID: fmt.Sprint(i), Prompt: slices.Concat(numbered(0, 40), numbered(3*i, 5+i)), Seed: uint64(i),
			Sampling: engines.Sampling{MaxTokens: 40, Temperature: 1.3, TopP: 0.95, TopK: 100},
		}
	}
	alone := startModel(t, m, Options{MaxModelLen: 200})
	var want []engines.Completion
	for i := range 32 {
		c, err := alone.Generate(context.Background(), request(i))
		require.NoError(t, err)
		want = append(want, c)
	}
	require.Zero(t, want[0].CachedTokens)
	require.Equal(t, 32, want[1].CachedTokens)
	for name, o := range map[string]Options{
		"together":  {MaxModelLen: 200},
		"in pieces": {MaxModelLen: 200, MaxSequences: 20, StepTokens: 23},
		"preempted": {MaxModelLen: 200, BlockSize: 8, CacheTokens: 640},
	} {
		t.Run(name, func(t *testing.T) {
			e := startModel(t, m, o)
			var wait sync.WaitGroup
			got := make([]engines.Completion, 32)
			for i := range got {
				wait.Go(func() {
					c, err := e.Generate(context.Background(), request(i))
					if err != nil {
						t.Error(err)
					}
					got[i] = c
				})
			}
			wait.Wait()
			for i := range got {
				require.Equal(t, want[i].TokenIDs, got[i].TokenIDs, i)
				require.Equal(t, want[i].Logprobs, got[i].Logprobs, i)
			}
			if name == "preempted" {
				require.Positive(t, e.Stats().Preemptions)
			}
		})
	}
}

// Damaged weights fail the requests; the engine serves on when good ones come.
func TestNonFiniteLogits(t *testing.T) {
	m := tinyModel(t)
	e := startModel(t, m, Options{MaxModelLen: 64})
	good, err := m.Parameter("model.norm.weight")
	require.NoError(t, err)
	set := func(version int32, values []float32) {
		require.NoError(t, e.Update(context.Background(), engines.Weights{Version: version, Apply: func(context.Context) error {
			defer m.Changed()
			return m.SetParameter("model.norm.weight", cgo.F32, bytesOf(values), []int64{48})
		}}))
	}
	bad := slices.Clone(good)
	bad[7] = float32(math.NaN())
	set(1, bad)
	r := engines.Request{ID: "r", Prompt: numbered(1, 20), Sampling: engines.Sampling{MaxTokens: 3, Temperature: 1, TopP: 1}}
	_, err = e.Generate(context.Background(), r)
	require.ErrorIs(t, err, cgo.ErrNonFinite)
	set(2, good)
	_, err = e.Generate(context.Background(), r)
	require.NoError(t, err)
}
