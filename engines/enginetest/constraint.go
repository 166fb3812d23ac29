package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// turns is a scripted constraint: token i of a completion is one of its entry i, and behind the last one the completion ends.
type turns [][]int32

func (c turns) Match() engines.Matcher { return &turn{turns: c} }

type turn struct {
	turns turns
	at    int
}

func (m *turn) Allowed() (tokens []uint64, end bool, err error) {
	if m.at == len(m.turns) {
		return nil, true, nil
	}
	if m.turns[m.at] == nil {
		return nil, false, errors.New("nothing goes on here")
	}
	for _, id := range m.turns[m.at] {
		for int(id)/64 >= len(tokens) {
			tokens = append(tokens, 0)
		}
		tokens[id/64] |= 1 << (id % 64)
	}
	return tokens, false, nil
}

func (m *turn) Take(id int32) error {
	for _, allowed := range m.turns[m.at] {
		if id == allowed {
			m.at++
			return nil
		}
	}
	return errors.New("it is not allowed")
}

// A completion that is held to a form has tokens of the form alone, also beside others, and ends with it.
func testConstraint(t *testing.T, s *suite) {
	r := s.request(11, 8)
	form := turns{{2, 5, 7, 9}, {3}, {1, 6, 8}}
	r.Constraint = form
	if !s.Engine.Capabilities().Constraints {
		_, err := s.Engine.Generate(s.context(t), r)
		require.ErrorIs(t, err, engines.ErrConstraint)
		return
	}
	one := func(c engines.Completion) {
		require.Len(t, c.TokenIDs, len(form))
		require.Equal(t, trajectory.FinishStop, c.FinishReason)
		for i, id := range c.TokenIDs {
			require.Contains(t, form[i], id)
		}
		require.Zero(t, c.Logprobs[1], "one token is allowed")
	}
	s.vary(t, 11, 8, func(p *points, r engines.Request) {
		free := r
		r.Constraint = form
		var c engines.Completion
		for seed := range uint64(5) {
			r.Seed = seed
			c = s.generate(t, r)
			one(c)
			p.same("the seed decides", r, c, s.generate(t, r))
		}

		rest := r
		rest.Prompt, rest.Sampled = slices.Concat(r.Prompt, c.TokenIDs[:2]), 2
		end := engines.Completion{TokenIDs: c.TokenIDs[2:], Logprobs: c.Logprobs[2:], Versions: c.Versions[2:], FinishReason: c.FinishReason}
		p.same("what was sampled before counts", rest, end, s.generate(t, rest))

		want := s.generate(t, free)
		done := make(chan engines.Completion, 1)
		go func() {
			c, _ := s.Engine.Generate(context.Background(), free)
			done <- c
		}()
		one(s.generate(t, r))
		p.same("a form does not hold others", free, want, <-done)
	})

	// A stop id ends what is whole, and is no token of the form: it is sampled with certainty.
	r.Sampling.StopIDs = []int32{10}
	c := s.generate(t, r)
	require.Len(t, c.TokenIDs, len(form)+1)
	require.Equal(t, int32(10), c.TokenIDs[len(form)])
	require.Zero(t, c.Logprobs[len(form)])
	require.Equal(t, trajectory.FinishStop, c.FinishReason)
	r.Sampling.StopIDs = nil

	// A form that cannot go on ends the request, not the engine.
	for _, bad := range []turns{{nil}, {{2, 5}, nil}} {
		r.Constraint = bad
		_, err := s.Engine.Generate(s.context(t), r)
		require.ErrorIs(t, err, engines.ErrRefused)
		require.ErrorContains(t, err, "nothing goes on here")
	}
	r.Constraint = turns{}
	c, err := s.Engine.Generate(s.context(t), r)
	require.NoError(t, err)
	require.Empty(t, c.TokenIDs, "the form is whole")
	r.Constraint, r.Sampling.MinTokens = form, 2
	_, err = s.Engine.Generate(s.context(t), r)
	require.ErrorContains(t, err, "min_tokens is 2")
}
