package recovery

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// A resumed run says once which rules changed since an older program worked on it, and remembers that some records are that program's.
func TestAResumedRunSaysWhichRulesChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.File)
	for i, c := range []struct {
		fact, then     string
		resume         bool
		notes, lenient bool
	}{
		{"", "2", false, false, false},
		{"2", "2", true, false, false},
		{"", "1 2", true, true, true},
		{"1 2", "1 2", true, false, true},
	} {
		db, err := store.Open(path)
		require.NoError(t, err)
		require.NoError(t, db.SetFact(t.Context(), RulesFact, c.fact))
		older, note, err := TakeRules(t.Context(), db, c.resume)
		require.NoError(t, err)
		fact, err := db.Fact(RulesFact)
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
