package recovery

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A resumed run says once which rules changed since an older program worked on it, and remembers that some records are that program's.
func TestAResumedRunSaysWhichRulesChanged(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), store.File), strconv.Itoa(rules)
	for i, c := range []struct {
		fact, then     string
		recorded       bool
		notes, lenient bool
	}{
		{"", now, false, false, false},
		{now, now, true, false, false},
		{"", "1 " + now, true, true, true},
		{"1 " + now, "1 " + now, true, false, true},
	} {
		db, err := store.Open(path)
		require.NoError(t, err)
		require.NoError(t, db.SetFact(t.Context(), RulesFact, c.fact))
		older, note, err := TakeRules(t.Context(), db, c.recorded)
		require.NoError(t, err)
		fact, err := db.Reader.Fact(RulesFact)
		require.NoError(t, err)
		require.Equal(t, c.then, fact, i)
		require.Equal(t, c.lenient, older, i)
		require.Equal(t, c.notes, note != "", i)
		if c.notes {
			for _, want := range []string{"older program", "agent.special_tokens: markup", "rollout.cut: parse", "trainer.schedule"} {
				require.Contains(t, note, want)
			}
		}
		if c.lenient {
			var notes []string
			restart := Restart(db, func(note string) { notes = append(notes, note) })
			restart("a", bytes.ErrTooLarge)
			restart("b", bytes.ErrTooLarge)
			require.Equal(t, []string{"trajectory a begins anew, as will others of its kind: an older program recorded it under other rules (bytes.Buffer: too large)"}, notes)
		}
		require.NoError(t, db.Close())
	}
	db, err := store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.SetFact(t.Context(), RulesFact, "two"))
	_, _, err = TakeRules(t.Context(), db, true)
	require.ErrorContains(t, err, `the fact rules is "two", not a list of numbers`)
}

func TestEachNumberOfTheRulesSaysWhatChanged(t *testing.T) {
	for n := 2; n <= rules; n++ {
		require.NotEmpty(t, changedRules[n], n)
	}
	require.Len(t, changedRules, rules-1)
}

// What begins anew takes the place of what was recorded, in the store too.
func TestTheStoreHoldsWhatBeganAnew(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "<result>") {
			return rollouttest.Say("<answer>2</answer>")
		}
		return rollouttest.Say("<calculator>1+1</calculator>")
	})
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	want := r.Sample(t.Context(), place)
	recorded := *want
	recorded.StopReason, recorded.Turns = "", want.Turns[:1]
	s := *want.Samples[0]
	s.TokenIDs = slices.Clone(s.TokenIDs)
	s.TokenIDs[3]++
	recorded.Samples = []*trajectory.Sample{&s}

	path := filepath.Join(t.TempDir(), store.File)
	db, err := store.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	require.NoError(t, db.AddTurn(t.Context(), &recorded))
	require.NoError(t, db.Close())
	db, err = store.Open(path)
	require.NoError(t, err)
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	resumed := *r
	older, _, err := TakeRules(t.Context(), db, true)
	require.NoError(t, err)
	if older {
		resumed.Restart = Restart(db, func(string) {})
	}
	resumed.Record = db.AddTurn
	resumed.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[0], false }
	got := resumed.Sample(t.Context(), place)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))
	require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
	require.NoError(t, db.Close())
	db, err = store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	log, err = db.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(log.Outstanding[0].Finished[0]))
}
