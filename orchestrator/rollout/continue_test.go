package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// A trajectory whose process ends after any of its turns goes on at the next one, and becomes what it would have been.
func TestATrajectoryGoesOnAtItsNextTurn(t *testing.T) {
	asked, called := 0, 0
	counter := tools.NewFunc("count", "counts", func(context.Context, struct {
		N int `json:"n"`
	},
	) (string, error) {
		called++
		return fmt.Sprint("call ", called), nil
	})
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		asked++
		if turns := len(q.Messages); turns >= 6 { // system, user, and two each
			return rollouttest.Say(fmt.Sprintf("<answer>%d</answer>", q.Seed%7))
		}
		return rollouttest.Say(fmt.Sprintf(`<count>{"n": %d}</count>`, q.Seed%1000))
	}, counter)
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	admission := store.Admission{Phase: "train", Size: 1, Task: place.Task}

	want := r.Sample(t.Context(), place)
	require.Empty(t, want.Err)
	require.Equal(t, trajectory.StopAnswer, want.StopReason)
	turns := len(want.Turns)
	require.Equal(t, []int{3, 2}, []int{turns, called})
	for kill := range turns + 1 { // turns that are recorded
		path := filepath.Join(t.TempDir(), fmt.Sprint(kill, ".db"))
		db, err := store.Open(path)
		require.NoError(t, err)
		require.NoError(t, db.Admit(t.Context(), admission))
		asked, called = 0, 0
		first := *r
		first.Record = func(ctx context.Context, tr *trajectory.Trajectory) error {
			if len(tr.Turns) > kill {
				return errors.New("killed")
			}
			return db.AddTurn(ctx, tr)
		}
		cut := first.Sample(t.Context(), place)
		if kill < turns {
			require.Equal(t, trajectory.OriginStore, cut.ErrOrigin)
		}
		require.NoError(t, db.Close())

		db, err = store.Open(path)
		require.NoError(t, err)
		log, err := db.Recover(t.Context(), 0)
		require.NoError(t, err)
		asked, called = 0, kill // as often as before, of what was recorded
		second := *r
		second.Record = db.AddTurn
		second.Recovered = func(id string) (*trajectory.Trajectory, bool) {
			require.Equal(t, "train-0-0-0", id)
			return log.Outstanding[0].Partial[0], false
		}
		got := second.Sample(t.Context(), place)
		require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))
		require.Equal(t, turns-kill, asked, "what was recorded is not sampled again")
		require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
		log, err = db.Recover(t.Context(), 0)
		require.NoError(t, err)
		ended := log.Outstanding[0].Finished[0]
		require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(ended))

		asked = 0
		third := *r
		third.Recovered = func(string) (*trajectory.Trajectory, bool) { return ended, true }
		require.Same(t, ended, third.Sample(t.Context(), place))
		require.Zero(t, asked)
		require.NoError(t, db.Close())
	}
}

// A trajectory that goes on under another job fails alone: its end is stored in place of the turns that were.
func TestATrajectoryDoesNotGoOnUnderAnotherJob(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		return rollouttest.Say(`<calculator>1+1</calculator>`)
	})
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := store.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	r.Record = db.AddTurn
	require.Empty(t, r.Sample(t.Context(), place).Err)
	require.NoError(t, db.Close())

	db, err = store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	r.Record = db.AddTurn
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[0], false }
	r.Prefix[0] = trajectory.Text("system", "Other.")
	got := r.Sample(t.Context(), place)
	require.Equal(t, trajectory.OriginRender, got.ErrOrigin)
	require.Equal(t, "orchestrator: train-0-0-0 turn 0: its prompt is not the one that was recorded; the job's prompt, tools or model changed since", got.Err)
	require.NoError(t, rollout.Fatal(got))
	require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
	log, err = db.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, rollouttest.Timeless(got), rollouttest.Timeless(log.Outstanding[0].Finished[0]))
}

// What an older program recorded under rules that changed since begins anew instead of failing; what goes on goes on.
func TestATrajectoryOfAnOlderProgramBeginsAnew(t *testing.T) {
	asked := 0
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		asked++
		if strings.Contains(rollouttest.LastTurn(q), "<result>") {
			return rollouttest.Say("<answer>2</answer>")
		}
		return rollouttest.Say("<calculator>1+1</calculator>")
	})
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	want := r.Sample(t.Context(), place)
	require.Empty(t, want.Err)
	require.Len(t, want.Turns, 2)
	for name, change := range map[string]func(s *trajectory.Sample, turn *trajectory.Turn){
		"the prompt":      func(s *trajectory.Sample, _ *trajectory.Turn) { s.TokenIDs[3]++ },
		"the observation": func(s *trajectory.Sample, turn *trajectory.Turn) { s.TokenIDs[turn.CompletionEnd]++ },
		"nothing":         func(*trajectory.Sample, *trajectory.Turn) {},
	} {
		recovered := *want
		recovered.StopReason, recovered.Turns = "", slices.Clone(want.Turns[:1])
		s := *want.Samples[0]
		s.TokenIDs = slices.Clone(s.TokenIDs)
		recovered.Samples = []*trajectory.Sample{&s}
		change(&s, &recovered.Turns[0])
		var anew []string
		again := *r
		again.Recovered = func(string) (*trajectory.Trajectory, bool) { return &recovered, false }
		if name != "nothing" { // of this program's own records
			require.Contains(t, again.Sample(t.Context(), place).Err, name[4:]+" is not the one that was recorded")
		}
		again.Restart = func(id string, err error) {
			require.ErrorContains(t, err, name[4:]+" is not the one that was recorded")
			anew = append(anew, id)
		}
		asked = 0
		got := again.Sample(t.Context(), place)
		require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got), name)
		if name == "nothing" {
			require.Empty(t, anew)
			require.Equal(t, 1, asked)
			continue
		}
		require.Equal(t, []string{place.ID()}, anew, name)
		require.Equal(t, 2, asked)
	}
}
