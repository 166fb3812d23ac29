package enginetest

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// A stream gives what Generate gives, token by token, whatever it is asked to tell besides.
func testStream(t *testing.T, s *suite) {
	streamer, ok := s.Engine.(engines.Streamer)
	if !ok {
		t.Skip("this engine does not stream")
	}
	asks := s.request(21, 12)
	asks.Top = 1
	_, err := streamer.Stream(s.context(t), asks, engines.Detail{}, func([]engines.Token) {})
	require.ErrorIs(t, err, engines.ErrStreamTop)
	for _, d := range []engines.Detail{{}, {Top: 3}, {Top: 5, Raw: true}} {
		s.vary(t, 21, 12, func(p *points, r engines.Request) {
			r.Sampling.Temperature = 0.7
			want := s.generate(t, r)
			c, pieces := s.stream(t, streamer, r, d)
			p.same("a stream is what Generate gives", r, want, c)
			require.Equal(t, c.TokenIDs, pieces.TokenIDs, "the pieces are the completion")
			require.Equal(t, c.Versions, pieces.Versions)
			if !d.Raw {
				require.Equal(t, c.Logprobs, pieces.Logprobs)
			}
		})
	}
	prober, ok := s.Engine.(engines.Logprober)
	if !ok {
		return
	}
	r := s.request(21, 12)
	r.Sampling.Temperature, r.Sampling.TopK = 0.7, 2
	_, raw := s.stream(t, streamer, r, engines.Detail{Raw: true})
	given, err := prober.Logprobs(s.context(t), slices.Concat(r.Prompt, raw.TokenIDs))
	require.NoError(t, err)
	require.InDeltaSlice(t, given[len(r.Prompt)-1:], raw.Logprobs, max(exact, s.apart()), "raw logprobs are those of temperature 1")
}

// stream is a completion and its pieces; what they tell of each token is whole in itself.
func (s *suite) stream(t *testing.T, streamer engines.Streamer, r engines.Request, d engines.Detail) (c, pieces engines.Completion) {
	t.Helper()
	c, err := streamer.Stream(s.context(t), r, d, func(piece []engines.Token) {
		require.NotEmpty(t, piece)
		for _, token := range piece {
			pieces = with(pieces, token)
			require.Len(t, token.Top, d.Top)
			for i, a := range token.Top {
				if i > 0 {
					require.LessOrEqual(t, a.Logprob, token.Top[i-1].Logprob)
				}
				if a.ID == token.ID {
					require.InDelta(t, token.Logprob, a.Logprob, 1e-5)
				}
			}
			if d.Top > 0 {
				require.LessOrEqual(t, token.Logprob, token.Top[0].Logprob+1e-5)
				require.LessOrEqual(t, massOf(token.Top), 1+1e-4)
			}
		}
	})
	require.NoError(t, err)
	return c, pieces
}

// with is a completion that goes on with a token.
func with(c engines.Completion, token engines.Token) engines.Completion {
	c.TokenIDs, c.Logprobs, c.Versions = append(c.TokenIDs, token.ID), append(c.Logprobs, token.Logprob), append(c.Versions, token.Version)
	return c
}

// A cancelled stream has given a beginning of the completion, and frees its place.
func testStreamCancel(t *testing.T, s *suite) {
	streamer, ok := s.Engine.(engines.Streamer)
	if !ok {
		t.Skip("this engine does not stream")
	}
	s.vary(t, 22, 30, func(p *points, r engines.Request) {
		want := s.generate(t, r)
		r.Sampling.MaxTokens = s.Engine.Capabilities().MaxModelLen
		ctx, cancel := context.WithCancel(s.context(t))
		defer cancel()
		var got engines.Completion
		_, err := streamer.Stream(ctx, r, engines.Detail{}, func(piece []engines.Token) {
			for _, token := range piece {
				got = with(got, token)
			}
			if len(got.TokenIDs) >= 3 {
				cancel()
			}
		})
		if err != nil { // it may have ended first
			require.ErrorIs(t, err, context.Canceled)
		}
		require.GreaterOrEqual(t, len(got.TokenIDs), 3)
		n := min(len(got.TokenIDs), len(want.TokenIDs))
		p.same("the pieces are a beginning of the completion", r, cut(want, n, ""), cut(got, n, ""))
		s.idle(t)
	})
}
