package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// counted is an engine like the local one: a token depends on those before it, the seed, its number in the completion and
// the version, and nothing else. Between two tokens anything may happen.
type counted struct {
	engines.Engine // nil
	mu             sync.RWMutex
	version        int32
	between        func() // two tokens; nil: nothing
}

func (c *counted) Generate(_ context.Context, r engines.Request) (engines.Completion, error) {
	var out engines.Completion
	ids := append([]int32(nil), r.Prompt...)
	for range r.Sampling.MaxTokens {
		if c.between != nil {
			c.between()
		}
		c.mu.RLock()
		h := fnv.New64a()
		for _, id := range ids {
			_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
		}
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, r.Seed))
		_, _ = h.Write([]byte{byte(r.Sampled + len(out.TokenIDs)), byte(c.version)})
		id := int32(h.Sum64() % 1000)
		ids = append(ids, id)
		out.TokenIDs, out.Logprobs, out.Versions = append(out.TokenIDs, id), append(out.Logprobs, -float32(id)/7), append(out.Versions, c.version)
		c.mu.RUnlock()
		if id < 20 {
			out.FinishReason = trajectory.FinishStop
			return out, nil
		}
	}
	out.FinishReason = trajectory.FinishLength
	return out, nil
}

func (c *counted) Update(_ context.Context, w engines.Weights) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = w.Version
	return nil
}

func (c *counted) Close() error { return nil }

// recordTurns samples turns of a trajectory.
func recordTurns(t *testing.T, e engines.Engine, id string, turns int, sampling engines.Sampling) *trajectory.Trajectory {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2, int32(len(id))})
	tr := &trajectory.Trajectory{ID: id, Samples: []*trajectory.Sample{s}}
	for k := range turns {
		turn := trajectory.Turn{CompletionStart: s.Len(), Seed: uint64(k)}
		c, err := e.Generate(t.Context(), engines.Request{ID: fmt.Sprint(id, "-", k), Prompt: s.TokenIDs, Seed: turn.Seed, Sampling: sampling})
		if err != nil {
			t.Error(err)
			return tr
		}
		if err := s.AppendResponse(c.TokenIDs, c.Logprobs, c.Versions); err != nil {
			t.Error(err)
		}
		turn.CompletionEnd, turn.FinishReason = s.Len(), c.FinishReason
		s.AppendObservation([]int32{5, 6})
		turn.ObservationEnd = s.Len()
		tr.Turns = append(tr.Turns, turn)
	}
	return tr
}

// Completions that went on over updates at random moments are sampled again, whatever order they come in.
func TestCompletionsAreSampledAgainWithTheirWeights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const updates = 6
	sampling := engines.Sampling{MaxTokens: 30}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	first := &counted{}
	done := int32(0)
	first.between = func() { // now and then the weights change
		mu.Lock()
		defer mu.Unlock()
		if done < updates && random.IntN(40) == 0 {
			done++
			_ = first.Update(t.Context(), engines.Weights{Version: done}) // never fails
		}
	}
	recorded := make([]*trajectory.Trajectory, 12)
	var all sync.WaitGroup
	for i := range recorded {
		all.Go(func() { recorded[i] = recordTurns(t, first, fmt.Sprint("t", i), 4, sampling) })
	}
	all.Wait()
	require.Positive(t, done)

	second := &counted{}
	e := NewEngine(second, 0)
	e.begun = func(int32) {}
	for _, tr := range recorded {
		e.Expect(tr)
		e.count(tr)
	}
	again := make([]*trajectory.Trajectory, len(recorded))
	for i := range recorded {
		all.Go(func() { again[i] = recordTurns(t, e, fmt.Sprint("t", i), 4, sampling) })
	}
	for v := range done {
		require.NoError(t, e.Update(t.Context(), engines.Weights{Version: v + 1}))
	}
	all.Wait()
	require.Equal(t, recorded, again)
}

// A trajectory of several samples replays as one of a single sample does.
func TestATrajectoryOfSeveralSamplesIsSampledAgain(t *testing.T) {
	r := rollouttest.Summing(t)
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "2, 3 and 1?", "6")}
	want := r.Sample(t.Context(), place)
	require.Len(t, want.Samples, 2)
	replay := *r
	replay.Replay = true
	engine := NewEngine(r.Engine, 7)
	engine.Expect(want)
	replay.Engine = engine
	replay.Recovered = func(string) (*trajectory.Trajectory, bool) { return want, false }
	got := replay.Sample(t.Context(), place)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))
}

// sideBySide is a trajectory whose agent made each of its calls before it had read a reply: the versions are those of the tokens of each, in the order
// in which they ended.
func sideBySide(t *testing.T, calls ...[]int32) *trajectory.Trajectory {
	tr := &trajectory.Trajectory{ID: rollout.Place{Phase: "train"}.ID(), StopReason: trajectory.StopNoAction}
	for k, versions := range calls {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1, 3, int32(k)})
		turn := trajectory.Turn{Sample: k, CompletionStart: s.Len(), Seed: uint64(k), Incoming: &trajectory.Incoming{Dialect: "chat", After: -1}}
		e, n := &counted{}, 0
		e.between = func() { e.version, n = versions[n], n+1 }
		c, err := e.Generate(t.Context(), engines.Request{Prompt: s.TokenIDs, Seed: turn.Seed, Sampling: engines.Sampling{MaxTokens: len(versions)}})
		require.NoError(t, err)
		require.Equal(t, versions, c.Versions)
		require.NoError(t, s.AppendResponse(c.TokenIDs, c.Logprobs, c.Versions))
		turn.CompletionEnd, turn.ObservationEnd, turn.FinishReason = s.Len(), s.Len(), c.FinishReason
		tr.Samples, tr.Turns = append(tr.Samples, s), append(tr.Turns, turn)
	}
	return tr
}

// An update may fall among calls that an agent makes side by side: one that ended later may have tokens of older weights than one that ended earlier.
func TestCallsSideBySideAreSampledAgain(t *testing.T) {
	for name, calls := range map[string][][]int32{
		"the update falls within both": {{1, 1, 2}, {1, 2, 2}},
		"the later one began before":   {{2, 2}, {1, 1, 2}},
		"they end in no order":         {{2, 3}, {1, 3}, {2, 2}, {1, 1}, {3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			want := sideBySide(t, calls...)
			e := NewEngine(&counted{version: 1}, 1)
			e.begun = func(int32) {}
			r := rollouttest.New(t, nil)
			r.Engine, r.External, r.Replay = e, &rollout.External{}, true
			r.Recovered = func(id string) (*trajectory.Trajectory, bool) { return e.recorded(id), false }
			p := &Replay{sampler: r, engine: e, begin: map[int32][]place{}, results: map[string]*result{}}
			at := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
			require.NoError(t, p.add(store.Batch{Version: 3}, trajectory.Group{}, want, at))
			require.Len(t, p.begin[1], 1, "it begins with its oldest weights")
			e.Expect(want)

			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			updated := make(chan error, 1)
			go func() {
				updated <- errors.Join(e.Update(ctx, engines.Weights{Version: 2}), e.Update(ctx, engines.Weights{Version: 3}))
			}()
			got := r.Sample(ctx, at)
			require.Empty(t, got.Err)
			require.NoError(t, <-updated)
			require.Equal(t, want.Samples, got.Samples)
			require.Equal(t, rollouttest.Timeless(&trajectory.Trajectory{Turns: want.Turns}), rollouttest.Timeless(&trajectory.Trajectory{Turns: got.Turns}))
		})
	}
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	sampling := engines.Sampling{MaxTokens: 30}
	for _, c := range []struct {
		change func(tr *trajectory.Trajectory)
		says   string
	}{
		{func(tr *trajectory.Trajectory) { tr.Samples[0].TokenIDs[tr.Turns[1].CompletionStart+2]++ }, "trajectory x, turn 1, token 2 of its completion: sampled is "},
		{func(tr *trajectory.Trajectory) {
			l := &tr.Samples[0].SamplingLogprobs[tr.Turns[0].CompletionStart]
			*l = math.Nextafter32(*l, -1000)
		}, "trajectory x, turn 0, token 0 of its completion: its logprob is "},
		{func(tr *trajectory.Trajectory) { tr.Turns[0].FinishReason = "abort" }, `trajectory x, turn 0: the completion ends with `},
		{func(tr *trajectory.Trajectory) { tr.Turns[1].Seed = 9 }, "trajectory x, turn 1: its seed is 1, recorded is 9"},
		{func(tr *trajectory.Trajectory) { tr.Samples[0].TokenIDs[0] = 7 }, "trajectory x, turn 0: its prompt has other tokens"},
		{func(tr *trajectory.Trajectory) { tr.Turns = tr.Turns[:1] }, "trajectory x, turn 1: it was not recorded"},
	} {
		rec := recordTurns(t, &counted{}, "x", 2, sampling)
		e := NewEngine(&counted{}, 0)
		c.change(rec)
		e.Expect(rec)
		e.count(rec)
		var err error
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1, 2, 1})
		for k := 0; k < 2 && err == nil; k++ {
			var out engines.Completion
			if out, err = e.Generate(t.Context(), engines.Request{ID: fmt.Sprint("x-", k), Prompt: s.TokenIDs, Seed: uint64(k), Sampling: sampling}); err == nil {
				require.NoError(t, s.AppendResponse(out.TokenIDs, out.Logprobs, out.Versions))
				s.AppendObservation([]int32{5, 6})
			}
		}
		require.ErrorContains(t, err, c.says)
		require.ErrorIs(t, e.Update(t.Context(), engines.Weights{Version: 1}), err, "who waits learns of it")
	}
}

func TestAnUpdateWaitsNoLongerThanItsContext(t *testing.T) {
	rec := recordTurns(t, &counted{}, "x", 1, engines.Sampling{MaxTokens: 3})
	e := NewEngine(&counted{}, 0)
	e.count(rec)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.ErrorIs(t, e.Update(ctx, engines.Weights{Version: 1}), context.Canceled)
}
