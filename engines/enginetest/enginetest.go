// Package enginetest is the conformance suite of engines: what a trainer relies on, asked of every implementation.
//
// It does not know how an engine is made: each engine's own test hands it one.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// Subject is an engine under test, over a model whose completions differ with the seed and rarely repeat a token.
// The suite closes the engine.
type Subject struct {
	Engine  engines.Engine
	Vocab   int                      // prompts are made of ids below it
	Version int32                    // policy version at the start
	Decode  func(ids []int32) string // nil: stop strings are not tested
	// Weights makes an update to a version, with err != nil one that fails (with err in it, if there is an Apply). nil:
	// Weights with an Apply that does nothing else.
	Weights func(version int32, err error) engines.Weights
	Running func() int // requests that hold a place; nil: not tested
	Fixed   bool       // its completions are a script's, whatever penalties and min_tokens say
	// Distribution: its logprobs are those of a distribution over Vocab, whose logprobs of given tokens it tells (engines.Logprober).
	Distribution bool
	// Apart is how far two logprobs of one token may lie at temperature 1 where the engine is not batch invariant; 0: 1e-4. Above that the
	// completions of one request may fork: the suite compares them up to there, and asks with several prompts.
	Apart float64
}

const patience = 3 * time.Minute // a server on a loaded machine decodes slowly

// Run runs the suite; each test gets an engine of its own from factory.
func Run(t *testing.T, factory func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, *suite){
		"Parallel":       testParallel,
		"Length":         testLength,
		"TooLong":        testTooLong,
		"StopID":         testStopID,
		"StopString":     testStopString,
		"Seed":           testSeed,
		"Greedy":         testGreedy,
		"Penalties":      testPenalties,
		"Refuses":        testRefuses,
		"Media":          testMedia,
		"Constraint":     testConstraint,
		"PromptIsFree":   testPromptIsFree,
		"Cancel":         testCancel,
		"Concurrent":     testConcurrent,
		"Invariant":      testInvariant,
		"Logprobs":       testLogprobs,
		"Top":            testTop,
		"Stream":         testStream,
		"StreamCancel":   testStreamCancel,
		"Update":         testUpdate,
		"UpdateMidway":   testUpdateMidway,
		"UpdateFails":    testUpdateFails,
		"Close":          testClose,
		"CloseMidway":    testCloseMidway,
		"CancelledStart": testCancelledStart,
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite{Subject: factory(t)}
			if s.Weights == nil {
				s.Weights = func(version int32, err error) engines.Weights {
					return engines.Weights{Version: version, Apply: func(context.Context) error { return err }}
				}
			}
			t.Cleanup(func() { require.NoError(t, s.Engine.Close()) })
			if strings.HasPrefix(name, "Update") && !s.Engine.Capabilities().WeightUpdates {
				testNoUpdate(t, s)
				return
			}
			test(t, s)
		})
	}
}

type suite struct{ Subject }

func (s *suite) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// request asks for n tokens after a prompt that variant selects.
func (s *suite) request(variant, n int) engines.Request {
	prompt := make([]int32, 5+variant%30)
	for i := range prompt {
		prompt[i] = int32((variant*31 + i*7 + i*i*variant) % s.Vocab)
	}
	return engines.Request{
		ID: fmt.Sprintf("r%d", variant), Session: fmt.Sprintf("s%d", variant), Prompt: prompt, Seed: uint64(1000 + variant),
		Sampling: engines.Sampling{MaxTokens: n, Temperature: 1, TopP: 1},
	}
}

// generate requires a completion that is whole in itself.
func (s *suite) generate(t *testing.T, r engines.Request) engines.Completion {
	t.Helper()
	c, err := s.Engine.Generate(s.context(t), r)
	require.NoError(t, err)
	s.whole(t, r, c)
	return c
}

func (s *suite) whole(t *testing.T, r engines.Request, c engines.Completion) {
	t.Helper()
	require.NotEmpty(t, c.TokenIDs)
	require.LessOrEqual(t, len(c.TokenIDs), r.Sampling.MaxTokens)
	require.Len(t, c.Logprobs, len(c.TokenIDs))
	require.Len(t, c.Versions, len(c.TokenIDs))
	for i, id := range c.TokenIDs {
		require.True(t, id >= 0 && int(id) < s.Vocab, "token %d is %d", i, id)
		require.LessOrEqual(t, c.Logprobs[i], float32(0))
		require.Greater(t, c.Logprobs[i], float32(-100))
	}
	if r.Top == 0 {
		require.Nil(t, c.Top)
	} else {
		s.wholeTop(t, r, c)
	}
	require.LessOrEqual(t, c.CachedTokens, len(r.Prompt))
	require.Contains(t, []trajectory.FinishReason{trajectory.FinishStop, trajectory.FinishLength}, c.FinishReason)
}

func testParallel(t *testing.T, s *suite) {
	require.True(t, s.Engine.Capabilities().TokenIDs)
	c := s.generate(t, s.request(1, 9))
	for _, v := range c.Versions {
		require.Equal(t, s.Version, v)
	}
}

func testLength(t *testing.T, s *suite) {
	for _, n := range []int{1, 2, 17} {
		c := s.generate(t, s.request(2, n))
		require.Len(t, c.TokenIDs, n)
		require.Equal(t, trajectory.FinishLength, c.FinishReason)
	}
}

func testTooLong(t *testing.T, s *suite) {
	most := s.Engine.Capabilities().MaxModelLen
	r := s.request(3, 5)
	r.Prompt = make([]int32, most)
	_, err := s.Engine.Generate(s.context(t), r)
	require.ErrorIs(t, err, engines.ErrTooLong)
	require.Contains(t, err.Error(), r.ID)
	r.Prompt = r.Prompt[:most-2] // room for two tokens
	c := s.generate(t, r)
	require.Len(t, c.TokenIDs, 2)
	require.Equal(t, trajectory.FinishLength, c.FinishReason)
}

func testStopID(t *testing.T, s *suite) {
	for _, last := range []bool{false, true} { // the last one that fits is a stop too
		s.stops(t, 4, 6, func(r *engines.Request, ids []int32) func(ids []int32) bool {
			if last {
				r.Sampling.MaxTokens = len(ids)
			}
			stop := ids[len(ids)-1]
			r.Sampling.StopIDs = []int32{stop}
			return func(ids []int32) bool { return slices.Contains(ids, stop) }
		})
	}
}

func testStopString(t *testing.T, s *suite) {
	if s.Decode == nil {
		t.Skip("this subject has no decoder for stop strings")
	}
	s.stops(t, 5, 7, func(r *engines.Request, ids []int32) func(ids []int32) bool {
		text := s.Decode(ids)
		stop := text[len(text)-min(3, len(text)):] // ends with the last token, may begin in the one before
		r.Sampling.Stop = []string{"no token spells this", stop}
		return func(ids []int32) bool { return strings.Contains(s.Decode(ids), stop) }
	})
}

// stops requires that a completion ends with the token that stops it, which is part of it, and for no other reason. stop has a request
// stopped by the last of the first n tokens of its completion, and returns what tells whether tokens have what stops it.
func (s *suite) stops(t *testing.T, variant, n int, stop func(r *engines.Request, ids []int32) (has func(ids []int32) bool)) {
	t.Helper()
	if s.forks() {
		n = 2 // completions that begin alike have what stops them
	}
	s.vary(t, variant, 12, func(p *points, r engines.Request) {
		free := s.generate(t, r)
		has := stop(&r, free.TokenIDs[:n])
		end := 1
		for !has(free.TokenIDs[:end]) {
			end++
		}
		c := s.generate(t, r)
		if has(c.TokenIDs) {
			require.False(t, has(c.TokenIDs[:len(c.TokenIDs)-1]), "the token that stops it is the last one")
			require.Equal(t, trajectory.FinishStop, c.FinishReason)
		} else {
			require.Equal(t, trajectory.FinishLength, c.FinishReason, "it has nothing that stops it")
			require.Len(t, c.TokenIDs, r.Sampling.MaxTokens)
		}
		p.same("what stops it is part of the completion", r, cut(free, end, trajectory.FinishStop), c)
	})
}

func testSeed(t *testing.T, s *suite) {
	s.vary(t, 6, 10, func(p *points, r engines.Request) {
		first := s.generate(t, r)
		p.same("the seed decides", r, first, s.generate(t, r))
		r.ID, r.Session = "another", "another"
		p.same("neither ID nor Session matters", r, first, s.generate(t, r))
	})
	for _, r := range s.requests(6, 10) {
		first := s.generate(t, r)
		r.Seed++
		require.False(t, s.alike(first, s.generate(t, r)), "another seed has the same tokens")
	}
}

func testGreedy(t *testing.T, s *suite) {
	s.vary(t, 7, 10, func(p *points, r engines.Request) {
		r.Sampling.Temperature = 0
		first := s.generate(t, r)
		r.Seed += 99
		second := s.generate(t, r)
		p.same("the seed does not matter", r, first, second)
		if n := common(first, second); n < min(len(first.TokenIDs), len(second.TokenIDs)) {
			require.InDelta(t, first.Logprobs[n], second.Logprobs[n], s.apart(), "where they fork, both take the likeliest")
		}
	})
}

// testPenalties: neutral values change nothing, min_tokens keeps every way to stop away, and a penalty changes the logprobs of what came before.
func testPenalties(t *testing.T, s *suite) {
	s.vary(t, 7, 12, func(p *points, r engines.Request) {
		free := s.generate(t, r)
		r.Sampling.Repetition = 1
		p.same("a neutral penalty changes nothing", r, free, s.generate(t, r))
		if s.Fixed {
			return
		}
		if s.Decode != nil { // the string of the third token does not count
			r.Sampling.Stop, r.Sampling.MinTokens = []string{s.Decode(free.TokenIDs[2:3])}, 5
			c := s.generate(t, r)
			require.Greater(t, len(c.TokenIDs), 5)
			want := cut(free, len(c.TokenIDs), c.FinishReason)
			want.Logprobs = c.Logprobs // an engine may keep the end of the text away as well, which changes those of all tokens
			p.same("min_tokens keeps a stop string away", r, want, c)
			r.Sampling.Stop = nil
		}
		r.Sampling.StopIDs, r.Sampling.MinTokens = free.TokenIDs[:9], 7
		c := s.generate(t, r)
		require.Greater(t, len(c.TokenIDs), 7)
		for _, id := range c.TokenIDs[:7] {
			require.NotContains(t, r.Sampling.StopIDs, id)
		}
		r.Sampling.StopIDs, r.Sampling.MinTokens = nil, 0
		r.Sampling.MaxTokens = 1
		before := s.generate(t, r)
		r.Sampling.Presence, r.Sampling.Frequency = 2, 2
		p.same("presence and frequency count what was sampled, not the prompt", r, before, s.generate(t, r))
		r.Prompt = slices.Clone(r.Prompt)
		for id := range min(s.Vocab, s.Engine.Capabilities().MaxModelLen) / 2 { // so many that the others get much likelier
			r.Prompt = append(r.Prompt, int32(id))
		}
		r.Sampling.Presence, r.Sampling.Frequency, r.Sampling.Temperature = 0, 0, 0
		plain := s.generate(t, r)
		r.Sampling.Repetition = 1e6
		penalized := s.generate(t, r)
		p.hold("a penalty changes the logprobs", math.Abs(float64(plain.Logprobs[0]-penalized.Logprobs[0])) > s.apart())
	})
	if s.Fixed {
		t.Skip("this subject's completions are a script's")
	}
}

func testRefuses(t *testing.T, s *suite) {
	for name, spoil := range map[string]func(*engines.Request){
		"empty prompt": func(r *engines.Request) { r.Prompt = nil },
		"max tokens":   func(r *engines.Request) { r.Sampling.MaxTokens = 0 },
		"temperature":  func(r *engines.Request) { r.Sampling.Temperature = -1 },
		"top_p":        func(r *engines.Request) { r.Sampling.TopP = 0 },
		"top_k":        func(r *engines.Request) { r.Sampling.TopK = -1 },
		"min_p":        func(r *engines.Request) { r.Sampling.MinP = 1 },
		"stop":         func(r *engines.Request) { r.Sampling.Stop = []string{""} },
		"min_tokens":   func(r *engines.Request) { r.Sampling.MinTokens = 5 },
		"presence":     func(r *engines.Request) { r.Sampling.Presence = 2.1 },
		"frequency":    func(r *engines.Request) { r.Sampling.Frequency = -2.1 },
		"repetition":   func(r *engines.Request) { r.Sampling.Repetition = -1 },
	} {
		r := s.request(8, 4)
		spoil(&r)
		_, err := s.Engine.Generate(s.context(t), r)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "\n", name)
	}
	s.generate(t, s.request(8, 4)) // it serves on
}

// An engine that takes text only refuses media: it would sample as if there were none.
func testMedia(t *testing.T, s *suite) {
	r := s.request(8, 4)
	image := func(at int) trajectory.Medium {
		return trajectory.Medium{At: at, Tokens: 2, Kind: trajectory.MediaImage, SHA256: trajectory.Digest{1}}
	}
	r.Media = []trajectory.Medium{image(2), image(3)}
	_, err := s.Engine.Generate(s.context(t), r)
	require.ErrorContains(t, err, "medium 1 (image) begins at token 3, before the end of what is before it, 4")
	r.Media = []trajectory.Medium{image(len(r.Prompt) - 1)}
	_, err = s.Engine.Generate(s.context(t), r)
	require.Error(t, err, "beyond the prompt")
	if !s.Engine.Capabilities().Media {
		r.Media = []trajectory.Medium{image(1)}
		_, err = s.Engine.Generate(s.context(t), r)
		require.ErrorIs(t, err, engines.ErrMedia)
		require.ErrorContains(t, err, "the first (image) is at token 1")
	}
	r.Media = nil
	s.generate(t, r)
}

func testPromptIsFree(t *testing.T, s *suite) {
	s.vary(t, 9, 6, func(p *points, r engines.Request) {
		want := s.generate(t, r)
		prompt := slices.Clone(r.Prompt)
		for i := range r.Prompt {
			r.Prompt[i] = 0 // the engine kept nothing of it
		}
		r.Prompt = prompt
		p.same("the engine kept nothing of the prompt", r, want, s.generate(t, r))
	})
}

// long asks for as much as fits.
func (s *suite) long(variant int) engines.Request {
	return s.request(variant, s.Engine.Capabilities().MaxModelLen)
}

func (s *suite) idle(t *testing.T) {
	t.Helper()
	if s.Running != nil {
		require.Eventually(t, func() bool { return s.Running() == 0 }, patience, time.Millisecond, "its place is free")
	}
}

func testCancel(t *testing.T, s *suite) {
	unchanged := s.before(t, 11, 6)
	cancelled := 0
	for i := range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i)*time.Millisecond)
		_, err := s.Engine.Generate(ctx, s.long(20+i))
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancelled++
		}
	}
	require.Positive(t, cancelled, "no request ran long enough to be cancelled")
	s.idle(t)
	unchanged("it serves on")
}

func testCancelledStart(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Engine.Generate(ctx, s.request(12, 4))
	require.ErrorIs(t, err, context.Canceled)
	s.idle(t)
}

// all generates the requests at once.
func (s *suite) all(t *testing.T, requests []engines.Request) []engines.Completion {
	t.Helper()
	out := make([]engines.Completion, len(requests))
	errs := make([]error, len(requests))
	ctx := s.context(t)
	var wait sync.WaitGroup
	for i, r := range requests {
		wait.Go(func() { out[i], errs[i] = s.Engine.Generate(ctx, r) })
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	for i, c := range out {
		s.whole(t, requests[i], c)
	}
	return out
}

func testConcurrent(t *testing.T, s *suite) {
	var requests []engines.Request
	for i := range 40 {
		requests = append(requests, s.request(i, 3+i%11))
	}
	for i, c := range s.all(t, requests) {
		require.Len(t, c.TokenIDs, 3+i%11)
	}
	s.idle(t)
}

// What was sampled at temperature 1 has the same logprobs when it is given, also after an update and beside other requests.
func testLogprobs(t *testing.T, s *suite) {
	prober, ok := s.Engine.(engines.Logprober)
	if !ok {
		t.Skip("this engine does not compute logprobs of given tokens")
	}
	tolerance := s.apart()
	if s.Engine.Capabilities().BatchInvariant {
		tolerance = 1e-5 // a piece of a prompt and a single token are the same sums; greedy and sampled logprobs round apart
	}
	r := s.request(20, 40)
	check := func() {
		c := s.generate(t, r)
		ids := slices.Concat(r.Prompt, c.TokenIDs)
		var wait sync.WaitGroup
		for i := range 3 {
			wait.Go(func() { _, _ = s.Engine.Generate(s.context(t), s.request(i, 20)) })
		}
		got, err := prober.Logprobs(s.context(t), ids)
		wait.Wait()
		require.NoError(t, err)
		require.Len(t, got, len(ids)-1)
		require.InDeltaSlice(t, c.Logprobs, got[len(r.Prompt)-1:], tolerance)
	}
	check()
	if s.Engine.Capabilities().WeightUpdates {
		require.NoError(t, s.Engine.Update(s.context(t), s.Weights(s.Version+1, nil)))
		check()
	}
	for _, bad := range [][]int32{nil, {1}, {1, int32(s.Vocab) + 1000000}, {1, -1}} {
		_, err := prober.Logprobs(s.context(t), bad)
		require.Error(t, err, "%v", bad)
	}
	_, err := prober.Logprobs(s.context(t), make([]int32, s.Engine.Capabilities().MaxModelLen+1))
	require.ErrorIs(t, err, engines.ErrTooLong)
}

func testInvariant(t *testing.T, s *suite) {
	if !s.Engine.Capabilities().BatchInvariant {
		t.Skip("this engine does not promise batch invariance")
	}
	alone := s.generate(t, s.request(13, 12))
	requests := []engines.Request{s.request(13, 12)}
	for i := range 31 {
		r := s.request(i, 5+i%9)
		if i%3 == 0 {
			r.Prompt = slices.Concat(requests[0].Prompt, r.Prompt) // shares a prefix
		}
		requests = append(requests, r)
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() { // and others beside it are cancelled
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			_, _ = s.Engine.Generate(ctx, s.long(40+i%7)) // either outcome is fine
			cancel()
		}
	})
	together := s.all(t, requests)[0]
	close(stop)
	wait.Wait()
	require.Equal(t, alone.TokenIDs, together.TokenIDs)
	require.Equal(t, alone.Logprobs, together.Logprobs, "the same bits")
}

// testNoUpdate is for an engine without the capability WeightUpdates: an update is an error and changes nothing.
func testNoUpdate(t *testing.T, s *suite) {
	unchanged := s.before(t, 14, 5)
	require.Error(t, s.Engine.Update(s.context(t), s.Weights(s.Version+1, nil)))
	unchanged("its own weights serve on")
}

func testUpdate(t *testing.T, s *suite) {
	s.generate(t, s.request(14, 5))
	for _, version := range []int32{s.Version + 1, s.Version + 5} {
		require.NoError(t, s.Engine.Update(s.context(t), s.Weights(version, nil)))
		for _, v := range s.generate(t, s.request(14, 5)).Versions {
			require.Equal(t, version, v)
		}
	}
}

func testUpdateMidway(t *testing.T, s *suite) {
	var wait sync.WaitGroup
	defer wait.Wait()
	const n = 4
	out := make([]engines.Completion, n)
	errs := make([]error, n)
	ctx := s.context(t)
	for i := range n {
		r := s.request(15+i, min(400, s.Engine.Capabilities().MaxModelLen/2))
		wait.Go(func() { out[i], errs[i] = s.Engine.Generate(ctx, r) })
	}
	for version := s.Version + 1; version <= s.Version+3; version++ {
		time.Sleep(2 * time.Millisecond)
		require.NoError(t, s.Engine.Update(ctx, s.Weights(version, nil)))
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, c := range out {
		require.True(t, slices.IsSorted(c.Versions), "versions never go back")
		require.GreaterOrEqual(t, c.Versions[0], s.Version)
		require.LessOrEqual(t, c.Versions[len(c.Versions)-1], s.Version+3)
	}
}

func testUpdateFails(t *testing.T, s *suite) {
	unchanged := s.before(t, 16, 6)
	broken := errors.New("broken weights")
	w := s.Weights(s.Version+1, broken)
	err := s.Engine.Update(s.context(t), w)
	require.Error(t, err)
	if w.Apply != nil {
		require.ErrorIs(t, err, broken)
	}
	// the old weights serve on, or nothing does and says why
	if _, err := s.Engine.Generate(s.context(t), s.request(16, 6)); err == nil {
		unchanged("the old weights serve on")
	} else {
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, s.Engine.Update(s.context(t), s.Weights(s.Version+1, nil)))
	require.Equal(t, s.Version+1, s.generate(t, s.request(16, 6)).Versions[0])
}

func testClose(t *testing.T, s *suite) {
	s.generate(t, s.request(17, 3))
	require.NoError(t, s.Engine.Close())
	require.NoError(t, s.Engine.Close())
	_, err := s.Engine.Generate(s.context(t), s.request(17, 3))
	require.ErrorIs(t, err, engines.ErrClosed)
	err = s.Engine.Update(s.context(t), s.Weights(s.Version+1, nil))
	if s.Engine.Capabilities().WeightUpdates {
		require.ErrorIs(t, err, engines.ErrClosed)
	}
	require.Error(t, err)
}

func testCloseMidway(t *testing.T, s *suite) {
	const n = 8
	errs := make(chan error, n)
	ctx := s.context(t)
	for i := range n {
		go func() {
			_, err := s.Engine.Generate(ctx, s.long(18+i))
			errs <- err
		}()
	}
	time.Sleep(3 * time.Millisecond)
	require.NoError(t, s.Engine.Close())
	for range n {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, engines.ErrClosed)
		}
	}
}
