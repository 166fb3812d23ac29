package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// thinkers is an agent whose branches sample one prompt, get the same words behind different thoughts, leave the thoughts out, and go on.
func thinkers(t *testing.T, b *bench, branches []string) (said []map[string]any) {
	t.Helper()
	for range branches {
		m := b.chat([]map[string]any{user("x")})
		delete(m, "reasoning_content")
		said = append(said, m)
	}
	for i, branch := range branches {
		b.chat([]map[string]any{user("x"), said[i], user(branch)})
	}
	return said
}

// Branches that can be told apart by nothing but their order get the replies that were recorded for them after a kill, also where they come in another one,
// and also of a program that took them all for one.
func TestTwinsAfterAKill(t *testing.T) {
	first := newBench(t, byRound("<think>one</think>yes", "<think>two</think>yes", "a", "b"))
	thinkers(t, first, []string{"p", "q"})
	require.Len(t, first.told.Samples, 2)
	require.Equal(t, []int{-1, -1, 1, 0}, afters(first.told))

	second := newBench(t, byRound("new"), recovers(first))
	thinkers(t, second, []string{"q", "p"})
	require.Empty(t, second.sampled)
	second.session.Finish()
	require.Equal(t, []trajectory.Role{"", "", "", ""}, roles(second.told))
	require.Len(t, second.told.Samples, 2)

	third := newBench(t, byRound("c", "d"), adopts(first))
	require.Equal(t, afters(first.told), afters(third.told))
	require.Equal(t, first.told.Samples, third.told.Samples)
	third.session.Finish()
	require.Equal(t, []trajectory.Role{"", "", "", ""}, roles(third.told))

	same := newBench(t, byRound("yes", "yes", "a", "b"))
	thinkers(t, same, []string{"p", "q"})
	last := &same.told.Turns[slices.Index(afters(same.told), 0)]
	last.Incoming.After = 1 // as an older program wrote it: its sample is that of turn 0
	fourth := newBench(t, byRound("new"), adopts(same))
	fourth.session.Finish()
	require.Equal(t, []trajectory.Role{"", "", "", ""}, roles(fourth.told))
	require.Len(t, fourth.told.Turns, 4)
	require.Equal(t, same.told.Samples, fourth.told.Samples)
}

// afters are the turns that those of a trajectory go on after.
func afters(t *trajectory.Trajectory) (out []int) {
	for _, turn := range t.Turns {
		out = append(out, turn.Incoming.After)
	}
	return out
}

// Branches of an agent that sample one prompt and get the same words are all trained: each goes on behind its own reply, or, where nothing tells them apart,
// behind one that no other branch goes on behind.
func TestTwins(t *testing.T) {
	for name, c := range map[string]struct {
		say    []string
		afters []int
	}{
		"the same ids":       {[]string{"yes", "yes", "yes", "a", "b", "c"}, []int{-1, -1, -1, 0, 1, 2}},
		"different thoughts": {[]string{"<think>1</think>yes", "<think>2</think>yes", "<think>3</think>yes", "a", "b", "c"}, []int{-1, -1, -1, 2, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, byRound(c.say...))
			thinkers(t, b, []string{"p", "q", "r"})
			b.session.Finish()
			require.Equal(t, make([]trajectory.Role, 6), roles(b.told))
			require.Equal(t, c.afters, afters(b.told))
			require.Len(t, b.told.Samples, 3)
			b.check()
			require.Same(t, b.told, b.told.Trained(func(trajectory.Role) bool { return false }), "all is trained")
		})
	}
}

// Twins whose branches go on at once are told apart too, and a branch whose call failed leaves its reply to the next.
func TestTwinsSideBySide(t *testing.T) {
	var broken atomic.Bool
	var asked, replied sync.WaitGroup
	asked.Add(3)
	b := newBench(t, func(r engines.Request) (engines.Completion, error) {
		switch {
		case len(r.Messages) == 1:
			return rollouttest.Say(fmt.Sprintf("<think>%d</think>yes", r.Seed))
		case broken.Load():
			return engines.Completion{}, http.ErrServerClosed
		}
		asked.Done()
		asked.Wait()
		return rollouttest.Say("so")
	})
	var said map[string]any
	for range 3 {
		said = b.chat([]map[string]any{user("x")})
		delete(said, "reasoning_content")
	}
	more := func(branch string) string {
		body, err := json.Marshal(map[string]any{"messages": []map[string]any{user("x"), said, user(branch)}})
		require.NoError(t, err)
		return string(body)
	}
	broken.Store(true)
	status, _ := b.post("/v1/chat/completions", more("p"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	broken.Store(false)
	for _, branch := range []string{"p", "q", "r"} {
		replied.Go(func() { b.post("/v1/chat/completions", more(branch)) })
	}
	replied.Wait()
	b.session.Finish()
	require.Equal(t, make([]trajectory.Role, 6), roles(b.told))
	require.Len(t, b.told.Samples, 3)
}

// Of equal replies of which one was asked for with other tools, a call goes on after the one with its own.
func TestTwinsWithOtherTools(t *testing.T) {
	b := newBench(t, byRound("yes", "yes", "a"))
	m := b.chat([]map[string]any{user("x")}, "tools", calculator)
	b.chat([]map[string]any{user("x")})
	b.chat([]map[string]any{user("x"), m, user("p")}, "tools", calculator)
	b.session.Finish()
	require.Equal(t, []int{-1, -1, 0}, afters(b.told))
	require.Len(t, b.told.Samples, 2)
}

// Over /v1/completions a call goes on after the reply whose sample it extends, so that one that was thrown away beside it is discarded.
func TestDiscardedCompletions(t *testing.T) {
	b := newBench(t, byRound("one", "two", "three"))
	ask := func(ids []int32) {
		body, err := json.Marshal(map[string]any{"prompt": ids})
		require.NoError(t, err)
		status, text := b.post("/v1/completions", string(body))
		require.Equal(t, http.StatusOK, status, text)
	}
	ids := rollouttest.Letters{}.Encode("go ")
	ask(ids)
	ask(ids)
	ask(slices.Concat(b.told.Samples[1].TokenIDs, rollouttest.Letters{}.Encode(" obs")))
	again := newBench(t, byRound("new"), adopts(b))
	for _, b := range []*bench{b, again} {
		b.session.Finish()
		require.Equal(t, []int{-1, -1, 1}, afters(b.told))
		require.Equal(t, []trajectory.Role{trajectory.RoleDiscarded, "", ""}, roles(b.told))
	}
	require.Equal(t, b.told.Samples, again.told.Samples)
}
