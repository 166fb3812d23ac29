package store_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// follow takes n entries of a tail.
func follow(t testing.TB, s *store.Reader, after store.Cursor, n int) (out []store.Entry) {
	own, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for e, err := range s.Tail(own, after) {
		require.NoError(t, err)
		if out = append(out, e); len(out) == n {
			break
		}
	}
	require.Len(t, out, n)
	return out
}

// atEnd requires that nothing follows.
func atEnd(t testing.TB, s *store.Reader, after store.Cursor) {
	own, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	for e, err := range s.Tail(own, after) {
		t.Errorf("%#v, %v", e, err)
	}
}

func eventsOf(entries []store.Entry) (out []store.Event) {
	for _, e := range entries {
		out = append(out, e.Event)
	}
	return out
}

// tailStory writes a little run and returns what a tail gives of it, in the order of the calls.
func tailStory(t testing.TB, s *store.Store) (want []store.Event) {
	idOnly := func(a store.Admission) store.Admission {
		a.Task = trajectory.Task{ID: a.Task.ID}
		return a
	}
	a, b := admission(0, 0, 2), admission(0, 1, 1)
	require.NoError(t, s.Admit(ctx, a, b))
	want = append(want, store.GroupAdmitted{Admission: idOnly(a)}, store.GroupAdmitted{Admission: idOnly(b)})
	for i := range a.Size {
		tr := begin(a, i)
		for k := range 2 {
			turn(t, tr, 2, 0)
			require.NoError(t, s.AddTurn(ctx, tr))
			want = append(want, store.TrajectoryGrew{ID: tr.ID, First: k, Turns: tr.Turns[k:]})
			tr = clone(tr)
		}
		if i == 0 {
			c := admission(0, 2, 1) // takes the task of the second group
			c.RetryOf = &store.GroupRef{Group: 1}
			require.NoError(t, s.Admit(ctx, c))
			c.RetryOf = nil
			want = append(want, store.GroupDropped{GroupRef: store.GroupRef{Group: 1}, Reason: "too stale; its task is sampled anew as group 2 of step 1"}, store.GroupAdmitted{Admission: idOnly(c)})
		} else {
			turn(t, tr, 1, 0) // stored with the end
			want = append(want, store.TrajectoryGrew{ID: tr.ID, First: 2, Turns: tr.Turns[2:], Ended: true})
		}
		require.NoError(t, s.AddTrajectory(ctx, store.Train, a.Task, tr))
		if i == 0 {
			want = append(want, store.TrajectoryGrew{ID: tr.ID, First: 2, Ended: true})
		}
	}
	batch := store.Batch{Step: 0, Groups: []store.GroupRef{{}}, Dealt: []int{2}}
	require.NoError(t, s.AddBatch(ctx, batch))
	require.NoError(t, s.AddStep(ctx, 0, map[string]float64{"reward/mean": 0.5}, nil))
	return append(want, store.BatchTaken{Batch: batch}, store.StepEnded{Metrics: map[string]float64{"reward/mean": 0.5}})
}

func TestTailTellsWhatWasWrittenInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	want := tailStory(t, s)
	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	defer reader.Close()
	got := follow(t, reader, store.Cursor{}, len(want))
	require.Equal(t, want, eventsOf(got))
	for i, e := range got { // from anywhere, with a cursor that was kept as JSON
		kept, err := json.Marshal(e.Next)
		require.NoError(t, err)
		var at store.Cursor
		require.NoError(t, json.Unmarshal(kept, &at))
		if i+1 < len(got) {
			require.Equal(t, want[i+1:], eventsOf(follow(t, reader, at, len(want)-i-1)))
		}
	}
	last := got[len(got)-1].Next
	atEnd(t, reader, last)

	require.NoError(t, s.Truncate(ctx, 0))
	got = follow(t, reader, last, 1)
	require.Equal(t, []store.Event{store.StepsForgotten{}}, eventsOf(got))
	require.NoError(t, s.AddStep(ctx, 0, nil, nil))
	require.Equal(t, []store.Event{store.StepEnded{Metrics: map[string]float64{}}}, eventsOf(follow(t, reader, got[0].Next, 1)))
	r, err := s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 5, r.Events, "three admissions, a drop and a batch; recovery reads nothing else")
}

// Pages end anywhere: many rows and many events, in an order that changes.
func TestTailOverManyPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	var want []string
	for g := range 600 {
		a := admission(0, g, 1)
		require.NoError(t, s.Admit(ctx, a))
		want = append(want, fmt.Sprint("admitted ", g))
		for range g % 3 {
			tr := begin(a, 0)
			turn(t, tr, 1, 0)
			require.NoError(t, s.AddTurn(ctx, tr))
			want = append(want, tr.ID)
			s.Restart(tr.ID)
		}
	}
	for range 600 { // rows without events between them
		tr := begin(admission(0, 0, 1), 0)
		turn(t, tr, 1, 0)
		require.NoError(t, s.AddTurn(ctx, tr))
		want = append(want, tr.ID)
		s.Restart(tr.ID)
	}
	var got []string
	var at store.Cursor
	for len(got) < len(want) { // in small pieces too
		for _, e := range follow(t, s.Reader, at, min(70, len(want)-len(got))) {
			switch v := e.Event.(type) {
			case store.GroupAdmitted:
				got = append(got, fmt.Sprint("admitted ", v.Group))
			case store.TrajectoryGrew:
				got = append(got, v.ID)
			}
			at = e.Next
		}
	}
	require.Equal(t, want, got)
	var whole []string
	for _, e := range follow(t, s.Reader, store.Cursor{}, len(want)) {
		switch v := e.Event.(type) {
		case store.GroupAdmitted:
			whole = append(whole, fmt.Sprint("admitted ", v.Group))
		case store.TrajectoryGrew:
			whole = append(whole, v.ID)
		}
	}
	require.Equal(t, want, whole)
}

// tailWriter names the variable that makes this program the other process of TestTailFollowsAnotherProcess: its value is the store.
const tailWriter = "AGENTFLY_TEST_TAIL_WRITER"

// writeTurns stores one turn a line of the standard input, until it is killed.
func writeTurns(path string) error {
	s, err := store.Open(path)
	if err != nil {
		return err
	}
	if _, err = s.Recover(ctx, 0); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		tr := begin(admission(0, 0, 1), 0)
		tr.ID = in.Text()
		tr.Turns = []trajectory.Turn{{CompletionStart: 3, CompletionEnd: 3, ObservationEnd: 3}}
		if err := s.AddTurn(ctx, tr); err != nil {
			return err
		}
	}
	return in.Err()
}

// A tail follows a run of another process that writes, is killed, and is continued by a third.
func TestTailFollowsAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	require.NoError(t, open(t, path).Close())
	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	defer reader.Close()
	own, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	entries := make(chan store.Entry)
	go func() {
		defer close(entries)
		for e, err := range reader.Tail(own, store.Cursor{}) {
			if !testErr(t, err) {
				return
			}
			entries <- e
		}
	}()
	for life := range 3 {
		writer := exec.Command(os.Args[0])
		writer.Stderr = os.Stderr
		writer.Env = append(os.Environ(), tailWriter+"="+path)
		in, err := writer.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		for i := range 5 { // each is seen before the next is written
			id := fmt.Sprint("life ", life, " turn ", i)
			_, err := io.WriteString(in, id+"\n")
			require.NoError(t, err)
			e, ok := <-entries
			require.True(t, ok)
			require.Equal(t, id, e.Event.(store.TrajectoryGrew).ID)
			require.EqualValues(t, 5*life+i+1, e.Next.Turn)
		}
		require.NoError(t, writer.Process.Kill())
		require.Error(t, writer.Wait())
	}
	cancel()
	_, ok := <-entries
	require.False(t, ok, "it ends with its context")
}

func TestTailOfOldAndDamagedStores(t *testing.T) {
	reader, err := store.OpenReader(fromScript(t, "testdata/version1.sql"))
	require.NoError(t, err)
	for _, err := range reader.Tail(ctx, store.Cursor{}) {
		require.ErrorContains(t, err, "was written by version 1, which kept no log")
	}
	require.NoError(t, reader.Close())

	path := fromScript(t, "testdata/version2.sql")
	describe := func(s *store.Reader) (out []string) {
		for _, e := range follow(t, s, store.Cursor{}, 8) {
			out = append(out, fmt.Sprintf("%T", e.Event))
		}
		return out
	}
	reader, err = store.OpenReader(path)
	require.NoError(t, err)
	const grew, admitted, dropped, batch = "store.TrajectoryGrew", "store.GroupAdmitted", "store.GroupDropped", "store.BatchTaken"
	require.Equal(t, []string{admitted, admitted, admitted, dropped, batch, grew, grew, grew}, describe(reader), "events have no place among the turns")
	require.NoError(t, reader.Close())
	s := open(t, path)
	require.Equal(t, []string{admitted, admitted, grew, grew, admitted, dropped, batch, grew}, describe(s.Reader), "but that of the admissions")
	require.NoError(t, s.Close())

	for harm, says := range map[string]string{
		"UPDATE turns SET body = substr(body, 1, 30) WHERE n = 2": "tail: row 2 of turns: its checksum is wrong",
		"DELETE FROM turns WHERE n = 3":                           "tail: row 3 of turns is missing",
		"UPDATE events SET json = '{}' WHERE n = 2":               "tail: event 2: its checksum is wrong",
		"DELETE FROM events WHERE n = 1":                          "tail: event 1 is missing",
	} {
		path := fromScript(t, "testdata/version2.sql")
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.Exec(harm)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		var last error
		for _, err := range open(t, path).Reader.Tail(ctx, store.Cursor{}) {
			require.NoError(t, last, "an error is the last")
			last = err
		}
		require.ErrorContains(t, last, says)
	}
}
