package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

func admission(step, group, size int) store.Admission {
	return store.Admission{Phase: store.Train, Step: step, Group: group, Size: size, Version: int32(step), Task: trajectory.Task{ID: fmt.Sprint("task", group), Prompt: []trajectory.Message{trajectory.Text("user", "1 < 2")}}}
}

// begin is a trajectory of a group without turns.
func begin(a store.Admission, index int) *trajectory.Trajectory {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2, 3})
	return &trajectory.Trajectory{
		ID: store.ID(a.Phase, a.Step, a.Group, index), TaskID: a.Task.ID, Step: a.Step, Group: a.Group, Index: index, Samples: []*trajectory.Sample{s},
	}
}

// turn samples n tokens and observes as many.
func turn(t testing.TB, tr *trajectory.Trajectory, n int, version int32) {
	s := tr.Samples[0]
	record := trajectory.Turn{CompletionStart: s.Len(), Seed: uint64(n), Completion: fmt.Sprint("turn ", len(tr.Turns)), FinishReason: trajectory.FinishStop}
	for i := range n {
		require.NoError(t, s.AppendResponse([]int32{int32(10 + i)}, []float32{-float32(i) / 8}, []int32{version + int32(i/2)}))
	}
	record.CompletionEnd = s.Len()
	for i := range n {
		s.AppendObservation([]int32{int32(90 + i)})
	}
	record.ObservationEnd = s.Len()
	tr.Turns = append(tr.Turns, record)
}

func clone(t *trajectory.Trajectory) *trajectory.Trajectory {
	c := *t
	c.Turns = append([]trajectory.Turn(nil), t.Turns...)
	c.Samples = nil
	for _, s := range t.Samples {
		c.Samples = append(c.Samples, &trajectory.Sample{
			TokenIDs: append([]int32(nil), s.TokenIDs...), ResponseMask: append([]bool(nil), s.ResponseMask...),
			SamplingLogprobs: append([]float32(nil), s.SamplingLogprobs...), PolicyVersion: append([]int32(nil), s.PolicyVersion...),
		})
	}
	return &c
}

// Recovery tells which trajectories a batch found running, also where they have ended since. A group that was admitted while the batch was being
// stored began after it.
func TestRecoverKnowsWhatABatchLeftRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	trained, left, later := admission(0, 0, 1), admission(0, 1, 3), admission(0, 2, 1)
	left.Position, later.Position = 1, 2
	require.NoError(t, s.Admit(ctx, trained, left, later))
	end := func(a store.Admission, index int) string {
		tr := begin(a, index)
		turn(t, tr, 2, 0)
		require.NoError(t, s.AddTurn(ctx, tr))
		tr.StopReason = trajectory.StopAnswer
		require.NoError(t, s.AddTrajectory(ctx, store.Train, a.Task, tr))
		return tr.ID
	}
	end(trained, 0)
	end(left, 0)
	require.NoError(t, s.AddBatch(ctx, store.Batch{Groups: []store.GroupRef{{Step: 0, Group: 0}}, Dealt: []int{2}}))
	cut := end(left, 1)
	end(later, 0)
	require.NoError(t, s.AddStep(ctx, 0, nil, nil))
	require.NoError(t, s.Close())

	s = open(t, path)
	r, err := s.Recover(ctx, 1)
	require.NoError(t, err)
	require.Len(t, r.Outstanding, 2)
	require.True(t, r.Outstanding[0].Left)
	require.Equal(t, map[string]bool{cut: true}, r.Outstanding[0].Cut)
	require.False(t, r.Outstanding[1].Left)
	require.Empty(t, r.Outstanding[1].Cut)
}

func TestRecoverGivesBackWhatWasLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	all := []store.Admission{admission(0, 0, 2), admission(0, 1, 2), admission(0, 2, 1)}
	greedy := admission(0, 1, 1)
	greedy.Phase = "greedy"
	require.NoError(t, s.Admit(ctx, append(all, greedy)...))
	require.ErrorContains(t, s.Admit(ctx, all[1]), "store: train group 1 of step 1 is admitted already")
	var trajectories []*trajectory.Trajectory
	for _, a := range all {
		for i := range a.Size {
			tr := begin(a, i)
			turn(t, tr, 2, 0)
			require.NoError(t, s.AddTurn(ctx, tr))
			trajectories = append(trajectories, tr)
		}
	}
	require.ErrorContains(t, s.AddTurn(ctx, trajectories[0]), "no turn beyond the 1 that are stored")
	turn(t, trajectories[0], 3, 1)
	require.NoError(t, s.AddTurn(ctx, trajectories[0]))
	unfinished := clone(trajectories[0])
	finished := trajectories[1]
	finished.Reward, finished.StopReason = 0.5, trajectory.StopAnswer
	require.NoError(t, s.AddTrajectory(ctx, store.Train, all[0].Task, finished))
	anew := admission(0, 3, 1)
	anew.RetryOf = &store.GroupRef{Step: 0, Group: 2}
	require.NoError(t, s.Admit(ctx, anew)) // group 2 grew too stale
	anew.RetryOf = nil
	require.NoError(t, s.AddEvaluation(ctx, "before", 0, map[string]int{"tasks": 3}))
	require.NoError(t, s.Close())

	s = open(t, path)
	r, err := s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, map[int]int{0: 4}, r.Taken)
	require.Equal(t, 6, r.Events)
	require.Empty(t, r.Batches)
	require.Len(t, r.Outstanding, 4)
	require.Equal(t, all[0], r.Outstanding[0].Admission)
	require.False(t, r.Outstanding[0].Left)
	require.Equal(t, []*trajectory.Trajectory{nil, finished}, r.Outstanding[0].Finished)
	require.Equal(t, []*trajectory.Trajectory{unfinished, nil}, r.Outstanding[0].Partial)
	require.Equal(t, []*trajectory.Trajectory{trajectories[2], trajectories[3]}, r.Outstanding[1].Partial)
	require.Equal(t, greedy, r.Outstanding[2].Admission)
	require.Equal(t, anew, r.Outstanding[3].Admission)
	for i, o := range r.Outstanding {
		require.Equal(t, i == 3, o.Latest, "the others were sampled before it was admitted")
	}
	evaluations, err := s.Reader.Evaluations()
	require.NoError(t, err)
	require.Equal(t, `{"tasks":3}`, string(evaluations[0]))

	// What goes on counts on.
	turn(t, unfinished, 1, 2)
	require.NoError(t, s.AddTurn(ctx, unfinished))
	require.NoError(t, s.AddTrajectory(ctx, store.Train, all[0].Task, unfinished))
	s.Restart(trajectories[2].ID)
	again := begin(all[1], 0)
	turn(t, again, 4, 5)
	require.NoError(t, s.AddTurn(ctx, again))
	b := store.Batch{Step: 0, Groups: []store.GroupRef{{Step: 0, Group: 0}}, Dealt: []int{3}, Refills: 1}
	require.ErrorContains(t, s.AddBatch(ctx, store.Batch{Groups: []store.GroupRef{{Step: 0, Group: 2}}}), "batch of step 1: group 2 of step 1 is not admitted")
	require.NoError(t, s.AddBatch(ctx, b))
	require.ErrorContains(t, s.AddBatch(ctx, b), "it was trained or dropped already")
	require.NoError(t, s.Close())

	s = open(t, path)
	r, err = s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, []store.Batch{b}, r.Batches)
	require.Len(t, r.Outstanding, 3)
	require.Equal(t, []*trajectory.Trajectory{again, trajectories[3]}, r.Outstanding[0].Partial, "what began anew replaces what was there")
	require.True(t, r.Outstanding[0].Left, "a batch was taken meanwhile")
	groups, err := s.Reader.Groups(ctx, b.Groups, "greedy")
	require.NoError(t, err)
	require.Equal(t, []trajectory.Group{{Task: all[0].Task, Trajectories: []*trajectory.Trajectory{unfinished, finished}}}, groups)
	r, err = s.Recover(ctx, 1)
	require.NoError(t, err)
	require.Empty(t, r.Batches)
	_, err = s.Reader.Groups(ctx, []store.GroupRef{{Step: 0, Group: 1}}, "")
	require.ErrorContains(t, err, "group 1 of step 1: trajectory train-0-1-0 is missing")
}

// Many groups grow at once, end, are dropped and trained; the process may end between any two records.
func TestRecoverAfterAnyInterleaving(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, round))
		path := filepath.Join(t.TempDir(), fmt.Sprint(round, ".db"))
		want := map[string]*trajectory.Trajectory{} // what is stored last
		ended, dropped, trained := map[string]bool{}, map[int]bool{}, map[int]bool{}
		var order []int
		s := open(t, path)
		for step := range 3 {
			var mu sync.Mutex
			var all sync.WaitGroup
			for g := range 4 {
				a := admission(step, g, 3)
				require.NoError(t, s.Admit(ctx, a))
				for i := range a.Size {
					turns, ends := random.IntN(5), random.IntN(4) > 0
					sizes := random.Perm(6)
					all.Go(func() {
						tr := begin(a, i)
						for k := range turns {
							turn(t, tr, sizes[k], int32(step))
							if !testErr(t, s.AddTurn(ctx, tr)) {
								return
							}
							mu.Lock()
							want[tr.ID] = clone(tr)
							mu.Unlock()
						}
						if ends {
							tr.StopReason = trajectory.StopMaxTurns
							if !testErr(t, s.AddTrajectory(ctx, store.Train, a.Task, tr)) {
								return
							}
							mu.Lock()
							want[tr.ID], ended[tr.ID] = tr, true
							mu.Unlock()
						}
					})
				}
			}
			all.Wait()
			order = nil
			b := store.Batch{Step: step, Groups: []store.GroupRef{}}
			for g := range 4 {
				complete := ended[store.ID(store.Train, step, g, 0)] && ended[store.ID(store.Train, step, g, 1)] && ended[store.ID(store.Train, step, g, 2)]
				switch {
				case complete && len(order) < 2:
					order, trained[4*step+g] = append(order, g), true
				case random.IntN(3) == 0:
					b.Others = append(b.Others, store.GroupRef{Step: step, Group: g})
					dropped[4*step+g] = true
				}
			}
			for _, g := range order {
				b.Groups = append(b.Groups, store.GroupRef{Step: step, Group: g})
			}
			require.NoError(t, s.AddBatch(ctx, b))
			if random.IntN(2) == 0 {
				require.NoError(t, s.Close())
				s = open(t, path)
				_, err := s.Recover(ctx, random.IntN(step+1))
				require.NoError(t, err)
			}
		}
		reader, err := store.OpenReader(path)
		require.NoError(t, err)
		r, err := reader.Recover(ctx, 0)
		require.NoError(t, err)
		require.Len(t, r.Batches, 3)
		got := map[string]*trajectory.Trajectory{}
		count := 0
		for _, g := range r.Outstanding {
			count++
			n := 4*g.Step + g.Group
			require.False(t, dropped[n] || trained[n])
			for i := range g.Size {
				require.Equal(t, ended[store.ID(g.Phase, g.Step, g.Group, i)], g.Finished[i] != nil)
				for _, tr := range []*trajectory.Trajectory{g.Finished[i], g.Partial[i]} {
					if tr != nil {
						require.Nil(t, got[tr.ID])
						got[tr.ID] = tr
					}
				}
			}
		}
		for _, b := range r.Batches {
			groups, err := reader.Groups(ctx, b.Groups, "")
			require.NoError(t, err)
			for k, g := range groups {
				require.True(t, trained[4*b.Groups[k].Step+b.Groups[k].Group])
				for _, tr := range g.Trajectories {
					got[tr.ID] = tr
				}
			}
		}
		require.Equal(t, 12, count+len(dropped)+len(trained), "every group is somewhere, once")
		for id, tr := range want {
			if !dropped[4*tr.Step+tr.Group] {
				require.Equal(t, tr, got[id])
				delete(got, id)
			}
		}
		require.Empty(t, got)
		require.NoError(t, reader.Close())
		require.NoError(t, s.Close())
	}
}

func testErr(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// The write-ahead log is cut at any byte, as by a machine that stops: what is left is a beginning of what was added.
func TestACutLogLeavesABeginning(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	s := open(t, path)
	a := admission(0, 0, 1)
	require.NoError(t, s.Admit(ctx, a))
	tr := begin(a, 0)
	for range 20 {
		turn(t, tr, 5, 0)
		require.NoError(t, s.AddTurn(ctx, tr))
	}
	db, err := os.ReadFile(path)
	require.NoError(t, err)
	wal, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.NotEmpty(t, wal)
	for i := range 25 {
		cut := filepath.Join(dir, fmt.Sprint("cut", i, ".db"))
		require.NoError(t, os.WriteFile(cut, append(db[:len(db):len(db)], make([]byte, i*100)...), 0o600)) // and garbage after the file's end
		require.NoError(t, os.WriteFile(cut+"-wal", wal[:rand.IntN(len(wal))], 0o600))
		s, err := store.Open(cut)
		require.NoError(t, err)
		r, err := s.Recover(ctx, 0)
		require.NoError(t, err)
		if len(r.Outstanding) > 0 {
			if got := r.Outstanding[0].Partial[0]; got != nil {
				require.Equal(t, tr.Turns[:len(got.Turns)], got.Turns)
				require.Equal(t, tr.Samples[0].TokenIDs[:got.Samples[0].Len()], got.Samples[0].TokenIDs)
			}
		}
		require.NoError(t, s.Close())
	}
}

func TestDamagedRowsAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	a := admission(0, 0, 2)
	require.NoError(t, s.Admit(ctx, a))
	for i := range 2 {
		tr := begin(a, i)
		turn(t, tr, 3, 0)
		require.NoError(t, s.AddTurn(ctx, tr))
		if i == 0 {
			require.NoError(t, s.AddTrajectory(ctx, store.Train, a.Task, tr))
		}
	}
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	for _, c := range []struct{ harm, says string }{
		{"UPDATE turns SET body = substr(body, 1, 30) WHERE n = 1", "trajectory train-0-0-0 is damaged: row 1 of turns: its checksum is wrong"},
		{"UPDATE turns SET body = substr(body, 1, 19) WHERE n = 2", "trajectory train-0-0-0 is damaged: row 2 of turns: its checksum is wrong"},
		{"UPDATE turns SET body = substr(body, 1, 30) WHERE n = 3", "row 3 of turns is damaged: its checksum is wrong"},
		{"DELETE FROM turns WHERE n = 1", "trajectory train-0-0-0 is damaged: row 1 of turns: sql: no rows in result set"},
		{"UPDATE trajectories SET json = replace(json, '\"reward\":0', '\"reward\":1')", "trajectory train-0-0-0 is damaged: its checksum is wrong"},
		{"UPDATE events SET json = replace(json, '2', '3')", "event 1 is damaged: its checksum is wrong"},
		{"UPDATE events SET n = 2", "event 1 is missing"},
		{"DELETE FROM tasks", "task task0: sql: no rows in result set"},
	} {
		harmed := filepath.Join(t.TempDir(), "harmed.db")
		_, err := db.Exec("VACUUM INTO ?", harmed)
		require.NoError(t, err)
		other, err := sql.Open("sqlite", harmed)
		require.NoError(t, err)
		_, err = other.Exec(c.harm)
		require.NoError(t, err)
		require.NoError(t, other.Close())
		_, err = open(t, harmed).Recover(ctx, 0)
		require.ErrorContains(t, err, "store: "+harmed+": recovery: "+c.says+"; restore the file from a copy, or begin a new run")
	}
	stopped, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("interrupt signal received"))
	sound := filepath.Join(t.TempDir(), "sound.db")
	_, err = db.Exec("VACUUM INTO ?", sound)
	require.NoError(t, err)
	_, err = open(t, sound).Recover(stopped, 0)
	require.EqualError(t, err, "store: "+sound+": recovery: interrupt signal received", "nothing is wrong with the file")
}

// A store of version 1 is read as it is, and goes on as the current version.
func TestAStoreOfVersionOneIsMigrated(t *testing.T) {
	path := fromScript(t, "testdata/version1.sql")
	check := func(s *store.Reader) {
		n := 0
		require.NoError(t, s.Select(ctx, store.Selection{}, func(r store.Record) error {
			n++
			require.Equal(t, "train-0-0-0", r.Trajectory.ID)
			require.Equal(t, []*trajectory.Sample{sampleOf(t)}, r.Trajectory.Samples)
			require.Equal(t, "hello", r.Trajectory.Turns[0].Completion)
			require.Equal(t, []float32{0, 0, -1, -2}, r.Updates[0].OldLogprobs)
			return nil
		}))
		require.Equal(t, 1, n)
	}
	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	check(reader)
	require.NoError(t, reader.Close())
	s := open(t, path)
	check(s.Reader)
	r, err := s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Zero(t, r.Events)
	require.NoError(t, s.Admit(ctx, admission(1, 0, 1)))
}

func BenchmarkAddTurn(b *testing.B) {
	s, err := store.Open(filepath.Join(b.TempDir(), "s.db"))
	require.NoError(b, err)
	defer s.Close()
	a := admission(0, 0, 1)
	var next int
	var mu sync.Mutex
	b.SetParallelism(500)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		next++
		n := next
		mu.Unlock()
		for pb.Next() {
			tr := begin(a, n)
			tr.Samples[0].AppendObservation(make([]int32, 200))
			for range 4 { // a turn of four is one operation
				turn(b, tr, 25, 0)
				if err := s.AddTurn(ctx, tr); err != nil {
					b.Error(err)
				}
				if len(tr.Turns) < 4 && !pb.Next() {
					break
				}
			}
			if err := s.AddTrajectory(ctx, store.Train, a.Task, tr); err != nil {
				b.Error(err)
			}
			n += 100000
		}
	})
}
