package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// life is one process of a run whose agents sample over a gateway: its store is that of the lives before.
type life struct {
	*bench
	db *store.Store
}

// live begins a life on a folder. The last one was killed: nothing of it was closed but the file.
func live(t *testing.T, dir string, say rollouttest.Script, adopt bool) *life {
	t.Helper()
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	var recovered *trajectory.Trajectory
	if len(log.Outstanding) == 0 {
		require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: store.Train, Size: 1, Task: trajectory.Task{ID: "q"}}))
	} else {
		recovered = log.Outstanding[0].Partial[0]
	}
	l := &life{db: db}
	l.bench = newBench(t, say, func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Record, o.Recovered, o.Adopt = db.AddTurn, recovered, adopt
		o.Rewrite = func() { db.Restart(o.Name) }
	})
	return l
}

// kill ends a life as kill -9 does: what was not stored is gone.
func (l *life) kill() { require.NoError(l.t, l.db.Close()) }

func (l *life) ask(text string) (id string) {
	l.t.Helper()
	status, body := l.post("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, text))
	require.Equal(l.t, http.StatusOK, status, body)
	var reply struct{ ID string }
	require.NoError(l.t, json.Unmarshal([]byte(body), &reply))
	return reply.ID
}

func (l *life) pay(body string) {
	l.t.Helper()
	status, text := l.post("/agentfly/reward", body)
	require.Equal(l.t, http.StatusOK, status, text)
}

// A reward is stored before its sender is told so: it counts after a kill, for the call or the trajectory that it was for.
func TestPostedRewardsOutliveAKill(t *testing.T) {
	dir := t.TempDir()
	first := live(t, dir, byRound("one", "two"), true)
	first.pay(`{"reward":0.125}`) // before any call
	one, two := first.ask("a"), first.ask("b")
	first.pay(fmt.Sprintf(`{"reward":0.5,"call":%q}`, two))
	first.pay(`{"reward":1,"id":"judge-1"}`)
	first.kill()

	second := live(t, dir, byRound("three"), true)
	second.pay(`{"reward":1,"id":"judge-1"}`) // who did not read the answer posts again
	second.ask("c")
	second.pay(fmt.Sprintf(`{"reward":0.25,"call":%q}`, one))
	second.kill()

	third := live(t, dir, byRound(), true)
	out := third.session.Finish()
	require.NoError(t, out.Err)
	require.Equal(t, 1.125, *out.Posted)
	require.Len(t, third.told.Turns, 3)
	require.Equal(t, 0.25, *third.told.Turns[0].Reward)
	require.Equal(t, 0.5, *third.told.Turns[1].Reward)
	require.Nil(t, third.told.Turns[2].Reward)
	require.NoError(t, third.db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "q"}, third.told))
	back, err := third.db.Reader.Trajectory(t.Context(), third.told.ID)
	require.NoError(t, err)
	require.Equal(t, third.told.Posted, back.Posted)
	require.Equal(t, third.told.Turns, back.Turns)
}

// An agent that begins anew posts again what it had posted; each counts once. Where it goes another way, what judged the old way is dropped.
func TestRewardsOfAnAgentThatBeginsAnew(t *testing.T) {
	for name, c := range map[string]struct {
		again []string // what it asks after the kill
		paid  []string // what it posts then; %s is the id of its first reply
		sum   any
		turns []any
	}{
		"the same":         {[]string{"a", "b"}, []string{`{"reward":1}`, `{"reward":0.5,"call":%q}`}, 1.0, []any{0.5, nil}},
		"less":             {[]string{"a", "b"}, nil, 1.0, []any{0.5, nil}},
		"more":             {[]string{"a", "b"}, []string{`{"reward":1}`, `{"reward":1}`}, 2.0, []any{0.5, nil}},
		"in another order": {[]string{"b", "a"}, nil, 1.0, []any{nil, 0.5}},
		"another way":      {[]string{"a", "c"}, []string{`{"reward":-1}`}, -1.0, []any{0.5, nil}},
		"all anew":         {[]string{"d"}, nil, nil, []any{nil}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := live(t, dir, byRound("one", "two"), false)
			id := first.ask("a")
			first.pay(fmt.Sprintf(`{"reward":0.5,"call":%q}`, id))
			first.pay(`{"reward":1}`)
			first.ask("b")
			first.kill()

			second := live(t, dir, byRound("new"), false)
			ids := map[string]string{}
			for _, text := range c.again {
				ids[text] = second.ask(text)
			}
			for _, body := range c.paid {
				if body[len(body)-3:] == "%q}" {
					body = fmt.Sprintf(body, ids["a"])
				}
				second.pay(body)
			}
			out := second.session.Finish()
			require.NoError(t, out.Err)
			if c.sum == nil {
				require.Nil(t, out.Posted)
			} else {
				require.Equal(t, c.sum, *out.Posted)
			}
			for i, want := range c.turns {
				if got := second.told.Turns[i].Reward; want == nil {
					require.Nil(t, got, "turn %d", i)
				} else {
					require.NotNil(t, got, "turn %d", i)
					require.Equal(t, want, *got, "turn %d", i)
				}
			}
			require.NoError(t, second.db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "q"}, second.told))
			back, err := second.db.Reader.Trajectory(t.Context(), second.told.ID)
			require.NoError(t, err)
			require.Equal(t, second.told.Turns, back.Turns)
			require.Equal(t, second.told.Posted, back.Posted)
		})
	}
}

// What is posted before an agent has caught up with what was recorded of it, and a further kill, lose nothing.
func TestARewardWhileAnAgentCatchesUp(t *testing.T) {
	dir := t.TempDir()
	first := live(t, dir, byRound("one", "two", "three"), false)
	for _, text := range []string{"a", "b", "c"} {
		first.ask(text)
	}
	first.kill()
	second := live(t, dir, byRound("new"), false)
	second.pay(fmt.Sprintf(`{"reward":2,"call":%q}`, second.ask("a")))
	second.ask("b")
	second.kill()
	third := live(t, dir, byRound("other"), false)
	third.ask("a")
	third.ask("b")
	require.Empty(t, third.sampled)
	third.session.Finish()
	require.Equal(t, 2.0, *third.told.Turns[0].Reward)
	require.Len(t, third.told.Turns, 2)
}

// A reward that cannot be stored is refused, and the trajectory does not stand.
func TestARewardThatCannotBeStored(t *testing.T) {
	b := newBench(t, byRound("a"), func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Record = func(context.Context, *trajectory.Trajectory) error { return errors.New("the disk is full") }
	})
	status, text := b.post("/agentfly/reward", `{"reward":1}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "the disk is full")
	require.ErrorContains(t, b.session.Finish().Err, "the disk is full")
}

// A reward with an id that is posted again by an agent that begins anew counts once, as it is posted then, and also where the agent went another way.
func TestANamedRewardOfAnAgentThatBeginsAnew(t *testing.T) {
	for name, c := range map[string]struct {
		again string // what it asks after the kill
		paid  float64
	}{
		"the same":                 {"a", 0.5},
		"another way":              {"b", 0.5},
		"another way, judged anew": {"b", 0.75},
		"the same, judged anew":    {"a", 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := live(t, dir, byRound("one"), false)
			first.ask("a")
			first.pay(`{"reward":0.5,"id":"judge"}`)
			first.kill()

			second := live(t, dir, byRound("new"), false)
			second.ask(c.again)
			for range 2 {
				second.pay(fmt.Sprintf(`{"reward":%g,"id":"judge"}`, c.paid))
			}
			out := second.session.Finish()
			require.NoError(t, out.Err)
			require.NotNil(t, out.Posted)
			require.Equal(t, c.paid, *out.Posted)
			require.NoError(t, second.db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "q"}, second.told))
			back, err := second.db.Reader.Trajectory(t.Context(), second.told.ID)
			require.NoError(t, err)
			require.Equal(t, second.told.Posted, back.Posted)
		})
	}
}
