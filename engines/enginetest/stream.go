package enginetest

import (
	"context"
	"math"
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
	r := s.request(21, 12)
	r.Sampling.Temperature = 0.7
	want := s.generate(t, r)
	asks := r
	asks.Top = 1
	_, err := streamer.Stream(s.context(t), asks, engines.Detail{}, func([]engines.Token) {})
	require.ErrorIs(t, err, engines.ErrStreamTop)
	for _, d := range []engines.Detail{{}, {Top: 3}, {Top: 5, Raw: true}} {
		var got engines.Completion
		var tokens []engines.Token
		c, err := streamer.Stream(s.context(t), r, d, func(piece []engines.Token) {
			require.NotEmpty(t, piece)
			tokens = append(tokens, piece...)
		})
		require.NoError(t, err)
		require.Equal(t, want.TokenIDs, c.TokenIDs)
		for _, token := range tokens {
			got.TokenIDs, got.Logprobs, got.Versions = append(got.TokenIDs, token.ID), append(got.Logprobs, token.Logprob), append(got.Versions, token.Version)
			require.Len(t, token.Top, d.Top)
			mass := 0.0
			for i, a := range token.Top {
				mass += math.Exp(float64(a.Logprob))
				if i > 0 {
					require.LessOrEqual(t, a.Logprob, token.Top[i-1].Logprob)
				}
				if a.ID == token.ID {
					require.InDelta(t, token.Logprob, a.Logprob, 1e-5)
				}
			}
			if d.Top > 0 {
				require.LessOrEqual(t, token.Logprob, token.Top[0].Logprob+1e-5)
				require.LessOrEqual(t, mass, 1+1e-4)
			}
		}
		require.Equal(t, c.TokenIDs, got.TokenIDs)
		require.Equal(t, c.Versions, got.Versions)
		if !d.Raw {
			require.Equal(t, c.Logprobs, got.Logprobs)
		}
		require.Equal(t, want.FinishReason, c.FinishReason)
	}
	prober, ok := s.Engine.(engines.Logprober)
	if !ok {
		return
	}
	var ids []int32
	var raw []float32
	r.Sampling.TopK = 2
	_, err = streamer.Stream(s.context(t), r, engines.Detail{Raw: true}, func(piece []engines.Token) {
		for _, token := range piece {
			ids, raw = append(ids, token.ID), append(raw, token.Logprob)
		}
	})
	require.NoError(t, err)
	given, err := prober.Logprobs(s.context(t), append(append([]int32(nil), r.Prompt...), ids...))
	require.NoError(t, err)
	require.InDeltaSlice(t, given[len(r.Prompt)-1:], raw, 1e-4, "raw logprobs are those of temperature 1")
}

// A cancelled stream has given a beginning of the completion, and frees its place.
func testStreamCancel(t *testing.T, s *suite) {
	streamer, ok := s.Engine.(engines.Streamer)
	if !ok {
		t.Skip("this engine does not stream")
	}
	want := s.generate(t, s.request(22, 30))
	r := s.long(22)
	ctx, cancel := context.WithCancel(s.context(t))
	defer cancel()
	var got []int32
	_, err := streamer.Stream(ctx, r, engines.Detail{}, func(piece []engines.Token) {
		for _, token := range piece {
			got = append(got, token.ID)
		}
		if len(got) >= 3 {
			cancel()
		}
	})
	if err != nil { // it may have ended first
		require.ErrorIs(t, err, context.Canceled)
	}
	require.GreaterOrEqual(t, len(got), 3)
	n := min(len(got), len(want.TokenIDs))
	require.Equal(t, want.TokenIDs[:n], got[:n])
	s.idle(t)
}
