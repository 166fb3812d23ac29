package scripted

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
	"github.com/agentfly/agentfly/trajectory"
)

func letters(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, 'a'+byte(id%26), 'A'+byte(id/26%26))
	}
	return string(b)
}

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(*testing.T) enginetest.Subject {
		e := New(Options{Respond: Model(5000), Delay: 5 * time.Millisecond, MaxModelLen: 600, Version: 3, Decode: letters})
		return enginetest.Subject{Fixed: true, Engine: e, Vocab: 5000, Version: 3, Decode: letters}
	})
}

// frozen is an engine that samples with its own weights alone.
type frozen struct{ *Engine }

func (f frozen) Capabilities() engines.Capabilities {
	c := f.Engine.Capabilities()
	c.WeightUpdates, c.SharedParameters = false, false
	return c
}

func (frozen) Update(context.Context, engines.Weights) error { return errors.New("frozen") }

func TestConformanceWithoutUpdates(t *testing.T) {
	enginetest.Run(t, func(*testing.T) enginetest.Subject {
		e := New(Options{Respond: Model(5000), Delay: 5 * time.Millisecond, MaxModelLen: 600, Version: 3, Decode: letters})
		return enginetest.Subject{Fixed: true, Engine: frozen{e}, Vocab: 5000, Version: 3, Decode: letters}
	})
}

func request(session string, maxTokens int, stopIDs ...int32) engines.Request {
	return engines.Request{
		ID: "r", Session: session, Prompt: []int32{1, 2},
		Sampling: engines.Sampling{MaxTokens: maxTokens, TopP: 1, StopIDs: stopIDs},
	}
}

func TestReplies(t *testing.T) {
	e := New(Options{Respond: Replies([]int32{5, 6, 2, 9}, []int32{7})})
	defer e.Close()
	ctx := context.Background()
	for _, session := range []string{"a", "b"} {
		c, err := e.Generate(ctx, request(session, 8, 2))
		require.NoError(t, err)
		require.Equal(t, engines.Completion{
			TokenIDs: []int32{5, 6, 2}, Logprobs: []float32{0, 0, 0}, Versions: []int32{0, 0, 0}, FinishReason: trajectory.FinishStop,
		}, c)
	}
	c, err := e.Generate(ctx, request("a", 8))
	require.NoError(t, err)
	require.Equal(t, []int32{7}, c.TokenIDs)
	require.Equal(t, trajectory.FinishStop, c.FinishReason) // the script ended by itself
	_, err = e.Generate(ctx, request("a", 8))
	require.ErrorContains(t, err, `session "a" asks for turn 2, the script has 2`)
	c, err = e.Generate(ctx, request("c", 2))
	require.NoError(t, err)
	require.Equal(t, []int32{5, 6}, c.TokenIDs)
	require.Equal(t, trajectory.FinishLength, c.FinishReason)
	require.Len(t, e.Requests(), 5)
}

func TestRespondErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, respond := range map[string]func(engines.Request) (engines.Completion, error){
		"boom":      func(engines.Request) (engines.Completion, error) { return engines.Completion{}, boom },
		"no tokens": func(engines.Request) (engines.Completion, error) { return Tokens(), nil },
		"1 logprobs": func(engines.Request) (engines.Completion, error) {
			return engines.Completion{TokenIDs: []int32{1, 2}, Logprobs: []float32{0}}, nil
		},
	} {
		e := New(Options{Respond: respond})
		_, err := e.Generate(context.Background(), request("s", 4))
		require.ErrorContains(t, err, name)
		require.NoError(t, e.Close())
	}
}
