package enginetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// The likeliest tokens are told without changing what is sampled: in their order, with the sampled token's own logprob, and of the distribution that was
// sampled, after temperature and truncation. What an engine does not tell, it refuses.
func testTop(t *testing.T, s *suite) {
	most := s.Engine.Capabilities().Top
	for _, top := range []int{-1, most + 1} {
		r := s.request(24, 4)
		r.Top = top
		_, err := s.Engine.Generate(s.context(t), r)
		require.ErrorContains(t, err, fmt.Sprint(top))
		require.NotContains(t, err.Error(), "\n")
	}
	if most == 0 {
		t.Skip("this engine does not tell the likeliest tokens")
	}
	for _, sampling := range []engines.Sampling{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.6, TopP: 1},
		{Temperature: 1, TopP: 1, TopK: 3},
		{Temperature: 0, TopP: 1},
	} {
		for _, top := range []int{1, 4} {
			s.vary(t, 24, 12, func(p *points, r engines.Request) {
				r.Sampling = sampling
				r.Sampling.MaxTokens = 12
				want := s.generate(t, r)
				r.Top = min(top, most)
				c := s.generate(t, r)
				p.same("Top does not change what is sampled", r, want, c)
				s.likeliest(t, r, c)
				if s.Distribution && sampling.Temperature == 1 && sampling.TopK == 0 {
					s.agree(t, r, c)
				}
			})
		}
	}
}

// likeliest requires that the likeliest tokens of a completion are of the distribution that was sampled.
func (s *suite) likeliest(t *testing.T, r engines.Request, c engines.Completion) {
	t.Helper()
	for i, alternatives := range c.Top {
		if r.Sampling.Temperature == 0 && len(alternatives) > 0 {
			require.InDelta(t, alternatives[0].Logprob, c.Logprobs[i], 1e-4, "greedy takes the likeliest")
		}
		if !s.Distribution {
			continue
		}
		mass := massOf(alternatives)
		require.LessOrEqual(t, mass, 1+1e-4)
		if r.Sampling.TopK == 3 && r.Top == 4 {
			require.InDelta(t, 1, mass, 1e-4, "the others are excluded")
			for _, a := range alternatives[3:] {
				require.True(t, math.IsInf(float64(a.Logprob), -1), "%v", alternatives)
			}
		}
	}
}

func massOf(alternatives []engines.Alternative) (mass float64) {
	for _, a := range alternatives {
		mass += math.Exp(float64(a.Logprob))
	}
	return mass
}

// wholeTop requires that the likeliest tokens of a completion are whole in themselves.
func (s *suite) wholeTop(t *testing.T, r engines.Request, c engines.Completion) {
	t.Helper()
	require.Len(t, c.Top, len(c.TokenIDs))
	for i, alternatives := range c.Top {
		seen := map[int32]bool{}
		for n, a := range alternatives {
			require.True(t, a.ID >= 0 && int(a.ID) < s.Vocab, "token %d, alternative %d is %d", i, n, a.ID)
			require.False(t, seen[a.ID], "token %d: %d stands twice among the likeliest, %v", i, a.ID, alternatives)
			seen[a.ID] = true
			require.LessOrEqual(t, a.Logprob, float32(0))
			if n > 0 {
				require.LessOrEqual(t, a.Logprob, alternatives[n-1].Logprob)
			}
			if a.ID == c.TokenIDs[i] {
				require.InDelta(t, c.Logprobs[i], a.Logprob, 1e-4)
			}
		}
		if n := len(alternatives); n != r.Top {
			require.Equal(t, r.Top-1, n)
			require.False(t, seen[c.TokenIDs[i]], "token %d: one is missing, and the sampled one is among the likeliest", i)
		} else if !seen[c.TokenIDs[i]] {
			require.LessOrEqual(t, c.Logprobs[i], alternatives[n-1].Logprob+1e-5)
		}
	}
}

// agree requires that the engine tells the same of each alternative where it is given, and that no other token is likelier.
func (s *suite) agree(t *testing.T, r engines.Request, c engines.Completion) {
	t.Helper()
	prober := s.Engine.(engines.Logprober) // what Distribution says
	for i, alternatives := range c.Top[:3] {
		before := slices.Concat(r.Prompt, c.TokenIDs[:i])
		logprob := func(id int32) float32 {
			got, err := prober.Logprobs(s.context(t), append(slices.Clone(before), id))
			require.NoError(t, err)
			return got[len(before)-1]
		}
		least := float32(0)
		for _, a := range alternatives {
			require.InDelta(t, logprob(a.ID), a.Logprob, max(1e-3, s.apart()))
			least = a.Logprob
		}
		for id := range int32(min(s.Vocab, 20)) {
			if !slices.ContainsFunc(alternatives, func(a engines.Alternative) bool { return a.ID == id }) {
				require.LessOrEqual(t, logprob(id), least+float32(max(exact, s.apart())), "token %d is likelier than the last of %v", id, alternatives)
			}
		}
	}
}
