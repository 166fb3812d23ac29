package trajectory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without a branch, ids and seeds are those of runs that were made before there were branches. The numbers are not to change: recorded
// runs are replayed and continued by them.
func TestIDsAndSeedsAreThoseOfOlderRuns(t *testing.T) {
	for _, c := range []struct {
		place Place
		run   uint64
		task  string
		turn  int
		id    string
		seed  uint64
	}{
		{Place{Phase: "train"}, 0, "", 0, "train-0-0-0", 0xf6ae447b60874c44},
		{Place{Phase: "train", Step: 3, Group: 1}, 7, "a/b|c", 2, "train-3-1-0", 0xff2c3fe6b323f11b},
		{Place{Phase: "eval-math-v2.1", Step: 40, Group: 12, Index: 5}, 1 << 63, "ü", 11, "eval-math-v2.1-40-12-5", 0xd4564df94b79ed8d},
	} {
		require.Equal(t, c.id, c.place.ID())
		require.Equal(t, c.seed, c.place.Seed(c.run, c.task, c.turn), c.id)
	}
}

func TestBranches(t *testing.T) {
	p := Place{Phase: "train", Step: 3, Group: 1}
	require.Equal(t, Branch("2"), p.Branch.Child(2))
	require.Equal(t, Branch("2.0.11"), Branch("2").Child(0).Child(11))
	p.Branch = "2.0"
	require.Equal(t, "train-3-1-0.2.0", p.ID())
	parent, ok := p.Branch.Parent()
	require.True(t, ok)
	require.Equal(t, Branch("2"), parent)
	parent, ok = parent.Parent()
	require.True(t, ok)
	require.Empty(t, parent)
	_, ok = parent.Parent()
	require.False(t, ok)
	for _, good := range []Branch{"", "0", "10.0.3"} {
		require.NoError(t, good.Check())
	}
	for _, bad := range []Branch{".", "0.", ".0", "-1", "01", "+1", "1..2", "a", "0-1"} {
		require.ErrorContains(t, bad.Check(), fmt.Sprintf("branch %q", bad))
	}
}

// No two places have the same id, and no two requests of a run the same seed, whatever the phases and tasks are called.
func TestPlacesAreToldApart(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	type request struct {
		Place
		task string
		turn int
	}
	ids, seeds := map[string]Place{}, map[uint64]request{}
	branches := 0
	for range 30000 {
		p := Place{Phase: []string{"train", "train-1", "e.1"}[r.IntN(3)], Step: r.IntN(3), Group: r.IntN(3), Index: r.IntN(3)}
		for range r.IntN(4) {
			p.Branch = p.Branch.Child(r.IntN(3))
			branches++
		}
		q := request{p, []string{"", "t", "t|0", "t|1|0", "0/0", "0/0.1"}[r.IntN(6)], r.IntN(3)}
		id := p.ID()
		if other, ok := ids[id]; ok {
			require.Equal(t, other, p)
		}
		ids[id] = p
		seed := p.Seed(1, q.task, q.turn)
		if other, ok := seeds[seed]; ok {
			require.Equal(t, other, q)
		}
		seeds[seed] = q
		require.Equal(t, p.Branch != "", strings.Contains(id[strings.LastIndexByte(id, '-'):], "."))
	}
	require.Greater(t, branches, 15000)
}
