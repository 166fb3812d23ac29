package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// timeless is t without what differs between two runs.
func timeless(t *trajectory.Trajectory) trajectory.Trajectory {
	out := *t
	out.Started, out.Seconds = time.Time{}, 0
	out.Turns = append([]trajectory.Turn(nil), t.Turns...)
	for i := range out.Turns {
		turn := &out.Turns[i]
		turn.EngineSeconds, turn.ToolSeconds = 0, 0
		turn.Results = append([]trajectory.ToolResult(nil), turn.Results...)
		for k := range turn.Results {
			turn.Results[k].Duration = 0
		}
	}
	return out
}

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
	r := newRollout(t, func(q engines.Request) (engines.Completion, error) {
		asked++
		if turns := len(q.Messages); turns >= 6 { // system, user, and two each
			return say(fmt.Sprintf("<answer>%d</answer>", q.Seed%7))
		}
		return say(fmt.Sprintf(`<count>{"n": %d}</count>`, q.Seed%1000))
	}, counter)
	place := rollout.Place{Phase: "train", Task: task("q", "1+1?", "2")}
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
		require.Equal(t, timeless(want), timeless(got))
		require.Equal(t, turns-kill, asked, "what was recorded is not sampled again")
		require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
		log, err = db.Recover(t.Context(), 0)
		require.NoError(t, err)
		ended := log.Outstanding[0].Finished[0]
		require.Equal(t, timeless(want), timeless(ended))

		asked = 0
		third := *r
		third.Recovered = func(string) (*trajectory.Trajectory, bool) { return ended, true }
		require.Same(t, ended, third.Sample(t.Context(), place))
		require.Zero(t, asked)
		require.NoError(t, db.Close())
	}
}

func TestATrajectoryDoesNotGoOnUnderAnotherJob(t *testing.T) {
	r := newRollout(t, func(q engines.Request) (engines.Completion, error) {
		return say(`<calculator>1+1</calculator>`)
	})
	place := rollout.Place{Phase: "train", Task: task("q", "1+1?", "2")}
	past := r.Sample(t.Context(), place)
	past.Turns = past.Turns[:1]
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return past, false }
	r.Prefix[0] = trajectory.Text("system", "Other.")
	got := r.Sample(t.Context(), place)
	require.Equal(t, trajectory.OriginRender, got.ErrOrigin)
	require.Equal(t, "orchestrator: train-0-0-0 turn 0: its prompt is not the one that was recorded; the job's prompt, tools or model changed since", got.Err)
}
