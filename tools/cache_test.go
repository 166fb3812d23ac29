package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// counted is a deterministic tool that counts its calls; it takes a second.
func counted(n *atomic.Int64, run func(c Call) (Observation, error)) Tool {
	return spied{Spec{Name: "look", Parameters: json.RawMessage(`{"type":"object"}`), Deterministic: true}, func(_ context.Context, c Call) (Observation, error) {
		n.Add(1)
		time.Sleep(time.Second)
		return run(c)
	}}
}

// spied is a tool of any spec.
type spied struct {
	spec Spec
	call func(ctx context.Context, c Call) (Observation, error)
}

func (s spied) Spec() Spec                                            { return s.spec }
func (s spied) Call(ctx context.Context, c Call) (Observation, error) { return s.call(ctx, c) }

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		r := NewRegistry(Options{})
		require.NoError(t, r.RegisterAs(counted(&n, func(c Call) (Observation, error) {
			return Observation{Text: string(c.Arguments), Info: map[string]any{"calls": n.Load()}}, nil
		}), Ref{Cache: true}))
		first := invoke(t, r, "look", `{"a": 1, "b": [true, {"c": "x", "d": 2}]}`)
		require.False(t, first.Cached)
		again := invoke(t, r, "look", ` {"b":[true,{"d":2,"c":"x"}],"a":1}`)
		require.True(t, again.Cached)
		require.Equal(t, first.Observation, again.Observation)
		require.JSONEq(t, `{"calls": 1}`, string(again.Info))
		require.Equal(t, time.Second, first.Duration)
		require.Zero(t, again.Duration)
		require.False(t, invoke(t, r, "look", `{"a": 2}`).Cached)
		require.EqualValues(t, 2, n.Load())
	})
}

func TestEqualCallsAtOnceRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		r := NewRegistry(Options{})
		require.NoError(t, r.RegisterAs(counted(&n, func(Call) (Observation, error) { return Observation{Text: "x"}, nil }), Ref{Cache: true}))
		var cached atomic.Int64
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				out := r.Invoke(t.Context(), fmt.Sprint(i), trajectory.ToolCall{Name: "look"})
				if out.Cached {
					cached.Add(1)
				}
				require.Equal(t, "x", out.Observation)
			})
		}
		all.Wait()
		require.EqualValues(t, 1, n.Load())
		require.EqualValues(t, 99, cached.Load())
	})
}

// What failed is not kept: another caller tries it. A caller that gives up does not take the others with it.
func TestFailuresAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		r := NewRegistry(Options{})
		require.NoError(t, r.RegisterAs(counted(&n, func(Call) (Observation, error) {
			if n.Load() < 3 {
				return Observation{}, errors.New("not yet")
			}
			return Observation{Text: "now"}, nil
		}), Ref{Cache: true}))
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var texts [4]string
		var all sync.WaitGroup
		for i := range texts {
			ctx := t.Context()
			if i == 0 {
				ctx = short
			}
			all.Go(func() { texts[i] = r.Invoke(ctx, fmt.Sprint(i), trajectory.ToolCall{Name: "look"}).Observation })
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, "Error: look: the run was interrupted", texts[0])
		require.ElementsMatch(t, []string{"Error: not yet", "now", "now"}, texts[1:])
		require.EqualValues(t, 3, n.Load())
	})
}

func TestOnlyDeterministicToolsAreKept(t *testing.T) {
	for name, spec := range map[string]Spec{"says nothing": {}, "keeps state": {Deterministic: true, Stateful: true}} {
		calls := 0
		spec.Name, spec.Parameters = "look", json.RawMessage(`{"type":"object"}`)
		r := NewRegistry(Options{})
		require.NoError(t, r.RegisterAs(spied{spec, func(context.Context, Call) (Observation, error) { calls++; return Observation{}, nil }}, Ref{Cache: true}))
		invoke(t, r, "look", "{}")
		require.False(t, invoke(t, r, "look", "{}").Cached)
		require.Equal(t, 2, calls, name)
	}
}

func TestTheLeastRecentlyUsedGoes(t *testing.T) {
	c := newCache()
	c.limit = 30 // three of them
	put := func(key string) {
		k, err := c.get(t.Context(), key)
		require.NoError(t, err)
		require.Nil(t, k, key)
		c.done(key, &kept{key: key, text: "12345678"})
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		put(key)
	}
	k, err := c.get(t.Context(), "k1")
	require.NoError(t, err)
	require.NotNil(t, k)
	put("k4") // k2 goes
	require.Equal(t, 30, c.bytes)
	for key, want := range map[string]bool{"k1": true, "k2": false, "k3": true, "k4": true} {
		require.Equal(t, want, c.entries[key] != nil, key)
	}
	put("k2")
	require.Len(t, c.entries, 3)
}
