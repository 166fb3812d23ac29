package overview_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

func now(ended string, written time.Time, pid int) *runfolder.Now {
	host, _ := os.Hostname()
	return &runfolder.Now{Host: host, PID: pid, Started: written, Written: written, Doing: "the update of step 3", Since: written, Ended: ended, Error: "out of memory"}
}

// A process that writes no more and still has the run folder is not gone: it is told what lets a stopped one go on.
func TestARunWhoseProcessIsStopped(t *testing.T) {
	dir := t.TempDir()
	overviewtest.Run{Steps: overviewtest.Steps(0.5), Now: now("", time.Now().Add(-time.Minute), os.Getpid())}.Write(t, dir)
	f := runfolder.New(dir, true)
	require.NoError(t, f.Lock(func(note string) { t.Fatal(note) }))
	r := overview.Read(dir)
	require.Equal(t, overview.Interrupted, r.State)
	require.Regexp(t, fmt.Sprintf(`^its process \(%d\) is there and has written nothing for 1m\d*s: it is stopped \(kill -CONT %[1]d lets it go on\), it hangs, or its disk is full$`, os.Getpid()), r.Error)
	require.NoError(t, f.Close())
	require.Equal(t, "its process ended without a word: it was killed, its disk is full, or its machine is gone", overview.Read(dir).Error, "another process has its number")
}

// How a run stands is what its process last wrote, held against whether that process is there.
func TestStates(t *testing.T) {
	root := t.TempDir()
	at := time.Now()
	for name, c := range map[string]struct {
		now  *runfolder.Now
		want overview.State
	}{
		"runs":    {now("", at, os.Getpid()), overview.Running},
		"done":    {now(runfolder.EndedDone, at.Add(-time.Hour), 1), overview.Ended},
		"stopped": {now(runfolder.EndedInterrupted, at, 1), overview.Interrupted},
		"wrong":   {now(runfolder.EndedFailed, at, 1), overview.Failed},
		"killed":  {now("", at, math.MaxInt32-1), overview.Interrupted}, // there is no such process
		"silent":  {now("", at.Add(-time.Hour), os.Getpid()), overview.Interrupted},
	} {
		dir := filepath.Join(root, name)
		overviewtest.Run{Steps: overviewtest.Steps(0.5), Now: c.now}.Write(t, dir)
		r := overview.Read(dir)
		require.Equal(t, c.want, r.State, "%s: %s", name, r.Error)
		switch name {
		case "wrong":
			require.Equal(t, "out of memory", r.Error)
		case "killed", "silent":
			require.Contains(t, r.Error, "ended without a word")
		}
	}
	old := filepath.Join(root, "old") // of a program that wrote no now.json
	overviewtest.Run{Steps: overviewtest.Steps(0.5)}.Write(t, old)
	require.Equal(t, overview.Running, overview.Read(old).State, "it wrote just now")
	past := at.Add(-time.Hour)
	require.NoError(t, os.WriteFile(filepath.Join(old, "metrics.jsonl"), nil, 0o600))
	entries, err := os.ReadDir(old)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Chtimes(filepath.Join(old, e.Name()), past, past))
	}
	require.Equal(t, overview.Interrupted, overview.Read(old).State)
	require.NoError(t, os.WriteFile(filepath.Join(old, "summary.json"), []byte("{}"), 0o600))
	require.Equal(t, overview.Ended, overview.Read(old).State)

	found, err := overview.Find(root)
	require.NoError(t, err)
	require.Len(t, found, 7)
	link := filepath.Join(t.TempDir(), "runs") // to a larger disk
	require.NoError(t, os.Symlink(root, link))
	linked, err := overview.Find(link)
	require.NoError(t, err)
	require.Len(t, linked, 7)
	require.Equal(t, filepath.Join(link, filepath.Base(found[0])), linked[0])
	_, err = overview.Find(filepath.Join(root, "nowhere"))
	require.Error(t, err)
	broken := filepath.Join(root, "broken")
	require.NoError(t, os.Mkdir(broken, 0o755))
	for _, name := range []string{"job.yaml", "store.db"} {
		require.NoError(t, os.WriteFile(filepath.Join(broken, name), []byte("{{ nothing"), 0o600))
	}
	require.Equal(t, overview.Unreadable, overview.Read(broken).State, "a broken folder does not hide the others")
	require.NotEmpty(t, overview.Read(broken).Error)
}

func TestANameThatIsNoRun(t *testing.T) {
	root := t.TempDir()
	overviewtest.Run{}.Write(t, filepath.Join(root, "frozenlake-1"))
	require.NoError(t, overview.Check(filepath.Join(root, "frozenlake-1")))
	require.EqualError(t, overview.Check(filepath.Join(root, "frozenlak-1")), fmt.Sprintf("%q is no run folder (did you mean %q?)", filepath.Join(root, "frozenlak-1"), filepath.Join(root, "frozenlake-1")))
	require.ErrorContains(t, overview.Check(filepath.Join(root, "zzzz")), "it has no job.yaml and store.db; agentfly runs FOLDER lists those in a folder")
}

// The run that may have been meant is the one in the folder that was named, not one of the same name elsewhere.
func TestTheRunThatWasMeant(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"runs/calc", "runs/other/calc", "runs/away/calc", "exp/calc", "runs/far"} {
		overviewtest.Run{}.Write(t, dir)
	}
	for path, meant := range map[string]string{
		"runs/cal": "runs/calc", "runs/other/cal": "runs/other/calc", "exp/cal": "exp/calc", "runs/cal/": "runs/calc", "exp/far": "runs/far", "far": "runs/far",
	} {
		require.EqualError(t, overview.Check(path), fmt.Sprintf("%q is no run folder (did you mean %q?)", path, meant))
	}
}

// Of a folder that is there it is said what it lacks.
func TestAFolderThatIsNoRun(t *testing.T) {
	root := t.TempDir()
	overviewtest.Run{}.Write(t, filepath.Join(root, "gatewaz"))
	served, made := filepath.Join(root, "gateway"), filepath.Join(root, "made")
	require.NoError(t, os.Mkdir(served, 0o700))
	db, err := store.OpenGateway(filepath.Join(served, store.File))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.EqualError(t, overview.Check(served), fmt.Sprintf("%q is no run folder: it has store.db and no job.yaml, as the folder of a gateway; agentfly inspect trajectory --run shows what it holds", served))
	require.NoError(t, os.Mkdir(made, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(made, "job.yaml"), nil, 0o600))
	require.EqualError(t, overview.Check(made), fmt.Sprintf("%q is no run folder: it has no store.db; agentfly runs FOLDER lists those in a folder", made))
}

// What a run does is read while it runs: what it waits for, how long is left, and why things failed.
func TestStatus(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	at := time.Now()
	n := now("", at, os.Getpid())
	n.Since = at.Add(-500 * time.Millisecond)
	n.Waits = []runfolder.Wait{{Part: "tool search", Count: 3, Oldest: "train-2-0-1", Seconds: 12}}
	steps := overviewtest.Steps(0.25, 0.5)
	steps[0]["errors/environment"], steps[1]["errors/environment"], steps[1]["errors/tool"] = 1, 2, 0
	call := trajectory.ToolResult{Call: trajectory.ToolCall{Name: "search"}}
	call.Fail(trajectory.CauseRaised, "Error: the index is gone")
	overviewtest.Run{Steps: steps, Now: n, Train: []overviewtest.Sampled{
		{Step: 0, Reward: 1, Stop: trajectory.StopError, Err: "of step 1, which is long ago"},
		{Step: 1, Reward: 1, Turns: []trajectory.Turn{{Results: []trajectory.ToolResult{call}}}, Stop: trajectory.StopAnswer},
		{Step: 2, Stop: trajectory.StopError, Err: "the world has ended"},
	}}.Write(t, dir)
	s, err := overview.ReadStatus(context.Background(), dir, at)
	require.NoError(t, err)
	require.Equal(t, overview.Running, s.State)
	require.Equal(t, "the update of step 3", s.Doing)
	require.Equal(t, n.Waits, s.Waits)
	require.Equal(t, 2, s.Steps)
	require.Equal(t, 10, s.Planned)
	require.InDelta(t, 8*2-0.5, *s.Left, 0.01, "eight steps of two seconds, of which half a second is over")
	require.Equal(t, map[string]int{"environment": 3}, s.Errors)
	require.Equal(t, []string{"failed 1/2  environment: the world has ended", "tool errors 1/1  search: the index is gone"}, s.Failures)
	require.Equal(t, 0.5, s.Last["reward/mean"])
}

// How many steps some epochs are, the run's process says, which counted them with the data. Where an older program ran it nobody does.
func TestPlannedStepsOfEpochs(t *testing.T) {
	for name, c := range map[string]struct {
		epochs, counted, want int
		left                  float64
	}{
		"counted":       {epochs: 3, counted: 150, want: 150, left: 148 * 2},
		"older":         {epochs: 3},
		"trainer.steps": {counted: 100, want: 100, left: 98 * 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir, at := filepath.Join(t.TempDir(), "r"), time.Now()
			overviewtest.Run{Job: overviewtest.SFTJob("r", c.epochs), Planned: c.counted, Steps: overviewtest.Steps(0.25, 0.5), Now: now("", at, os.Getpid())}.Write(t, dir)
			if c.counted == 0 {
				db, err := sql.Open("sqlite", filepath.Join(dir, "store.db"))
				require.NoError(t, err)
				_, err = db.Exec("DELETE FROM facts WHERE name = 'planned'")
				require.NoError(t, errors.Join(err, db.Close()))
			}
			s, err := overview.ReadStatus(t.Context(), dir, at)
			require.NoError(t, err)
			require.Equal(t, "sft", s.Algorithm)
			require.Equal(t, c.want, s.Planned)
			if c.left == 0 {
				require.Nil(t, s.Left)
				return
			}
			require.InDelta(t, c.left, *s.Left, 0.01)
		})
	}
}

// The estimator and the loss are told by their names where the job gives them keys, and where it leaves them out.
func TestTheAlgorithmOfAJob(t *testing.T) {
	for block, want := range map[string]string{
		"{}": "grpo/ppo_clip", "null": "grpo/ppo_clip", "{advantage: rloo}": "rloo/ppo_clip", "{loss: gspo, clip_low: 0.1}": "grpo/gspo",
		"{advantage: rloo, loss: gspo}":                                            "rloo/gspo",
		"{advantage: {name: gae, lambda: 0.95}, loss: ppo_clip}":                   "gae/ppo_clip",
		"{advantage: {name: tree, intra: 1}, loss: {name: sapo, tau_negative: 2}}": "tree/sapo",
	} {
		dir := filepath.Join(t.TempDir(), "r")
		overviewtest.Run{Job: "version: 1\nname: r\nmodel: {path: tiny}\nalgorithm: " + block + "\n", Steps: overviewtest.Steps(0.5)}.Write(t, dir)
		r := overview.Read(dir)
		require.Empty(t, r.Error)
		require.Equal(t, want, r.Algorithm)
	}
}

// Numbers of steps that the job takes from the environment stand in the folder's copy by their names.
func TestStepsFromTheEnvironment(t *testing.T) {
	for _, planned := range []int{7, 0} {
		dir := filepath.Join(t.TempDir(), "r")
		text := "version: 1\nname: r\nmodel: {path: tiny}\nsft:\n  epochs: ${EPOCHS}\ntrainer:\n  steps: ${STEPS}\n"
		overviewtest.Run{Job: text, Planned: planned, Steps: overviewtest.Steps(0.25)}.Write(t, dir)
		s, err := overview.ReadStatus(t.Context(), dir, time.Now())
		require.NoError(t, err)
		require.Equal(t, "sft", s.Algorithm)
		require.Equal(t, planned, s.Planned)
	}
}

// The failures of the present step are told however many trajectories the last one has, and a count that is not of all says so.
func TestFailuresOfLargeSteps(t *testing.T) {
	sampled := func(step, n int) (out []overviewtest.Sampled) {
		for i := range n {
			out = append(out, overviewtest.Sampled{Step: step, Group: i / 8, Index: i % 8, Stop: trajectory.StopAnswer})
		}
		return out
	}
	failed := overviewtest.Sampled{Step: 1, Stop: trajectory.StopError, Err: "the world has ended"}
	for name, c := range map[string]struct {
		last int
		want []string
	}{
		"all are counted": {512, []string{"failed 1/513  environment: the world has ended"}},
		"some are":        {513, []string{"failed 1/513  environment: the world has ended", "counted are the first 512 trajectories of step 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			overviewtest.Run{Steps: overviewtest.Steps(0.25), Train: append(sampled(0, c.last), failed)}.Write(t, dir)
			s, err := overview.ReadStatus(t.Context(), dir, time.Now())
			require.NoError(t, err)
			require.Equal(t, c.want, s.Failures)
		})
	}
	dir := filepath.Join(t.TempDir(), "r")
	overviewtest.Run{Steps: overviewtest.Steps(0.25), Train: sampled(0, 513)}.Write(t, dir)
	s, err := overview.ReadStatus(t.Context(), dir, time.Now())
	require.NoError(t, err)
	require.Empty(t, s.Failures, "nothing failed")
}

// Two runs are held against each other: settings, curves where both have a step, and each held-out task against itself.
func TestCompare(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	before, after := map[string]float64{}, map[string]float64{"new": 1}
	for i := range 40 {
		id := fmt.Sprint("t", i)
		before[id] = 0
		if i%4 == 0 {
			before[id] = 1
		}
		after[id] = before[id]
		if i < 20 {
			after[id] = 1
		}
	}
	after["t36"] = 0 // worse
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3, 0.4), Evaluations: []overviewtest.Evaluation{{Name: "before", Step: 0, Rewards: after}, {Name: "after", Step: 4, Rewards: before}}}.Write(t, a)
	overviewtest.Run{
		Job: overviewtest.Job("a", 20) + "seed: 2\n", Steps: overviewtest.Steps(0.5, math.Pi), Evaluations: []overviewtest.Evaluation{{Name: "step-2", Step: 2, Rewards: after}},
	}.Write(t, b)
	c, err := overview.Compare(context.Background(), []string{a, b})
	require.NoError(t, err)
	require.Equal(t, []overview.Setting{{Key: "seed", Values: []string{"", "2"}}, {Key: "trainer.steps", Values: []string{"10", "20"}}}, c.Settings)
	require.Equal(t, overview.Common{Metric: "reward/mean", Steps: []int{1, 2}, Values: [][]float64{{0.1, 0.2}, {0.5, math.Pi}}}, c.Curves[0])
	require.Len(t, c.Tasks, 1)
	h := c.Tasks[0]
	require.Equal(t, "after, step 4", h.From)
	require.Equal(t, "step-2, step 2", h.To)
	require.Equal(t, []int{40, 1, 15, 1}, []int{h.Tasks, h.Other, h.Better, h.Worse})
	require.Equal(t, overview.TaskChange{Task: "t36", From: 1, To: 0}, h.Changes[0])
	require.InDelta(t, 14.0/40, h.Mean, 1e-9)
	require.Greater(t, h.Low, 0.1)
	require.Less(t, h.Low, h.Mean)
	require.Greater(t, h.High, h.Mean)
	again, err := overview.Compare(context.Background(), []string{a, b})
	require.NoError(t, err)
	require.Equal(t, h.Low, again.Tasks[0].Low, "the same each time")
	same, err := overview.Compare(context.Background(), []string{a, a})
	require.NoError(t, err)
	require.Empty(t, same.Settings)
	require.Equal(t, []float64{0, 0, 0}, []float64{same.Tasks[0].Mean, same.Tasks[0].Low, same.Tasks[0].High})
	improved, err := overview.Improved(context.Background(), a)
	require.NoError(t, err)
	require.Equal(t, []int{1, 15}, []int{improved.Better, improved.Worse})
}

// A task whose trajectories failed, or that is another task under the same id, is not compared.
func TestTasksThatCannotBeCompared(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	overviewtest.Run{Evaluations: []overviewtest.Evaluation{{Name: "after", Step: 1, Rewards: map[string]float64{"x": 1}}}}.Write(t, a)
	overviewtest.Run{}.Write(t, b)
	c, err := overview.Compare(context.Background(), []string{a, b})
	require.NoError(t, err)
	require.Empty(t, c.Tasks, "one has no evaluation")
	require.Empty(t, c.Curves)

	other, cut := filepath.Join(root, "other"), filepath.Join(root, "cut")
	overviewtest.Run{Evaluations: []overviewtest.Evaluation{{Name: "after", Step: 1, Rewards: map[string]float64{"x": 0}, Answer: "another"}}}.Write(t, other)
	overviewtest.Run{Evaluations: []overviewtest.Evaluation{
		{Name: "before", Rewards: map[string]float64{"x": 0.5}}, {Name: "step-2", Step: 2, Rewards: map[string]float64{"x": 0}, Cut: true},
	}}.Write(t, cut)
	c, err = overview.Compare(context.Background(), []string{a, other, cut})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{c.Tasks[0].Tasks, c.Tasks[0].Other}, "another task of the same id")
	require.Equal(t, "before, step 0", c.Tasks[1].To, "an evaluation that was cut off says nothing")
	require.Equal(t, -0.5, c.Tasks[1].Mean)
}

// Curves come from a run folder, or from a file as the run writes it, whose last line may be half written.
func TestCurves(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "metrics.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	_, m, err := overview.ReadCurves(write(`{"step":0,"eval":{"name":"before","step":0,"reward":0.25,"pass":{"4":0.75}}}` + "\n" + `{"step":1,"reward/mean":0.5,"skipped":"why"}` + "\n" + `{"step":2,"rew`))
	require.NoError(t, err)
	require.Equal(t, []string{"eval/accuracy", "eval/pass/4", "eval/reward", "reward/mean"}, m.Keys())
	require.Equal(t, &overview.Curve{Steps: []int{0}, Values: []float64{0.75}}, m["eval/pass/4"])
	require.Equal(t, &overview.Curve{Steps: []int{1}, Values: []float64{0.5}}, m["reward/mean"])
	for _, text := range []string{"", "{}\n", "{\"step\":1}\n", "nothing\n", "{\"step\":\"x\"}\n"} {
		_, _, err := overview.ReadCurves(write(text))
		require.Error(t, err, "%q", text)
	}
	_, m, err = overview.ReadCurves("../../docs/results/curves/calculator-seed1.jsonl")
	require.NoError(t, err)
	require.Len(t, m["reward/mean"].Steps, 30)
}

// A run has the name of its folder, also where the folder is given as a dot.
func TestTheNameOfTheWorkingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "calculator")
	overviewtest.Run{Steps: overviewtest.Steps(0.5)}.Write(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	for at, path := range map[string]string{dir: ".", filepath.Join(dir, "below"): ".."} {
		t.Chdir(at)
		name, _, err := overview.ReadCurves(path)
		require.NoError(t, err)
		require.Equal(t, "calculator", name, path)
	}
}

// A run of the first version of the store, which held no evaluations, is read as others are.
func TestARunOfTheFirstStore(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("../store/testdata/version1.sql")
	require.NoError(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, "store.db"))
	require.NoError(t, err)
	_, err = db.Exec(string(script))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, runfolder.JobFile), []byte(overviewtest.Job("old", 3)), 0o600))
	r := overview.Read(dir)
	require.Empty(t, r.Error)
	require.Equal(t, "old", r.Name)
	_, err = overview.ReadStatus(t.Context(), dir, time.Now())
	require.NoError(t, err)
	_, err = overview.Compare(t.Context(), []string{dir, dir})
	require.NoError(t, err)
}

// What a process wrote of itself may be lost with the machine's power; its run is read nevertheless.
func TestARunWhoseNowIsTorn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	overviewtest.Run{Steps: overviewtest.Steps(0.25, 0.5)}.Write(t, dir)
	for _, text := range []string{"", "\x00\x00\x00", `{"host":`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, runfolder.NowFile), []byte(text), 0o600))
		r := overview.Read(dir)
		require.NotEqual(t, overview.Unreadable, r.State, r.Error)
		require.Equal(t, 2, r.Steps)
		_, _, err := overview.ReadCurves(dir)
		require.NoError(t, err)
	}
}

// The pools of a run are those of the process that runs it, and not of an earlier one that was killed.
func TestThePoolsOfAnEarlierProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	at := time.Now()
	n := now("", at, os.Getpid())
	overviewtest.Run{Steps: overviewtest.Steps(0.5), Now: n}.Write(t, dir)
	pools := []runfolder.Pool{{Name: "environment", Size: 8, InUse: 8}}
	for _, c := range []struct {
		pid   int
		ended bool
		want  []runfolder.Pool
	}{{math.MaxInt32 - 1, false, nil}, {math.MaxInt32 - 1, true, nil}, {os.Getpid(), false, pools}} {
		require.NoError(t, runfolder.New(dir, true).WriteResources(runfolder.Resources{Host: n.Host, PID: c.pid, Written: at.Add(-time.Hour), Ended: c.ended, Pools: pools}))
		s, err := overview.ReadStatus(t.Context(), dir, at)
		require.NoError(t, err)
		require.Equal(t, overview.Running, s.State)
		require.Equal(t, os.Getpid(), s.PID)
		require.Equal(t, c.want, s.Pools)
	}
}
