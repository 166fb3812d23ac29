package enginetest

import (
	"context"
	"errors"
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
	free := r
	free.Constraint = nil
	for variant := range 5 {
		r.Seed = uint64(variant)
		c := s.generate(t, r)
		one(c)
		again := s.generate(t, r)
		require.Equal(t, c.TokenIDs, again.TokenIDs)
		require.InDeltaSlice(t, c.Logprobs, again.Logprobs, s.apart())
	}

	// A stop id ends what is whole, and is no token of the form: it is sampled with certainty.
	r.Sampling.StopIDs = []int32{10}
	c := s.generate(t, r)
	require.Equal(t, int32(10), c.TokenIDs[len(form)])
	require.Zero(t, c.Logprobs[len(form)])
	require.Equal(t, trajectory.FinishStop, c.FinishReason)
	r.Sampling.StopIDs = nil

	// What was sampled before counts.
	rest := r
	rest.Prompt = append(append([]int32(nil), r.Prompt...), c.TokenIDs[:2]...)
	rest.Sampled = 2
	end := s.generate(t, rest)
	require.Equal(t, c.TokenIDs[2:3], end.TokenIDs)

	// Beside others, which are free.
	free.Sampling.MaxTokens = 8
	want := s.generate(t, free)
	done := make(chan engines.Completion, 1)
	go func() {
		c, _ := s.Engine.Generate(context.Background(), free)
		done <- c
	}()
	one(s.generate(t, r))
	require.Equal(t, want.TokenIDs, (<-done).TokenIDs)

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
