package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
	"github.com/agentfly/agentfly/trajectory"
)

type letters = enginetest.Letters

func startToy(t testing.TB, o Options) (*Engine, *toy) {
	t.Helper()
	if o.Decoder == nil {
		o.Decoder = letters{}
	}
	o, err := o.complete()
	require.NoError(t, err)
	m := newToy(o.BlockSize)
	m.weights = o.Version
	e := start(m, toyVocab, o)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.True(t, m.closed)
		s := e.Stats()
		require.Zero(t, s.Running+s.Waiting+s.UsedBlocks, "all places are free at the end")
	})
	return e, m
}

func (m *toy) update(version int32) engines.Weights {
	return engines.Weights{Version: version, Apply: func(context.Context) error { m.weights = version; return nil }}
}

func TestConformanceToy(t *testing.T) {
	for name, o := range map[string]Options{
		"plain":       {MaxModelLen: 1200, Version: 3},
		"small cache": {MaxModelLen: 1200, Version: 3, CacheTokens: 1600, BlockSize: 8, MaxSequences: 9, StepTokens: 20},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Subject {
				e, m := startToy(t, o)
				return enginetest.Subject{
					Engine: e, Vocab: toyVocab, Version: 3, Decode: letters{}.Decode, Running: func() int { return e.Stats().Running + e.Stats().Waiting },
					Weights: func(version int32, err error) engines.Weights {
						if err == nil {
							return m.update(version)
						}
						return engines.Weights{Version: version, Apply: func(context.Context) error { return err }}
					},
				}
			})
		})
	}
}

// require that the completion is what the toy gives token by token, each with the weights of its version.
func requireToy(t testing.TB, r engines.Request, c engines.Completion) {
	t.Helper()
	ids := slices.Clone(r.Prompt)
	for i, id := range c.TokenIDs {
		token, logprob := toyNext(ids, r.Sampling.Temperature, r.Seed, uint64(i), c.Versions[i])
		require.Equal(t, token, id, "%s: token %d", r.ID, i)
		require.Equal(t, logprob, c.Logprobs[i])
		ids = append(ids, id)
	}
}

// Requests with common prefixes come, go and are cancelled while weights change, in a cache that is too small for them.
func TestRandomLoad(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			o := Options{MaxModelLen: 90, BlockSize: 8, CacheTokens: 96 + 64*r.IntN(4), MaxSequences: 1 + r.IntN(12), StepTokens: 12 + r.IntN(40)}
			e, m := startToy(t, o)
			versions := []int32{0, 1, 2, 3, 4, 5, 6}
			var wait sync.WaitGroup
			for worker := range 10 {
				r := rand.New(rand.NewPCG(seed, uint64(worker)))
				wait.Go(func() {
					for i := range 12 {
						request := randomRequest(r, fmt.Sprintf("%d.%d", worker, i))
						ctx, cancel := context.WithCancel(context.Background())
						if r.IntN(4) == 0 {
							ctx, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(2000))*time.Microsecond)
						}
						if i%5 == 0 && len(request.Prompt) > 1 {
							got, err := e.Logprobs(ctx, request.Prompt)
							cancel()
							if err == nil && !slices.ContainsFunc(versions, func(v int32) bool { return slices.Equal(got, toyScores(request.Prompt, v)) }) {
								t.Errorf("request %s: scores of no version: %v", request.ID, got)
							}
							continue
						}
						c, err := e.Generate(ctx, request)
						cancel()
						if err != nil {
							if !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("request %s: %v", request.ID, err)
							}
							continue
						}
						requireToy(t, request, c)
						if len(c.TokenIDs) != min(request.Sampling.MaxTokens, 90-len(request.Prompt)) {
							t.Errorf("request %s: %d tokens", request.ID, len(c.TokenIDs))
						}
					}
				})
			}
			wait.Go(func() {
				for _, version := range versions[1:] {
					time.Sleep(time.Millisecond)
					if err := e.Update(context.Background(), m.update(version)); err != nil {
						t.Error(err)
					}
				}
			})
			wait.Wait()
		})
	}
}

// randomRequest has a prompt out of a few common beginnings.
func randomRequest(r *rand.Rand, id string) engines.Request {
	prompt := make([]int32, 0, 90)
	for range r.IntN(6) {
		piece := r.Int32N(3)
		for i := range int32(9) {
			prompt = append(prompt, piece*100+i)
		}
	}
	for range 1 + r.IntN(10) {
		prompt = append(prompt, r.Int32N(toyVocab))
	}
	return engines.Request{
		ID: id, Prompt: prompt, Seed: r.Uint64(),
		Sampling: engines.Sampling{MaxTokens: 1 + r.IntN(40), Temperature: float64(r.IntN(2)), TopP: 1},
	}
}

// together submits all requests while the loop is held, so that they arrive at once.
func together(t testing.TB, e *Engine, m *toy, requests []engines.Request) []engines.Completion {
	t.Helper()
	out := make([]engines.Completion, len(requests))
	errs := make([]error, len(requests))
	var wait sync.WaitGroup
	require.NoError(t, e.Update(context.Background(), engines.Weights{Version: m.weights, Apply: func(context.Context) error {
		for i, r := range requests {
			wait.Go(func() { out[i], errs[i] = e.Generate(context.Background(), r) })
			for e.Stats().Waiting <= i { // keeps their order
				runtime.Gosched()
			}
		}
		return nil
	}}))
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	return out
}

func numbered(from, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((from + i) % toyVocab)
	}
	return ids
}

// 36 requests in 6 groups: what they share is computed once, in the step in which they all arrive.
func TestPrefixIsComputedOnce(t *testing.T) {
	for _, stepTokens := range []int{4096, 100} { // in one step, and in pieces
		e, m := startToy(t, Options{MaxModelLen: 512, StepTokens: stepTokens})
		var requests []engines.Request
		for i := range 36 {
			prompt := slices.Concat(numbered(0, 224), numbered(700*(1+i/6), 48), numbered(i, 3))
			requests = append(requests, engines.Request{
				ID: fmt.Sprint(i), Prompt: prompt, Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: 4, Temperature: 1, TopP: 1},
			})
		}
		out := together(t, e, m, requests)
		for i, c := range out {
			requireToy(t, requests[i], c)
			want := 272
			if i%6 == 0 {
				want = 224
			}
			if i == 0 {
				want = 0
			}
			require.Equal(t, want, c.CachedTokens, i)
		}
		s := e.Stats()
		require.Equal(t, int64(224+6*48+36*3+36*3), s.ComputedTokens) // 36 * 3 more: the first three sampled tokens of each
		require.Equal(t, int64(36*4), s.GeneratedTokens)
		require.Equal(t, int64(36*275), s.PromptTokens)
		require.Equal(t, int64(30*272+5*224), s.CachedTokens)
		require.Zero(t, s.Preemptions)
		if stepTokens == 4096 {
			require.Equal(t, int64(4), s.Steps)
		}

		// The next turn of one of them computes only what is new.
		next := slices.Concat(requests[7].Prompt, out[7].TokenIDs, numbered(9, 20))
		c, err := e.Generate(context.Background(), engines.Request{ID: "next", Prompt: next, Sampling: engines.Sampling{MaxTokens: 2, TopP: 1}})
		require.NoError(t, err)
		require.Equal(t, 272, c.CachedTokens) // 275 + 3 computed tokens: 17 full blocks
		require.Equal(t, s.ComputedTokens+int64(len(next)-272)+1, e.Stats().ComputedTokens)
	}
}

// A prompt of whole blocks is shared to its end: a group's other samples compute its last token only.
func TestWholeBlocksAreShared(t *testing.T) {
	e, m := startToy(t, Options{MaxModelLen: 128, BlockSize: 8, StepTokens: 64})
	var requests []engines.Request
	for i := range 32 {
		requests = append(requests, engines.Request{ID: fmt.Sprint(i), Prompt: numbered(0, 64), Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: 2, TopP: 1}})
	}
	for i, c := range together(t, e, m, requests) {
		requireToy(t, requests[i], c)
		if i > 0 {
			require.Equal(t, 63, c.CachedTokens, i)
		}
	}
	require.Equal(t, int64(64+31+32), e.Stats().ComputedTokens)
}

// What forks off a trajectory finds the blocks of its prompt, of what it sampled and of what it observed: a tree computes its trunk once.
func TestAForkFindsTheBlocksOfItsTrunk(t *testing.T) {
	e, _ := startToy(t, Options{MaxModelLen: 256, BlockSize: 8, StepTokens: 64})
	ask := func(id string, prompt []int32, seed uint64) engines.Completion {
		r := engines.Request{ID: id, Prompt: prompt, Seed: seed, Sampling: engines.Sampling{MaxTokens: 20, Temperature: 1, TopP: 1}}
		c, err := e.Generate(context.Background(), r)
		require.NoError(t, err)
		requireToy(t, r, c)
		return c
	}
	prompt := numbered(0, 40)
	first := ask("trunk, turn 0", prompt, 1)
	trunk := slices.Concat(prompt, first.TokenIDs, numbered(3, 30)) // with the result of its call
	require.NotZero(t, ask("trunk, turn 1", trunk, 2).CachedTokens)
	computed := e.Stats().ComputedTokens
	for i := range 4 {
		c := ask(fmt.Sprint("fork ", i), trunk, uint64(10+i))
		require.Equal(t, (len(trunk)-1)/8*8, c.CachedTokens, "all whole blocks before the fork")
		require.LessOrEqual(t, e.Stats().ComputedTokens-computed, int64(8+len(c.TokenIDs)))
		computed = e.Stats().ComputedTokens
	}
	within := slices.Concat(prompt, first.TokenIDs[:11]) // it forks within a turn
	c := ask("fork within", within, 20)
	require.Equal(t, (len(within)-1)/8*8, c.CachedTokens)
	require.LessOrEqual(t, e.Stats().ComputedTokens-computed, int64(8+len(c.TokenIDs)))
}

func TestUpdateForgetsTheCache(t *testing.T) {
	e, m := startToy(t, Options{MaxModelLen: 128})
	r := engines.Request{ID: "r", Prompt: numbered(0, 60), Sampling: engines.Sampling{MaxTokens: 2, TopP: 1}}
	for i, want := range []int{0, 48, 0, 48} {
		if i == 2 {
			require.NoError(t, e.Update(context.Background(), m.update(7)))
			require.Equal(t, int32(7), e.Stats().Version)
		}
		c, err := e.Generate(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, want, c.CachedTokens)
		requireToy(t, r, c)
	}
}

// A failed step fails its own requests; what it computed is not found again, what was there before is.
func TestStepError(t *testing.T) {
	e, m := startToy(t, Options{MaxModelLen: 256})
	request := func(n int) engines.Request {
		return engines.Request{ID: fmt.Sprint(n), Prompt: numbered(0, n), Sampling: engines.Sampling{MaxTokens: 3, TopP: 1}}
	}
	_, err := e.Generate(context.Background(), request(33))
	require.NoError(t, err)
	m.mu.Lock()
	m.fail = 1
	m.mu.Unlock()
	_, err = e.Generate(context.Background(), request(100))
	require.ErrorIs(t, err, errToy)
	require.EqualError(t, err, "local: request 100: step failed: toy step failed")
	c, err := e.Generate(context.Background(), request(100))
	require.NoError(t, err)
	require.Equal(t, 32, c.CachedTokens)
	requireToy(t, request(100), c)
}

func TestUpdateErrors(t *testing.T) {
	e, m := startToy(t, Options{MaxModelLen: 64, Version: 2})
	ctx := context.Background()
	require.EqualError(t, e.Update(ctx, engines.Weights{Version: 3, Path: "x"}),
		"local: update: Apply is missing; this engine shares the trainer's parameters and reads no files")
	err := e.Update(ctx, engines.Weights{Version: 3, Apply: func(context.Context) error { panic("oh") }})
	require.ErrorContains(t, err, "local: update to version 3: apply panicked: oh")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	err = e.Update(cancelled, m.update(4)) // either it came too late or it was in time
	require.Equal(t, err == nil, m.weights == 4)
	c, err := e.Generate(ctx, engines.Request{ID: "r", Prompt: []int32{1}, Sampling: engines.Sampling{MaxTokens: 2, TopP: 1}})
	require.NoError(t, err)
	require.Equal(t, []int32{m.weights, m.weights}, c.Versions)
}

func TestOptions(t *testing.T) {
	for text, o := range map[string]Options{
		"MaxModelLen is 1":         {MaxModelLen: 1},
		"BlockSize is 12":          {MaxModelLen: 9, BlockSize: 12},
		"do not hold one sequence": {MaxModelLen: 100, CacheTokens: 99},
		"MaxSequences is -1":       {MaxModelLen: 9, MaxSequences: -1},
		"StepTokens is 5":          {MaxModelLen: 9, MaxSequences: 6, StepTokens: 5},
		"Threads is -1":            {MaxModelLen: 9, Threads: -1},
	} {
		_, err := New(nil, o)
		require.ErrorContains(t, err, text)
	}
	o, err := Options{MaxModelLen: 40000}.complete()
	require.NoError(t, err)
	require.Equal(t, Options{MaxModelLen: 40000, BlockSize: 16, CacheTokens: 40015, MaxSequences: 64, StepTokens: 512}, o)
}

func TestRefusedRequests(t *testing.T) {
	o, err := Options{MaxModelLen: 64}.complete()
	require.NoError(t, err)
	e := start(newToy(16), toyVocab, o)
	defer e.Close()
	r := engines.Request{ID: "r7", Prompt: []int32{1, toyVocab}, Sampling: engines.Sampling{MaxTokens: 2, TopP: 1}}
	_, err = e.Generate(context.Background(), r)
	require.EqualError(t, err, "local: request r7: engines: the request was refused: prompt token 1 is 5000, allowed are 0 to 4999")
	r.Prompt, r.Sampling.Stop = []int32{1}, []string{"x"}
	_, err = e.Generate(context.Background(), r)
	require.ErrorContains(t, err, "stop strings need a decoder")
}

// A stop string may begin anywhere in earlier tokens and end anywhere in the last one.
func TestStopStringAcrossTokens(t *testing.T) {
	s := &sequence{sampling: engines.Sampling{MaxTokens: 9, Stop: []string{"</call>", "zz"}}}
	d := words{"ab<", "/ca", "ll", ">cd", "<", "</call"}
	for i, want := range []bool{false, false, false, true} {
		require.Equal(t, want, s.append(int32(i), 0, 0, d, 100))
	}
	require.Equal(t, trajectory.FinishStop, s.completion.FinishReason)
	require.Equal(t, []int32{0, 1, 2, 3}, s.completion.TokenIDs)
	s = &sequence{sampling: engines.Sampling{MaxTokens: 3, Stop: []string{"</call>"}}}
	require.False(t, s.append(5, 0, 0, d, 100))
	require.False(t, s.append(4, 0, 0, d, 100))
	require.True(t, s.append(3, 0, 0, d, 100))
	require.Equal(t, trajectory.FinishLength, s.completion.FinishReason)
}

type words []string

func (w words) Bytes(id int32) []byte { return []byte(w[id]) }

func TestIdleDoesNothingAndCloseJoins(t *testing.T) {
	before := runtime.NumGoroutine()
	e, m := startToy(t, Options{MaxModelLen: 64})
	_, err := e.Generate(context.Background(), engines.Request{ID: "r", Prompt: []int32{1}, Sampling: engines.Sampling{MaxTokens: 5, TopP: 1}})
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond)
	m.mu.Lock()
	require.Equal(t, 5, m.steps)
	m.mu.Unlock()
	require.NoError(t, e.Close())
	for range 1000 { // Eventually would add goroutines of its own
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// A completion that is cut anywhere and goes on is the one that was not cut, under the weights of each of its parts.
func TestACompletionGoesOn(t *testing.T) {
	e, m := startToy(t, Options{MaxModelLen: 200, Version: 3})
	r := engines.Request{ID: "r", Prompt: numbered(1, 20), Seed: 9, Sampling: engines.Sampling{MaxTokens: 12, Temperature: 1, TopP: 1}}
	whole, err := e.Generate(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, whole.TokenIDs, 12)
	stop := letters{}.Decode(whole.TokenIDs[5:7])[1:3] // the second byte of one token and the first of the next
	for cut := 1; cut < 12; cut++ {
		rest := r
		rest.Prompt, rest.Sampled, rest.Sampling.MaxTokens = slices.Concat(r.Prompt, whole.TokenIDs[:cut]), cut, 12-cut
		c, err := e.Generate(t.Context(), rest)
		require.NoError(t, err)
		require.Equal(t, whole.TokenIDs[cut:], c.TokenIDs)
		require.Equal(t, whole.Logprobs[cut:], c.Logprobs)
		if cut <= 6 {
			rest.Sampling.Stop = []string{stop}
			c, err = e.Generate(t.Context(), rest)
			require.NoError(t, err)
			require.Equal(t, trajectory.FinishStop, c.FinishReason)
			require.LessOrEqual(t, len(c.TokenIDs), 7-cut)
		}
	}
	require.NoError(t, e.Update(t.Context(), m.update(4)))
	rest := r
	rest.Prompt, rest.Sampled = slices.Concat(r.Prompt, whole.TokenIDs[:5]), 5
	c, err := e.Generate(t.Context(), rest)
	require.NoError(t, err)
	token, _ := toyNext(rest.Prompt, 1, 9, 5, 4)
	require.Equal(t, token, c.TokenIDs[0])
	rest.Sampled = 25
	_, err = e.Generate(t.Context(), rest)
	require.ErrorContains(t, err, "25 tokens of the prompt were sampled, it has 25")
}

// Whether a row depends on what is computed beside it is the cache's to say: on a device it does.
func TestBatchInvarianceIsTheCaches(t *testing.T) {
	for _, varies := range []bool{false, true} {
		o, err := Options{MaxModelLen: 100}.complete()
		require.NoError(t, err)
		m := newToy(o.BlockSize)
		m.varies = varies
		e := start(m, toyVocab, o)
		require.Equal(t, !varies, e.Capabilities().BatchInvariant)
		require.NoError(t, e.Close())
		require.Equal(t, !varies, e.Capabilities().BatchInvariant, "also when it is closed")
	}
}
