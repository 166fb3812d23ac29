package store

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A row has the newest format only where a turn needs it, and an entropy that no program writes is a damage.
func TestEntropiesAreStored(t *testing.T) {
	want := twoTurns(t)
	require.Equal(t, byte(rowFormat2), encodeRow(want, &mark{}, true)[0])
	want.Turns[1].Entropy = 1.25
	row := encodeRow(want, &mark{}, true)
	require.Equal(t, byte(rowFormat6), row[0])
	got := &trajectory.Trajectory{ID: want.ID}
	require.NoError(t, grow(got, row))
	require.Equal(t, want.Turns[1], got.Turns[1])
	require.Zero(t, got.Turns[0].Entropy)
	at := bytes.LastIndex(row, binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.25)))
	require.Positive(t, at)
	for _, bad := range []float64{math.NaN(), -1, math.Inf(1)} {
		broken := append([]byte{}, row[:len(row)-4]...)
		binary.LittleEndian.PutUint64(broken[at:], math.Float64bits(bad))
		broken = binary.LittleEndian.AppendUint32(broken, crc32.Checksum(broken, castagnoli))
		require.ErrorContains(t, grow(&trajectory.Trajectory{ID: want.ID}, broken), "an entropy is no number of 0 or more")
	}
}

// Who began a turn's completion is stored with the turn, in a format of its own, so that a trajectory without an end still says where it forks; and what
// no program writes is a damage.
func TestBeginningsAreStored(t *testing.T) {
	want := twoTurns(t)
	turn := &want.Turns[1]
	require.Greater(t, turn.CompletionEnd-turn.CompletionStart, 2)
	turn.Shared, turn.Begun = trajectory.SharedName(want.ID, 1), []trajectory.Begun{{Shared: "train-0-0-0:1", End: 1}, {Shared: "train-0-0-0.1:1", End: 2}}
	row := encodeRow(want, &mark{}, true)
	require.Equal(t, byte(rowFormat7), row[0])
	got := &trajectory.Trajectory{ID: want.ID}
	require.NoError(t, grow(got, row))
	require.Equal(t, want.Turns, got.Turns)
	for _, bad := range [][]trajectory.Begun{{{Shared: "a:1", End: 0}}, {{Shared: "a:1", End: 2}, {Shared: "b:1", End: 2}}, {{Shared: "a:1", End: turn.CompletionEnd - turn.CompletionStart}}} {
		turn.Begun = bad
		require.ErrorContains(t, grow(&trajectory.Trajectory{ID: want.ID}, encodeRow(want, &mark{}, true)), "the beginnings of a completion are not in order")
	}
}

// A group of trees is found whole, in the order of its trees, with what has no end yet; rows of groups with similar numbers stay apart.
func TestTreesAreRecovered(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "s.db"))
	require.NoError(t, err)
	defer db.Close()
	task := trajectory.Task{ID: "q"}
	for _, group := range []int{1, 11} {
		require.NoError(t, db.Admit(t.Context(), Admission{Phase: Train, Group: group, Task: task, Size: 4}))
	}
	leaf := func(group, index int, b trajectory.Branch, forked int) *trajectory.Trajectory {
		tr := twoTurns(t)
		tr.ID = trajectory.Place{Phase: Train, Group: group, Index: index, Branch: b}.ID()
		tr.TaskID, tr.Group, tr.Index, tr.Branch, tr.Forked = "q", group, index, b, forked
		for k := range tr.Turns {
			tr.Turns[k].Shared = trajectory.SharedName(tr.ID, k)
			if k < forked {
				tr.Turns[k].Shared = trajectory.SharedName(ID(Train, 0, group, index), k)
			}
		}
		return tr
	}
	ids := func(all []*trajectory.Trajectory) (out []string) {
		for _, tr := range all {
			id := ""
			if tr != nil {
				id = tr.ID
			}
			out = append(out, id)
		}
		return out
	}
	for _, tr := range []*trajectory.Trajectory{leaf(1, 0, "10", 1), leaf(1, 0, "", 0), leaf(11, 0, "2", 1), leaf(11, 0, "", 0), leaf(1, 0, "2", 1)} {
		require.NoError(t, db.AddTrajectory(t.Context(), Train, task, tr))
	}
	require.NoError(t, db.AddTurn(t.Context(), leaf(1, 3, "", 0)))
	within := leaf(11, 0, "2.0", 1)
	within.Turns[1].Begun = []trajectory.Begun{{Shared: "train-0-11-0.2:1", End: 2}}
	require.NoError(t, db.AddTurn(t.Context(), within))
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	one, eleven := log.Outstanding[0], log.Outstanding[1]
	require.Equal(t, []string{"train-0-1-0", "train-0-1-0.2", "train-0-1-0.10", ""}, ids(one.Finished))
	require.Equal(t, []string{"", "", "", "train-0-1-3"}, ids(one.Partial))
	require.Equal(t, []string{"train-0-11-0", "train-0-11-0.2", "", ""}, ids(eleven.Finished))
	require.Equal(t, []string{"", "", "train-0-11-0.2.0", ""}, ids(eleven.Partial))
	require.Equal(t, 1, eleven.Partial[2].Forked, "as its turns say")
	require.Equal(t, 2, eleven.Partial[2].ForkedAt, "as its turns say")
	require.Equal(t, trajectory.Branch("2.0"), eleven.Partial[2].Branch)
	_, err = db.Reader.Groups(t.Context(), []GroupRef{{Group: 1}}, "")
	require.ErrorContains(t, err, "1 of its 4 trajectories are missing")
	require.NoError(t, db.AddTrajectory(t.Context(), Train, task, leaf(1, 3, "", 0)))
	groups, err := db.Reader.Groups(t.Context(), []GroupRef{{Group: 1}}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"train-0-1-0", "train-0-1-0.2", "train-0-1-0.10", "train-0-1-3"}, ids(groups[0].Trajectories))
	require.NoError(t, db.AddTrajectory(t.Context(), Train, task, leaf(1, 1, "", 0)))
	_, err = db.Reader.Groups(t.Context(), []GroupRef{{Group: 1}}, "")
	require.ErrorContains(t, err, "has 5 trajectories with an end, and 4 were admitted")
}

// Where a trajectory forks within a turn is known from the first row on that is stored of it, though it has no turn of its own yet, as where a reward is posted for
// a turn that it shares, or its first own turn is not the one that it forks within.
func TestForksAreRecoveredBeforeTheirFirstTurn(t *testing.T) {
	root := twoTurns(t)
	place := trajectory.Place{Phase: Train, Branch: "0"}
	leaf := func(turns int, begun ...trajectory.Begun) *trajectory.Trajectory {
		tr := twoTurns(t)
		tr.ID, tr.Branch, tr.Forked, tr.ForkedAt = place.ID(), place.Branch, 1, 2
		tr.Turns[0].Shared, tr.Turns[1].Shared, tr.Turns[1].Begun = trajectory.SharedName(root.ID, 0), trajectory.SharedName(tr.ID, 1), begun
		tr.Turns = tr.Turns[:turns]
		end := tr.Turns[turns-1].ObservationEnd
		s := tr.Samples[0]
		tr.Samples = []*trajectory.Sample{{TokenIDs: s.TokenIDs[:end], ResponseMask: s.ResponseMask[:end], SamplingLogprobs: s.SamplingLogprobs[:end], PolicyVersion: s.PolicyVersion[:end]}}
		return tr
	}
	posted := leaf(1)
	posted.Posted = []trajectory.Posted{{Turn: 0, Reward: 0.5}}
	later := leaf(2, trajectory.Begun{Shared: "train-0-0-0:1", End: 2})
	later.Posted = posted.Posted
	atOnce := leaf(1)
	atOnce.Forked, atOnce.Turns, atOnce.Samples, atOnce.Posted = 0, nil, nil, []trajectory.Posted{{Turn: -1, Reward: 1}}
	for name, c := range map[string]struct {
		rows   []*trajectory.Trajectory
		forked int
		format byte // of the last row
	}{
		"a reward":                         {[]*trajectory.Trajectory{posted}, 1, rowFormat8},
		"a reward, in the first turn":      {[]*trajectory.Trajectory{atOnce}, 0, rowFormat8},
		"a reward, then the turn":          {[]*trajectory.Trajectory{posted, later}, 1, rowFormat7},
		"another turn first":               {[]*trajectory.Trajectory{leaf(2)}, 1, rowFormat8},
		"the turn that it forks within":    {[]*trajectory.Trajectory{leaf(2, trajectory.Begun{Shared: "train-0-0-0:1", End: 2})}, 1, rowFormat7},
		"the turns before the fork, alone": {[]*trajectory.Trajectory{leaf(1)}, 1, rowFormat8},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := Open(filepath.Join(t.TempDir(), "s.db"))
			require.NoError(t, err)
			defer db.Close()
			task := trajectory.Task{ID: "q"}
			require.NoError(t, db.Admit(t.Context(), Admission{Phase: Train, Task: task, Size: 2}))
			require.NoError(t, db.AddTrajectory(t.Context(), Train, task, root))
			for _, tr := range c.rows {
				require.NoError(t, db.AddTurn(t.Context(), tr))
			}
			var row []byte
			require.NoError(t, db.Reader.trajectories.file.db.QueryRow("SELECT body FROM turns ORDER BY n DESC").Scan(&row))
			require.Equal(t, c.format, row[0])
			log, err := db.Recover(t.Context(), 0)
			require.NoError(t, err)
			got, last := log.Outstanding[0].Partial[1], c.rows[len(c.rows)-1]
			require.Equal(t, c.forked, got.Forked)
			require.Equal(t, 2, got.ForkedAt)
			require.Equal(t, last.Turns, got.Turns)
			require.Equal(t, last.Posted, got.Posted)
		})
	}
}

// What failed before it was where its record ends takes the place of that; what did not fail must have all of it.
func TestAFailedTrajectoryReplacesItsTurns(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "s.db"))
	require.NoError(t, err)
	defer db.Close()
	task := trajectory.Task{ID: "q"}
	require.NoError(t, db.Admit(t.Context(), Admission{Phase: Train, Task: task, Size: 1}))
	require.NoError(t, db.AddTurn(t.Context(), twoTurns(t)))
	short := twoTurns(t)
	short.Turns, short.Samples = nil, nil
	require.ErrorContains(t, db.AddTrajectory(t.Context(), Train, task, short), "it has 0 turns, and 2 are stored")
	short.Fail(trajectory.OriginRender, "changed")
	require.NoError(t, db.AddTrajectory(t.Context(), Train, task, short))
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	got := log.Outstanding[0].Finished[0]
	require.Equal(t, "changed", got.Err)
	require.Empty(t, got.Turns)
	require.Nil(t, log.Outstanding[0].Partial[0])
}

// Of a group that is trained or dropped nothing is kept in memory, whatever its trajectories fork off.
func TestASettledTreeIsForgotten(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "s.db"))
	require.NoError(t, err)
	defer db.Close()
	for group := range 12 {
		require.NoError(t, db.Admit(t.Context(), Admission{Phase: Train, Group: group, Task: trajectory.Task{ID: "q"}, Size: 2}))
	}
	for _, p := range []trajectory.Place{{Phase: Train, Group: 1}, {Phase: Train, Group: 1, Branch: "0.1"}, {Phase: Train, Group: 11, Branch: "0"}} {
		tr := twoTurns(t)
		tr.ID = p.ID()
		require.NoError(t, db.AddTurn(t.Context(), tr))
	}
	require.NoError(t, db.AddBatch(t.Context(), Batch{Groups: []GroupRef{{Group: 0}}, Others: []GroupRef{{Group: 1}}}))
	require.Len(t, db.ledger.unfinished, 1)
	require.Contains(t, db.ledger.unfinished, "train-0-11-0.0")
}

// A trajectory that failed and was being sampled again when the next process was killed goes on after what that one recorded, with or without a tree; one whose
// record ends with its failure begins anew, and one that did not fail stays.
func TestWhatIsTriedAgainGoesOn(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "s.db"))
	require.NoError(t, err)
	defer db.Close()
	task := trajectory.Task{ID: "q"}
	require.NoError(t, db.Admit(t.Context(), Admission{Phase: Train, Task: task, Size: 5}))
	part := func(p trajectory.Place, turns int) *trajectory.Trajectory {
		tr := twoTurns(t)
		tr.ID, tr.TaskID, tr.Index, tr.Branch = p.ID(), "q", p.Index, p.Branch
		tr.Turns = tr.Turns[:turns]
		for k := range tr.Turns {
			tr.Turns[k].Shared = trajectory.SharedName(tr.ID, k)
		}
		end := tr.Turns[turns-1].ObservationEnd
		s := tr.Samples[0]
		tr.Samples = []*trajectory.Sample{{TokenIDs: s.TokenIDs[:end], ResponseMask: s.ResponseMask[:end], SamplingLogprobs: s.SamplingLogprobs[:end], PolicyVersion: s.PolicyVersion[:end]}}
		return tr
	}
	root, other, third := trajectory.Place{Phase: Train}, trajectory.Place{Phase: Train, Index: 1}, trajectory.Place{Phase: Train, Index: 2}
	leaf, still := trajectory.Place{Phase: Train, Branch: "0"}, trajectory.Place{Phase: Train, Branch: "1"}
	end := func(p trajectory.Place, turns int, why string) {
		tr := part(p, turns)
		if why != "" {
			tr.Fail(trajectory.OriginEngine, why)
		}
		require.NoError(t, db.AddTrajectory(t.Context(), Train, task, tr))
	}
	end(root, 2, "")
	require.NoError(t, db.AddTurn(t.Context(), part(other, 1)))
	require.NoError(t, db.AddTurn(t.Context(), part(leaf, 1)))
	end(other, 2, "gone")
	end(leaf, 2, "gone")
	end(still, 1, "gone")
	end(third, 2, "gone")
	for _, p := range []trajectory.Place{other, leaf, third} { // a process that tries them again
		again := part(p, 1)
		again.Turns[0].Seed = 77
		require.NoError(t, db.AddTurn(t.Context(), again))
	}
	end(third, 2, "gone again")
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	g := log.Outstanding[0]
	ids := func(all []*trajectory.Trajectory) (out []string) {
		for _, tr := range all {
			if tr != nil {
				out = append(out, tr.ID+" "+tr.Err)
			}
		}
		return out
	}
	require.ElementsMatch(t, []string{"train-0-0-0 ", "train-0-0-0.1 gone", "train-0-0-2 gone again"}, ids(g.Finished))
	require.ElementsMatch(t, []string{"train-0-0-1 ", "train-0-0-0.0 "}, ids(g.Partial))
	for i := range g.Size {
		require.False(t, g.Finished[i] != nil && g.Partial[i] != nil)
		if tr := g.Partial[i]; tr != nil {
			require.Len(t, tr.Turns, 1)
			require.EqualValues(t, 77, tr.Turns[0].Seed)
			whole := part(trajectory.Place{Phase: Train, Index: tr.Index, Branch: tr.Branch}, 2)
			whole.Turns[0].Seed = 77
			require.NoError(t, db.AddTrajectory(t.Context(), Train, task, whole))
		}
	}
	log, err = db.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, ids(log.Outstanding[0].Partial))
	require.ElementsMatch(t, []string{"train-0-0-0 ", "train-0-0-0.0 ", "train-0-0-0.1 gone", "train-0-0-1 ", "train-0-0-2 gone again"}, ids(log.Outstanding[0].Finished))
	for _, tr := range log.Outstanding[0].Finished {
		if tr.Err == "" && tr.ID != root.ID() {
			require.Len(t, tr.Turns, 2)
			require.EqualValues(t, 77, tr.Turns[0].Seed)
		}
	}
}
