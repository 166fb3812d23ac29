package view

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/agentfly/agentfly/view/viewtest"
)

// served are a server of made runs, and what their tokens say.
type served struct {
	*Server
	url   string
	dir   string
	words *viewtest.Words
}

func serve(t *testing.T, key string, sizes map[string]viewtest.Size) *served {
	t.Helper()
	x := &served{dir: t.TempDir(), words: &viewtest.Words{}}
	for name, size := range sizes {
		require.NoError(t, viewtest.Run(context.Background(), filepath.Join(x.dir, name), size, x.words))
	}
	var err error
	x.Server, err = New(x.dir, Options{Key: key, Errors: io.Discard, Decode: func(string) (func([]int32) string, bool) { return x.words.Decode, true }})
	require.NoError(t, err)
	h := httptest.NewServer(x.Server)
	x.url = h.URL
	t.Cleanup(func() {
		require.NoError(t, x.Server.Close())
		h.Close()
	})
	return x
}

func small() viewtest.Size { return viewtest.Size{Steps: 12, Groups: 4, Each: 4, Seed: 1} }

// get asks for something and decodes the answer.
func get[T any](t *testing.T, x *served, path string, q url.Values) (v T) {
	t.Helper()
	reply, err := http.Get(x.url + path + "?" + q.Encode())
	require.NoError(t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, reply.StatusCode, "%s", body)
	require.NoError(t, json.Unmarshal(body, &v))
	return v
}

type answered struct {
	Total int
	Mean  float64
	Rows  []struct {
		ID, Task, Stop, Origin string
		Step, Group            int
		Staleness, Trained     int
		Dropped                bool
		Reward                 float64
	}
	State   struct{ Loaded bool }
	Choices map[string][]string
}

// whole waits until all that is stored is read.
func (x *served) whole(t *testing.T, run string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return get[answered](t, x, "/api/trajectories", url.Values{"run": {run}}).State.Loaded
	}, 5*time.Minute, 100*time.Millisecond)
}

// Every filter keeps what a plain walk through the store keeps, in the order that is asked for, page after page.
func TestListIsTheStore(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": {Steps: 30, Groups: 4, Each: 4, Seed: 3}})
	x.whole(t, "a")
	db, err := store.OpenReader(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	for query, keeps := range map[string]func(r store.Record) bool{
		"":                         func(store.Record) bool { return true },
		"from=4&to=9":              func(r store.Record) bool { return r.Trajectory.Step >= 4 && r.Trajectory.Step < 9 },
		"max=0.3":                  func(r store.Record) bool { return r.Trajectory.Err == "" && r.Trajectory.Reward <= 0.3 },
		"min=0.2&max=0.2&order=up": func(r store.Record) bool { return r.Trajectory.Reward == 0.2 },
		"stop=max_tokens":          func(r store.Record) bool { return r.Trajectory.StopReason == "max_tokens" },
		"origin=engine":            func(r store.Record) bool { return r.Trajectory.ErrOrigin == "engine" },
		"failed=1&sort=seconds":    func(r store.Record) bool { return r.Trajectory.Err != "" },
		"tool=search&cause=broken": func(r store.Record) bool {
			c := r.Trajectory.Turns[0].Results[0]
			return c.Call.Name == "search" && c.Cause == "broken"
		},
		"text=BEGIN+again&sort=reward": func(r store.Record) bool {
			return strings.Contains(r.Trajectory.Turns[len(r.Trajectory.Turns)-1].Completion, "begin again")
		},
		"text=what+is+12+times": func(r store.Record) bool {
			return strings.Contains(r.Task.Prompt[1].Content[0].Text, "What is 12 times")
		},
		"stale=2":                              func(r store.Record) bool { return r.Trajectory.Step >= 2 && r.Trajectory.Group%3 == 2 },
		"task=product-001&phase=train&group=0": func(r store.Record) bool { return r.Trajectory.TaskID == "product-001" && r.Trajectory.Group == 0 },
	} {
		want := map[string]bool{}
		require.NoError(t, db.Select(t.Context(), store.Selection{}, func(r store.Record) error {
			if keeps(r) {
				want[r.Trajectory.ID] = true
			}
			return nil
		}))
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		q.Set("run", "a")
		var rewards []float64
		got := map[string]bool{}
		for after := ""; ; {
			q.Set("after", after)
			list := get[answered](t, x, "/api/trajectories", q)
			require.Equal(t, len(want), list.Total, query)
			for _, r := range list.Rows {
				require.True(t, want[r.ID], "%s: %s", query, r.ID)
				require.False(t, got[r.ID], "%s: %s comes twice", query, r.ID)
				got[r.ID] = true
				rewards = append(rewards, r.Reward)
				after = r.ID
			}
			if len(list.Rows) == 0 {
				break
			}
		}
		require.Len(t, got, len(want), query)
		if q.Get("sort") == "reward" {
			require.IsNonIncreasing(t, rewards, query)
		}
	}
	require.Greater(t, 480, 2*pageSize, "the list has several pages")
}

// A trajectory that is looked at has the numbers of the store, bit for bit.
func TestTokensAreTheStores(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	db, err := store.OpenReader(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	record, err := db.Record(context.Background(), "train-3-1-2")
	require.NoError(t, err)
	s, u := record.Trajectory.Samples[0], record.Updates[0]
	got := get[struct {
		Samples []struct {
			IDs             []int32
			Texts           []string
			Mask            []int
			Sampling        []float32
			Old, Advantages []float32
			Entropy         []float32
			Versions        []int32
			Step            int
		}
		Siblings []struct{ ID string }
	}](t, x, "/api/trajectory", url.Values{"run": {"a"}, "id": {"train-3-1-2"}})
	require.Equal(t, s.TokenIDs, got.Samples[0].IDs)
	require.Equal(t, s.SamplingLogprobs, got.Samples[0].Sampling)
	require.Equal(t, s.PolicyVersion, got.Samples[0].Versions)
	require.Equal(t, u.OldLogprobs, got.Samples[0].Old)
	require.Equal(t, u.Advantages, got.Samples[0].Advantages)
	require.Equal(t, u.Entropy, got.Samples[0].Entropy)
	require.Len(t, u.Entropy, s.Len())
	for i, on := range s.ResponseMask {
		require.Equal(t, on, got.Samples[0].Mask[i] == 1)
	}
	require.Equal(t, x.words.Decode(s.TokenIDs), strings.Join(got.Samples[0].Texts, ""))
	require.Len(t, got.Siblings, 4)
	require.Equal(t, "train-3-1-0", got.Siblings[0].ID)
}

// Tokens are ids until the run has a tokenizer: one whose model is made by the run has none before its first checkpoint. A tokenizer that was found is
// kept.
func TestATokenizerThatComesLaterIsRead(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	tries := 0
	x.runs.decode = func(string) (func([]int32) string, bool) {
		if tries++; tries == 1 {
			return func(ids []int32) string { return fmt.Sprint(ids) }, false
		}
		return x.words.Decode, true
	}
	text := func() string {
		return strings.Join(get[struct{ Samples []struct{ Texts []string } }](t, x, "/api/trajectory", url.Values{"run": {"a"}, "id": {"train-3-1-2"}}).Samples[0].Texts, "")
	}
	require.Contains(t, text(), "[")
	read := text()
	require.NotContains(t, read, "[")
	require.Equal(t, read, text())
	require.Equal(t, 2, tries)
}

// The tries of a task are those of the store, with the mean reward of those that did not fail.
func TestTriesAreTheStores(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	db, err := store.OpenReader(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	type try struct {
		sum        float64
		ended, all int
	}
	want, some, failed := map[string]map[[2]int]*try{}, map[string]string{}, 0
	require.NoError(t, db.Select(t.Context(), store.Selection{}, func(r store.Record) error {
		o := r.Trajectory
		at := [2]int{o.Step, o.Group}
		if some[o.TaskID] = o.ID; want[o.TaskID] == nil {
			want[o.TaskID] = map[[2]int]*try{}
		}
		if want[o.TaskID][at] == nil {
			want[o.TaskID][at] = &try{}
		}
		if want[o.TaskID][at].all++; o.Err == "" {
			want[o.TaskID][at].sum += o.Return()
			want[o.TaskID][at].ended++
		} else {
			failed++
		}
		return nil
	}))
	require.Positive(t, failed)
	for task, id := range some {
		got := get[struct {
			Tries []struct {
				Step, Group, Tries int
				Mean               *float64
				First              string
			}
		}](t, x, "/api/trajectory", url.Values{"run": {"a"}, "id": {id}}).Tries
		require.Len(t, got, len(want[task]))
		for _, o := range got {
			w := want[task][[2]int{o.Step, o.Group}]
			require.Equal(t, w.all, o.Tries)
			require.Equal(t, fmt.Sprintf("train-%d-%d-0", o.Step, o.Group), o.First)
			if w.ended == 0 {
				require.Nil(t, o.Mean)
			} else {
				require.InDelta(t, w.sum/float64(w.ended), *o.Mean, 1e-12)
			}
		}
	}
}

// The places of a tree's leaves, and of the calls of an agent of its own, are those of the store.
func TestBranchesAreTheStores(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	require.NoError(t, viewtest.Branching(t.Context(), filepath.Join(x.dir, "tree"), x.words))
	x.whole(t, "tree")
	type answer struct {
		Turns []struct {
			After  int
			Shared string
		}
		Samples  []struct{ Like, Shares int }
		Siblings []struct {
			ID, Branch    string
			Forked, Turns int
			ForkedAt      int `json:"forked_at"`
		}
	}
	got := get[answer](t, x, "/api/trajectory", url.Values{"run": {"tree"}, "id": {"train-0-0-0.0.0"}})
	var leaves []string
	for _, o := range got.Siblings {
		leaves = append(leaves, fmt.Sprintf("%s %q %d+%d of %d", o.ID, o.Branch, o.Forked, o.ForkedAt, o.Turns))
	}
	require.Equal(t, []string{`train-0-0-0 "" 0+0 of 3`, `train-0-0-0.0 "0" 1+0 of 3`, `train-0-0-0.0.0 "0.0" 2+0 of 4`, `train-0-0-1 "" 0+0 of 3`, `train-0-0-1.0 "0" 2+0 of 3`, `train-0-0-1.1 "1" 1+4 of 2`}, leaves)
	require.Equal(t, "train-0-0-0", got.Turns[0].Shared)
	require.Equal(t, "train-0-0-0.0", got.Turns[1].Shared)
	require.Empty(t, got.Turns[2].Shared)
	require.Equal(t, -1, got.Samples[0].Like)

	got = get[answer](t, x, "/api/trajectory", url.Values{"run": {"tree"}, "id": {"train-0-1-0"}})
	var goesOn []int
	for _, turn := range got.Turns {
		goesOn = append(goesOn, turn.After)
	}
	require.Equal(t, []int{-1, 0, -1, 1, 3, 3}, goesOn)
	db, err := store.OpenReader(filepath.Join(x.dir, "tree", store.File))
	require.NoError(t, err)
	defer db.Close()
	record, err := db.Record(t.Context(), "train-0-1-0")
	require.NoError(t, err)
	all := record.Trajectory.Samples
	require.Equal(t, 0, got.Samples[3].Like)
	n := got.Samples[3].Shares
	require.Equal(t, all[0].TokenIDs[:n], all[3].TokenIDs[:n])
	require.True(t, n == all[0].Len() || all[0].TokenIDs[n] != all[3].TokenIDs[n])
}

// listen opens a stream. What it returns waits until the stream tells of something; "" waits for its end.
func listen(t *testing.T, x *served, q string) func(what string) {
	t.Helper()
	reply, err := http.Get(x.url + "/api/events?" + q)
	require.NoError(t, err)
	t.Cleanup(func() { reply.Body.Close() })
	require.Equal(t, "text/event-stream", reply.Header.Get("Content-Type"))
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		d := make([]byte, 1<<16)
		for {
			n, err := reply.Body.Read(d)
			if err != nil {
				return
			}
			lines <- string(d[:n])
		}
	}()
	return func(what string) {
		t.Helper()
		late := time.After(30 * time.Second)
		for {
			select {
			case line, goesOn := <-lines:
				if !goesOn {
					require.Empty(t, what, "the stream ended")
					return
				}
				if what != "" && strings.Contains(line, what) {
					return
				}
			case <-late:
				require.Fail(t, "the stream did not tell of it, or did not end", what)
			}
		}
	}
}

// A group that a step left out, and one that is given up as too old, are never trained: an open page waits for them no longer.
func TestGroupsThatAreNeverTrained(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	admit := func(group int, retryOf *store.GroupRef) {
		task := trajectory.Task{ID: "a"}
		require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: store.Train, Step: 12, Group: group, Task: task, Size: 1, RetryOf: retryOf}))
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{0})
		require.NoError(t, s.AppendResponse([]int32{1}, []float32{-1}, []int32{9}))
		tr := &trajectory.Trajectory{ID: store.ID(store.Train, 12, group, 0), TaskID: "a", Step: 12, Group: group, Samples: []*trajectory.Sample{s}}
		require.NoError(t, db.AddTrajectory(t.Context(), store.Train, task, tr))
	}
	for group := range 3 {
		admit(group, nil)
	}
	require.NoError(t, db.AddBatch(t.Context(), store.Batch{Step: 12, Version: 9, Groups: []store.GroupRef{{Step: 12}}, Others: []store.GroupRef{{Step: 12, Group: 1}}}))
	admit(3, &store.GroupRef{Step: 12, Group: 2})
	fates := func() (out [4]string) {
		list := get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}, "from": {"12"}})
		for _, row := range list.Rows {
			out[row.Group] = fmt.Sprint(row.Trained, row.Dropped)
		}
		return out
	}
	want := [4]string{"12 false", "-1 true", "-1 true", "-1 false"}
	require.Eventually(t, func() bool { return fates() == want }, 10*time.Second, 50*time.Millisecond, "while it is followed")
	y := &served{}
	y.Server, err = New(x.dir, Options{Errors: io.Discard, Decode: func(string) (func([]int32) string, bool) { return x.words.Decode, true }})
	require.NoError(t, err)
	defer y.Close()
	h := httptest.NewServer(y.Server)
	defer h.Close()
	x.url = h.URL
	x.whole(t, "a")
	require.Equal(t, want, fates(), "when it is opened")
}

// What a run writes while somebody looks is told by the stream, and listed; steps that a resumed run makes again are forgotten.
func TestItFollowsARun(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	ctx := t.Context()
	told := listen(t, x, "run=none&run=a")
	told(`"steps":12,"trajectories":192`) // the run that is not there keeps nothing back
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	size := small()
	require.NoError(t, viewtest.Step(ctx, db, size, x.words, 12))
	told(`"steps":13,"trajectories":208`)
	list := get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}, "from": {"12"}})
	require.Equal(t, 16, list.Total)
	require.Equal(t, 12, list.Rows[0].Trained, "the batch came after the trajectories")
	curves := get[struct {
		Steps  []int
		Series map[string][]float64
	}](t, x, "/api/curves", url.Values{"run": {"a"}, "key": {"reward/mean"}})
	require.Len(t, curves.Steps, 13)
	require.Len(t, curves.Series["reward/mean"], 13)
	require.NoError(t, db.Truncate(ctx, 5))
	told(`"steps":5,"trajectories":80`)
	require.Zero(t, get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}, "from": {"5"}}).Total)
}

// A store that takes long to open keeps only those waiting who ask for it, and is opened once for all of them.
func TestOneSlowStoreStopsNobodyElse(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small(), "slow": small()})
	x.whole(t, "a")
	x.runs.bell.Lock() // a run that is opened rings when it has read its evaluations
	release := sync.OnceFunc(x.runs.bell.Unlock)
	defer release()
	opened := make(chan *run, 2)
	for range 2 {
		go func() {
			r, err := x.runs.get("slow")
			assert.NoError(t, err)
			opened <- r
		}()
	}
	time.Sleep(300 * time.Millisecond) // they wait now
	other := make(chan error)
	go func() {
		_, err := x.runs.get("a")
		other <- err
	}()
	select {
	case err := <-other:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		release()
		<-other
		require.Fail(t, "another run waits for the store")
	}
	require.Empty(t, opened)
	release()
	require.Same(t, <-opened, <-opened)
}

// A turn of a trajectory that goes on is no news: of what is given up the log has no end, so that a count of those that go on would only grow.
func TestTurnsAreNoNews(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	r, err := x.runs.get("a")
	require.NoError(t, err)
	state := func() map[string]any {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.state()
	}
	before := state()
	require.NoError(t, r.event(t.Context(), store.TrajectoryGrew{ID: "train-12-0-0", Turns: make([]trajectory.Turn, 1)}))
	require.NoError(t, r.event(t.Context(), store.GroupDropped{GroupRef: store.GroupRef{Step: 12}}))
	require.Equal(t, before, state())
}

// The answers: which tool fails and why, which tasks got worse, which tokens differ, what is unusual about a step.
func TestCauses(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": {Steps: 40, Groups: 4, Each: 4, Seed: 5}})
	x.whole(t, "a")
	run := url.Values{"run": {"a"}}
	tools := get[struct{ Tools []toolSum }](t, x, "/api/tools", run).Tools
	require.Equal(t, "search", tools[0].Tool)
	require.Equal(t, tools[0].Failed, tools[0].Causes["broken"])
	all := get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}, "tool": {"search"}, "cause": {"broken"}})
	require.Equal(t, all.Total, tools[0].Failed)
	tasks := get[struct{ Trained taskChanges }](t, x, "/api/tasks", url.Values{"run": {"a"}, "split": {"20"}}).Trained
	require.NotEmpty(t, tasks.Tasks)
	require.Len(t, tasks.Tasks, tasks.Worse)
	require.Greater(t, tasks.Compared, tasks.Worse)
	for i, one := range tasks.Tasks {
		require.Negative(t, one.Change)
		require.LessOrEqual(t, tasks.Tasks[max(0, i-1)].Change, one.Change)
	}
	differences := get[struct {
		Trajectories int
		Differences  []difference
	}](t, x, "/api/differences", url.Values{"run": {"a"}, "step": {"7"}})
	require.Equal(t, 16, differences.Trajectories)
	require.Len(t, differences.Differences, mostDifferences)
	shown := map[same]bool{}
	for _, d := range differences.Differences {
		require.Positive(t, d.Times)
		require.False(t, shown[same{d.ID, d.Engine, d.Trainer}], "equal ones are one")
		shown[same{d.ID, d.Engine, d.Trainer}] = true
	}
	changes := get[struct{ Changes []change }](t, x, "/api/step", url.Values{"run": {"a"}, "step": {"33"}}).Changes
	place := map[string]int{}
	for i, c := range changes {
		place[c.Key] = i + 1
	}
	require.Equal(t, 1, place["reward/mean"], "it is what is to be explained")
	require.Zero(t, place["update/learning_rate"])
}

// The trajectories of an end are those that it counts: whose first failed call is another one, who failed themselves, and whose call had no name stand
// under ends of their own.
func TestEndsLeadToTheirTrajectories(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	call := func(tool string, cause trajectory.Cause) (r trajectory.ToolResult) {
		if r.Call.Name = tool; cause != "" {
			r.Fail(cause, "Error")
		}
		return r
	}
	good, search, calculator, unnamed := call("search", ""), call("search", trajectory.CauseBroken), call("calculator", trajectory.CauseBroken), call("", trajectory.CauseBroken)
	stored(t, x, "run", func(db *store.Store) error {
		for step := range 2 {
			for k, made := range [][]trajectory.ToolResult{nil, {good}, {good}, {good, search, calculator}, {calculator, search}, {unnamed}, {unnamed, search}, {good}, {search}} {
				tr := &trajectory.Trajectory{ID: store.ID(store.Train, step, 0, k), TaskID: "a", Step: step, Index: k, Reward: float64(k), StopReason: trajectory.StopAnswer, Turns: []trajectory.Turn{{Results: made}}}
				if k >= 7 {
					tr.Fail(trajectory.OriginReward, "gone")
				}
				if err := db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "a"}, tr); err != nil {
					return err
				}
			}
			if err := db.AddStep(t.Context(), step, map[string]float64{"reward/mean": 0.5}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	x.whole(t, "run")
	ends := get[struct{ Ends struct{ Ends []end } }](t, x, "/api/step", url.Values{"run": {"run"}, "step": {"1"}}).Ends.Ends
	counts := get[struct {
		Ends struct{ Ends []struct{ Count int } }
	}](t, x, "/api/step", url.Values{"run": {"run"}, "step": {"1"}}).Ends.Ends
	require.Len(t, ends, 5)
	for i, e := range ends {
		q := url.Values{"run": {"run"}, "phase": {"train"}, "from": {"1"}, "to": {"2"}, "ended": {"1"}, "stop": {e.Stop}, "origin": {e.Origin}, "tool": {e.Tool}, "cause": {e.Cause}}
		require.Equal(t, counts[i].Count, get[answered](t, x, "/api/trajectories", q).Total, "%+v", e)
	}
	require.Equal(t, 8, get[answered](t, x, "/api/trajectories", url.Values{"run": {"run"}, "tool": {"search"}, "cause": {"broken"}}).Total, "a filter alone looks at all calls")
}

// Nobody but this machine's own pages reads runs; with a key whoever has it.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": {Steps: 1, Groups: 1, Each: 1}})
	ask := func(x *served, method, path, host string, header map[string]string) int {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		for k, v := range header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		x.ServeHTTP(w, r)
		require.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
		return w.Code
	}
	for _, host := range []string{"localhost:1", "127.0.0.1:8200", "[::1]:8200", "127.0.0.1"} {
		require.Equal(t, 200, ask(x, "GET", "/api/runs", host, nil), host)
	}
	for _, host := range []string{"evil.example", "evil.example:8200", "localhost.evil.example", "192.168.0.2:8200", ""} {
		require.Equal(t, 403, ask(x, "GET", "/api/runs", host, nil), host)
	}
	require.Equal(t, 403, ask(x, "GET", "/api/runs", "localhost", map[string]string{"Sec-Fetch-Site": "cross-site"}))
	require.Equal(t, 405, ask(x, "POST", "/api/runs", "localhost", nil))
	for _, path := range []string{"/api/trajectories?run=../a", "/api/trajectories?run=/etc", "/api/curves", "/api/trajectory?run=a&id=none", "/api/events?run=b"} {
		require.Equal(t, 404, ask(x, "GET", path, "localhost", nil), path)
	}
	for _, path := range []string{"sort=evil", "from=x", "min=NaN", "max=x"} {
		require.Equal(t, 400, ask(x, "GET", "/api/trajectories?run=a&"+path, "localhost", nil), path)
	}
	require.Equal(t, 410, ask(x, "GET", "/api/trajectories?run=a&after=gone", "localhost", nil))

	k := serve(t, "secret", map[string]viewtest.Size{"a": {Steps: 1, Groups: 1, Each: 1}})
	require.Equal(t, 401, ask(k, "GET", "/", "any.example", nil))
	require.Equal(t, 401, ask(k, "GET", "/?key=wrong", "any.example", nil))
	require.Equal(t, 401, ask(k, "GET", "/api/runs?key=secret", "any.example", nil), "the key opens the page alone")
	require.Equal(t, 200, ask(k, "GET", "/api/runs", "any.example", map[string]string{"Authorization": "Bearer secret"}))
	r := httptest.NewRequest("GET", "/?key=secret", nil)
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	require.Equal(t, 303, w.Code)
	require.Equal(t, "/", w.Header().Get("Location"))
	set := w.Result().Cookies()[0]
	require.True(t, set.HttpOnly && set.SameSite == http.SameSiteStrictMode)
	require.NotContains(t, set.Value, "secret")
	require.Equal(t, 200, ask(k, "GET", "/api/runs", "any.example", map[string]string{"Cookie": set.Name + "=" + set.Value}))
	require.Equal(t, 401, ask(k, "GET", "/api/runs", "any.example", map[string]string{"Cookie": set.Name + "=x"}))
}

// A folder without runs, one that is no folder, a store that is none, a run that appears later.
func TestFolders(t *testing.T) {
	t.Parallel()
	_, err := New(filepath.Join(t.TempDir(), "none"), Options{})
	require.ErrorContains(t, err, "is no folder; name a run folder")
	x := serve(t, "", nil)
	type list struct {
		Runs []struct{ Name, Title, Error string }
	}
	require.Empty(t, get[list](t, x, "/api/runs", nil).Runs)
	require.NoError(t, os.MkdirAll(filepath.Join(x.dir, "broken"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(x.dir, "broken", store.File), []byte("no store"), 0o600))
	require.NoError(t, viewtest.Run(context.Background(), filepath.Join(x.dir, "deep", "er"), viewtest.Size{Steps: 1, Groups: 1, Each: 1}, x.words))
	runs := get[list](t, x, "/api/runs", nil).Runs
	require.Len(t, runs, 2)
	said := fmt.Sprint(runs)
	require.Contains(t, said, "deep/er")
	require.Contains(t, said, "cannot be read as a store")
	one, err := New(filepath.Join(x.dir, "deep", "er"), Options{Decode: func(string) (func([]int32) string, bool) { return x.words.Decode, true }})
	require.NoError(t, err)
	r, _, err := one.runs.list(context.Background())
	require.NoError(t, err)
	require.Equal(t, "er", r[0].Title)
	_, err = one.runs.get(".")
	require.NoError(t, err)
	require.NoError(t, one.Close())
	require.NoError(t, one.Close())
	link := filepath.Join(t.TempDir(), "runs") // to a larger disk
	require.NoError(t, os.Symlink(x.dir, link))
	linked, err := New(link, Options{})
	require.NoError(t, err)
	require.Equal(t, x.runs.find(), linked.runs.find())
	require.NoError(t, linked.Close())
}

// An evaluation is told of when it is recorded, though nothing else comes behind it, as at the end of a run.
func TestTheLastEvaluationIsTold(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.AddEvaluation(t.Context(), "after", 12, map[string]any{"name": "after", "step": 12, "reward": 0.75}))
	type curves struct {
		Evaluations []struct {
			Name   string
			Reward float64
		}
		State struct{ Evaluations int }
	}
	require.Eventually(t, func() bool {
		got := get[curves](t, x, "/api/curves", url.Values{"run": {"a"}})
		return got.State.Evaluations == 3 && got.Evaluations[2].Name == "after" && got.Evaluations[2].Reward == 0.75
	}, 20*time.Second, 100*time.Millisecond)
}

// The held-out figure of fine-tuning is its loss, and that of distillation its divergence: both have a curve.
func TestEvaluationsOfOtherObjectives(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": {Steps: 1, Groups: 1, Each: 1}})
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	require.NoError(t, db.AddEvaluation(t.Context(), "step-1", 1, map[string]any{"name": "step-1", "step": 1, "loss": 1.5}))
	require.NoError(t, db.AddEvaluation(t.Context(), "step-2", 2, map[string]any{"name": "step-2", "step": 2, "reverse_kl": 0.25, "reward": 0.5}))
	require.NoError(t, db.AddEvaluation(t.Context(), "step-3", 3, report.Evaluation{Name: "step-3", Step: 3, Unscored: true}))
	require.NoError(t, db.Close())
	got := get[struct {
		Evaluations []struct {
			Name   string
			Reward *float64
			Loss   *float64
			KL     *float64 `json:"reverse_kl"`
		}
	}](t, x, "/api/curves", url.Values{"run": {"a"}}).Evaluations
	require.Len(t, got, 4)
	require.Nil(t, got[3].Reward, "of a distillation without rewards")
	require.Equal(t, 0.5, *got[2].Reward)
	require.Nil(t, got[0].Loss)
	require.Equal(t, 1.5, *got[1].Loss)
	require.Equal(t, 0.25, *got[2].KL)
	drawn := map[string]bool{}
	for _, c := range get[struct{ Curves []struct{ Keys []string } }](t, x, "/api/metrics", nil).Curves {
		for _, key := range c.Keys {
			drawn[key] = true
		}
	}
	require.True(t, drawn["eval/loss"] && drawn["eval/reverse_kl"])
}

// A recorded conversation that fine-tuning learns is trained at its step, once that is stored, and has no reward: nobody scored it.
func TestConversationsOfFineTuning(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	require.NoError(t, os.Mkdir(filepath.Join(x.dir, "sft"), 0o755))
	db, err := store.Open(filepath.Join(x.dir, "sft", store.File))
	require.NoError(t, err)
	defer db.Close()
	add := func(step int, reward float64, stop trajectory.StopReason) {
		tr := &trajectory.Trajectory{ID: fmt.Sprintf("sft-%d-0", step), TaskID: "a", Step: step, Reward: reward, StopReason: stop}
		require.NoError(t, db.AddTrajectory(t.Context(), "sft", trajectory.Task{ID: "a"}, tr))
	}
	step := func(n int) { require.NoError(t, db.AddStep(t.Context(), n, map[string]float64{"sft/loss": 1}, nil)) }
	add(0, 0, trajectory.StopRecorded)
	step(0)
	add(1, 0, trajectory.StopRecorded)
	add(2, 0.5, trajectory.StopAnswer) // of a run whose trajectories are learned
	x.whole(t, "sft")
	type row struct {
		ID                 string
		Reward             *float64
		Trained, Staleness int
	}
	type answer struct {
		Mean *float64
		Rows []row
	}
	rows := func(q string) (all map[string]row, list answer) {
		query, err := url.ParseQuery(q + "&run=sft")
		require.NoError(t, err)
		list, all = get[answer](t, x, "/api/trajectories", query), map[string]row{}
		for _, r := range list.Rows {
			all[r.ID] = r
		}
		return all, list
	}
	got, list := rows("")
	require.Equal(t, row{"sft-0-0", nil, 0, -1}, got["sft-0-0"])
	require.Equal(t, row{"sft-1-0", nil, -1, -1}, got["sft-1-0"])
	require.Equal(t, 0.5, *got["sft-2-0"].Reward)
	require.Equal(t, 0.5, *list.Mean)
	got, _ = rows("max=1")
	require.Len(t, got, 1, "what has no reward is in no range of rewards")
	for _, order := range []string{"", "&order=up"} {
		_, list = rows("sort=reward" + order)
		require.Equal(t, "sft-2-0", list.Rows[0].ID, "what has no reward stands at the end")
	}
	one := get[struct {
		Entry row
		Tries []struct {
			Step int
			Mean *float64
		}
	}](t, x, "/api/trajectory", url.Values{"run": {"sft"}, "id": {"sft-0-0"}})
	require.Equal(t, row{"sft-0-0", nil, 0, -1}, one.Entry)
	require.Nil(t, one.Tries[0].Mean)

	step(1)
	require.Eventually(t, func() bool {
		got, _ := rows("")
		return got["sft-1-0"].Trained == 1
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, db.Truncate(t.Context(), 1)) // a run that is resumed at step 2 makes it anew
	add(1, 0, trajectory.StopRecorded)
	require.Eventually(t, func() bool {
		got, _ := rows("")
		return len(got) == 2 && got["sft-1-0"].Trained == -1
	}, 20*time.Second, 50*time.Millisecond)
}

// The tokens of conversations that are learned from have no sampling logprobs, because nobody sampled them: none is told, and none is held against the
// trainer's.
func TestTokensOfFineTuningWereNotSampled(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	stored(t, x, "sft", func(db *store.Store) error { return learn(t.Context(), db) })
	x.whole(t, "sft")
	got := get[map[string]any](t, x, "/api/differences", url.Values{"run": {"sft"}, "step": {"0"}})
	require.Equal(t, map[string]any{"step": 0.0, "trajectories": 0.0, "tokens": 0.0, "recorded": 1.0, "differences": []any{}}, got)
	one := get[struct {
		Samples []struct{ Sampling, Old []float64 }
	}](t, x, "/api/trajectory", url.Values{"run": {"sft"}, "id": {"sft-0-0"}})
	require.Empty(t, one.Samples[0].Sampling)
	require.Equal(t, -9.25, one.Samples[0].Old[1])
}

// learn stores a step of fine-tuning.
func learn(ctx context.Context, db *store.Store) error {
	s := &trajectory.Sample{TokenIDs: []int32{0, 1}, ResponseMask: []bool{false, true}, SamplingLogprobs: make([]float32, 2), PolicyVersion: make([]int32, 2)}
	tr := &trajectory.Trajectory{ID: "sft-0-0", TaskID: "a", StopReason: trajectory.StopRecorded, Samples: []*trajectory.Sample{s}}
	u := store.Update{TrajectoryID: tr.ID, OldLogprobs: []float32{0, -9.25}, Advantages: []float32{0, 1}}
	return errors.Join(db.AddTrajectory(ctx, store.SFT, trajectory.Task{ID: "a"}, tr), db.AddStep(ctx, 0, map[string]float64{"sft/loss": 9.25}, []store.Update{u}))
}

// A run folder that is deleted and made again, as by train --overwrite, is read anew.
func TestARunThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	dir := filepath.Join(x.dir, "a")
	steps := func() int {
		return len(get[struct{ Steps []int }](t, x, "/api/curves", url.Values{"run": {"a"}}).Steps)
	}
	require.Equal(t, 12, steps())
	reply, err := http.Get(x.url + "/api/events?run=a")
	require.NoError(t, err)
	defer reply.Body.Close()
	require.NoError(t, os.RemoveAll(dir))
	require.Eventually(t, func() bool {
		gone, err := http.Get(x.url + "/api/curves?run=a")
		require.NoError(t, err)
		return gone.Body.Close() == nil && gone.StatusCode == http.StatusNotFound
	}, 5*time.Second, 10*time.Millisecond)
	_, err = io.ReadAll(reply.Body) // it ends, so that the page asks anew
	require.NoError(t, err)
	require.NoError(t, viewtest.Run(t.Context(), dir, viewtest.Size{Steps: 2, Groups: 1, Each: 1}, x.words))
	require.Equal(t, 2, steps())
	x.whole(t, "a")
	require.Equal(t, 2, get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}}).Total)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, viewtest.Run(t.Context(), dir, viewtest.Size{Steps: 3, Groups: 1, Each: 1}, x.words))
	require.Equal(t, 3, steps())
}

// Steps that are trained anew, evaluations that are made anew and steps that are forgotten make another edition of a run, and so does a server that
// is started again: what a page knows of the steps before holds no longer. Whatever is only added does not.
func TestEditions(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	type curves struct {
		Steps       []int
		Series      map[string][]*float64
		Evaluations []struct{ Reward float64 }
		State       struct{ Edition int64 }
	}
	ask := func() curves {
		return get[curves](t, x, "/api/curves", url.Values{"run": {"a"}, "key": {"update/loss", "reward/mean"}})
	}
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	edition := ask().State.Edition
	follows := func(what string, holds func(curves) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return holds(ask()) }, 20*time.Second, 50*time.Millisecond, what)
	}
	differs := func() {
		t.Helper()
		require.NotEqual(t, edition, ask().State.Edition)
		edition = ask().State.Edition
	}
	require.NoError(t, viewtest.Step(t.Context(), db, small(), x.words, 12))
	require.NoError(t, db.AddEvaluation(t.Context(), "after", 13, map[string]any{"name": "after", "step": 13, "reward": 0.5}))
	follows("what is added", func(c curves) bool { return len(c.Steps) == 13 && len(c.Evaluations) == 3 })
	require.Equal(t, edition, ask().State.Edition)

	require.NoError(t, db.AddStep(t.Context(), 8, map[string]float64{"update/loss": 77}, nil))
	follows("a step that is trained anew", func(c curves) bool { return *c.Series["update/loss"][8] == 77 })
	differs()
	require.Nil(t, ask().Series["reward/mean"][8], "it has no such metric now")
	require.NoError(t, db.AddEvaluation(t.Context(), "after", 13, map[string]any{"name": "after", "step": 13, "reward": 0.25}))
	follows("an evaluation that is made anew", func(c curves) bool { return c.Evaluations[2].Reward == 0.25 })
	differs()
	require.NoError(t, db.Truncate(t.Context(), 11))
	follows("steps that are forgotten", func(c curves) bool { return len(c.Steps) == 11 })
	differs()
	again, err := New(x.dir, Options{})
	require.NoError(t, err)
	defer again.Close()
	r, err := again.runs.get("a")
	require.NoError(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEqual(t, edition, r.state()["edition"])
}

// A stream tells of another edition as soon as of a new step.
func TestEditionsAreToldSoon(t *testing.T) {
	t.Parallel()
	told := mark{revision: 1, steps: 12, loaded: true, at: time.Now()}
	now := told
	now.revision++
	require.Positive(t, told.due(now))
	now.edition++
	require.Zero(t, told.due(now))
}

// A stream ends by itself when its run is deleted and made again, as by train --overwrite, so that a page that only listens is told of the new run.
func TestAStreamEndsWithItsRun(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	told := listen(t, x, "run=a")
	told(`"steps":12`)
	require.NoError(t, os.RemoveAll(filepath.Join(x.dir, "a")))
	require.NoError(t, viewtest.Run(t.Context(), filepath.Join(x.dir, "a"), viewtest.Size{Steps: 3, Groups: 1, Each: 1}, x.words))
	told("")
	listen(t, x, "run=a")(`"steps":3`)
	x.whole(t, "a")
	require.Equal(t, 3, get[answered](t, x, "/api/trajectories", url.Values{"run": {"a"}}).Total)

	// A folder that is away for a while is followed again.
	told = listen(t, x, "run=a")
	require.NoError(t, os.Rename(filepath.Join(x.dir, "a"), filepath.Join(x.dir, ".a")))
	told("")
	require.NoError(t, os.Rename(filepath.Join(x.dir, ".a"), filepath.Join(x.dir, "a")))
	told = listen(t, x, "run=a")
	db, err := store.Open(filepath.Join(x.dir, "a", store.File))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, viewtest.Step(t.Context(), db, viewtest.Size{Steps: 4, Groups: 1, Each: 1}, x.words, 3))
	told(`"steps":4`)
}

// A run whose store cannot be opened when a stream begins is told of once it can, beside the runs that could.
func TestAStreamTellsOfARunThatCannotBeOpenedYet(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	require.NoError(t, os.Mkdir(filepath.Join(x.dir, "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(x.dir, "b", store.File), []byte("no store"), 0o600))
	x.beat = 100 * time.Millisecond
	told := listen(t, x, "run=a&run=b")
	told(`"run":"a"`)
	require.NoError(t, os.RemoveAll(filepath.Join(x.dir, "b")))
	require.NoError(t, viewtest.Run(t.Context(), filepath.Join(x.dir, "b"), viewtest.Size{Steps: 3, Groups: 1, Each: 1}, x.words))
	told(`"run":"b"`)
}

// What cannot be read for a while is told of, and read again when it can be, from where it was read to: the tasks and the trajectories that are
// stored when the run is opened, the log, and the trajectories that it tells of.
func TestAFailedReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small(), "b": small(), "c": small()})
	state := func(run string) (fault string, damaged int) {
		s := get[struct {
			State struct {
				Fault   string
				Damaged int
			}
		}](t, x, "/api/curves", url.Values{"run": {run}}).State
		return s.Fault, s.Damaged
	}
	away := func(run, table string, during, after func(db *store.Store)) {
		t.Helper()
		path := filepath.Join(x.dir, run, store.File)
		db, err := store.Open(path)
		require.NoError(t, err)
		defer db.Close()
		raw, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		defer raw.Close()
		_, err = raw.ExecContext(t.Context(), "ALTER TABLE "+table+" RENAME TO away")
		require.NoError(t, err)
		during(db)
		require.Eventually(t, func() bool { fault, _ := state(run); return strings.Contains(fault, "no such table: "+table) }, 20*time.Second, 100*time.Millisecond)
		_, err = raw.ExecContext(t.Context(), "ALTER TABLE away RENAME TO "+table)
		require.NoError(t, err)
		after(db)
		require.Eventually(t, func() bool { fault, _ := state(run); return fault == "" }, 20*time.Second, 100*time.Millisecond)
	}
	total := func(run string, from, want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			return get[answered](t, x, "/api/trajectories", url.Values{"run": {run}, "from": {fmt.Sprint(from)}}).Total == want
		}, 20*time.Second, 100*time.Millisecond)
		_, damaged := state(run)
		require.Zero(t, damaged)
	}
	nothing := func(*store.Store) {}
	for run, table := range map[string]string{"b": "tasks", "c": "trajectories"} {
		away(run, table, nothing, nothing)
		x.whole(t, run)
		total(run, 0, 192)
	}
	x.whole(t, "a")
	away("a", "events", nothing, nothing) // also where nothing new is there to be read
	away("a", "events", nothing, func(db *store.Store) {
		require.NoError(t, viewtest.Step(t.Context(), db, small(), x.words, 12))
	})
	total("a", 12, 16)
	away("a", "updates", func(db *store.Store) { // the log can be read, and the trajectory that it tells of cannot
		require.NoError(t, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "t"}, &trajectory.Trajectory{ID: "train-13-0-0", TaskID: "t", Step: 13}))
	}, nothing)
	total("a", 13, 1)
}

// A run that is gone keeps no file open and takes no memory, though nobody asks for it any more.
func TestARunThatIsGoneIsClosed(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small()})
	x.whole(t, "a")
	r, err := x.runs.get("a")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(x.dir, "a")))
	<-r.over
	_, _, err = x.runs.list(t.Context())
	require.NoError(t, err)
	require.Empty(t, x.runs.open)
	_, err = r.db.End(t.Context())
	require.ErrorContains(t, err, "database is closed")
}

// A trajectory of a distillation without rewards has none, where it was sampled before the first step too; one that a reward scored with 0 has 0.
func TestADistillationMayHaveNoRewards(t *testing.T) {
	t.Parallel()
	x := serve(t, "", nil)
	add := func(db *store.Store, id string, parts map[string]float64) {
		require.NoError(t, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "a"}, &trajectory.Trajectory{ID: id, TaskID: "a", StopReason: trajectory.StopAnswer, RewardParts: parts}))
	}
	for name, key := range map[string]string{"distill": "distill/reverse_kl", "learn": "reward/mean"} {
		require.NoError(t, os.Mkdir(filepath.Join(x.dir, name), 0o755))
		db, err := store.Open(filepath.Join(x.dir, name, store.File))
		require.NoError(t, err)
		defer db.Close()
		add(db, "train-0-0-0", nil)
		add(db, "train-0-0-1", map[string]float64{"right": 0})
		require.NoError(t, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "a"}, &trajectory.Trajectory{ID: "train-0-0-9", TaskID: "a", StopReason: trajectory.StopAnswer, Unscored: true}))
		rewards := func() map[string]any {
			out := map[string]any{}
			for _, row := range get[struct{ Rows []map[string]any }](t, x, "/api/trajectories", url.Values{"run": {name}}).Rows {
				out[row["id"].(string)] = row["reward"]
			}
			return out
		}
		require.Eventually(t, func() bool { return len(rewards()) == 3 }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, db.AddStep(t.Context(), 0, map[string]float64{key: 0.5}, nil))
		add(db, "train-0-0-2", nil)
		require.Eventually(t, func() bool { return len(rewards()) == 4 }, 20*time.Second, 10*time.Millisecond)
		none := any(nil)
		if name == "learn" {
			none = 0.0
		}
		require.Equal(t, map[string]any{"train-0-0-0": none, "train-0-0-1": 0.0, "train-0-0-2": none, "train-0-0-9": nil}, rewards(), name)
		list := get[map[string]any](t, x, "/api/trajectories", url.Values{"run": {name}})
		require.Equal(t, 0.0, list["mean"])
		one := get[struct{ Entry map[string]any }](t, x, "/api/trajectory", url.Values{"run": {name}, "id": {"train-0-0-0"}})
		require.Equal(t, none, one.Entry["reward"])
	}
}
