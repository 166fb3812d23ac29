package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	killSteps = 5 // of a run that is killed
	tinyJob   = "examples/tiny.yaml"
)

// killable is a process that trains a short run of a job in dir, or goes on with it.
func killable(job, dir string, args ...string) *exec.Cmd {
	line := append([]string{"train", job, "--output", dir, "--set", fmt.Sprintf("trainer.steps=%d", killSteps), "--set", "checkpoint.every=2"}, args...)
	if _, err := os.Stat(filepath.Join(dir, "store.db")); err == nil {
		line = append(line, "--resume")
	}
	return process(line...)
}

// killed counts kills of processes that lived.
type killed struct {
	t       *testing.T
	job     string
	args    []string // of every process
	random  *rand.Rand
	longest time.Duration // of a whole run
	kills   int
}

// finish runs dir to its end, killing its processes at random moments until that many were killed in all.
func (k *killed) finish(dir string, most int, args ...string) {
	k.t.Helper()
	for {
		run := killable(k.job, dir, slices.Concat(k.args, args)...)
		var out bytes.Buffer
		run.Stdout, run.Stderr = &out, &out
		require.NoError(k.t, run.Start())
		var kill *time.Timer
		if k.kills < most {
			kill = time.AfterFunc(time.Duration(k.random.Int64N(int64(k.longest))), func() { _ = run.Process.Kill() }) // one that has ended is not killed
		}
		err := run.Wait()
		if kill != nil {
			kill.Stop()
		}
		if err == nil {
			return
		}
		status := run.ProcessState.Sys().(syscall.WaitStatus)
		require.True(k.t, status.Signaled() && status.Signal() == syscall.SIGKILL, "%v: %s", err, out.String())
		k.kills++
	}
}

func newKilled(t *testing.T) *killed {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &killed{t: t, job: tinyJob, random: rand.New(rand.NewPCG(seed, 0))}
}

// kills is how many processes a test kills.
func kills(t *testing.T, few int) int {
	if os.Getenv("AGENTFLY_LONG") == "" {
		t.Logf("%d kills; AGENTFLY_LONG=1 makes it 100", few)
		return few
	}
	return 100
}

// Processes are killed at random moments, from before the first turn to after the last checkpoint; each next one goes on.
// The end is that of the run that nobody killed.
func TestKills(t *testing.T) {
	needTorch(t)
	newKilled(t).endAlike(kills(t, 4), func(dir string) { requireWhole(t, dir, killSteps, 0) })
}

// endAlike runs the job to its end, and again with that many kills: the end is the same. also checks each run that was killed.
// The folder of the run that nobody killed is returned.
func (k *killed) endAlike(most int, also func(dir string)) (whole string) {
	t := k.t
	t.Helper()
	whole = filepath.Join(t.TempDir(), "whole")
	start := time.Now()
	k.finish(whole, 0)
	k.longest = time.Since(start)
	rewards, weights := curve(t, whole)
	for n := 0; k.kills < most; n++ {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("run", n))
		k.finish(dir, most)
		got, same := curve(t, dir)
		require.Equal(t, rewards, got)
		require.True(t, bytes.Equal(weights, same), "the final weights differ")
		also(dir)
		requireSameMetrics(t, whole, dir)
	}
	t.Logf("%d kills", k.kills)
	return whole
}

// An asynchronous run depends on timing, but what became of it is in its log: nothing twice, nothing too stale, and the
// replay comes to the same weights.
func TestKillsOfAnAsynchronousRun(t *testing.T) {
	needTorch(t)
	k, most := newKilled(t), kills(t, 2)
	start := time.Now()
	k.finish(filepath.Join(t.TempDir(), "whole"), 0, asyncTiny...)
	k.longest = time.Since(start)
	for n := 0; k.kills < most; n++ {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("run", n))
		k.finish(dir, most, asyncTiny...)
		requireWhole(t, dir, killSteps, 2)
		status, out, errs := command("", "replay", dir)
		require.Zero(t, status, "%s%s", out, errs)
		require.Contains(t, out, "weights: identical\n")
	}
	t.Logf("%d kills", k.kills)
}

// requireWhole checks that every group of a run of so many steps was trained once, whole and not too stale, and that everything is counted
// once.
func requireWhole(t *testing.T, dir string, steps int, staleness int32) {
	t.Helper()
	db := opened(t, dir)
	seen := map[string]bool{}
	log := eachTrained(t, db, func(step int, b store.Batch, g trajectory.Group) {
		require.Len(t, b.Groups, 4)
		require.Len(t, g.Trajectories, 32)
		for _, tr := range g.Trajectories {
			require.False(t, seen[tr.ID], "%s is trained twice", tr.ID)
			seen[tr.ID] = true
			for _, s := range tr.Samples {
				for i, on := range s.ResponseMask {
					if on {
						require.LessOrEqual(t, b.Version-s.PolicyVersion[i], staleness, "step %d, %s", step, tr.ID)
					}
				}
			}
		}
	})
	require.Len(t, log.Batches, steps)
	require.Empty(t, log.Outstanding, "nothing is sampled that no step trains")
	require.Len(t, seen, 4*32*steps)
	stored := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		stored++
		require.Len(t, r.Updates, 1, r.Trajectory.ID)
		require.NotEqual(t, trajectory.StopCancelled, r.Trajectory.StopReason)
		return nil
	}))
	require.Equal(t, 4*32*steps, stored)
	var summary struct {
		Steps        int            `json:"steps"`
		Trajectories map[string]int `json:"trajectories"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &summary))
	require.Equal(t, steps, summary.Steps)
	require.Equal(t, map[string]int{"finished": 4 * 32 * steps, "failed": 0}, summary.Trajectories)
}

// requireSameMetrics compares metrics.jsonl line by line, times and what was found in a cache aside.
func requireSameMetrics(t *testing.T, want, got string) {
	t.Helper()
	read := func(dir string) (out []map[string]any) {
		data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			var m map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			if e, ok := m["eval"].(map[string]any); ok {
				delete(e, "seconds")
				if parts, ok := e["parts"].(map[string]any); ok {
					delete(parts, "tool_cost.seconds")
				}
			}
			for k := range m {
				if strings.HasPrefix(k, "seconds/") || strings.HasPrefix(k, "environments/") || strings.HasSuffix(k, ".seconds") || strings.HasSuffix(k, "_per_second") || k == "tokens/cached" {
					delete(m, k)
				}
			}
			out = append(out, m)
		}
		return out
	}
	require.Equal(t, read(want), read(got))
}

// The end of the write-ahead log is lost: what is left goes on to the same end, unless it is less than the checkpoint.
func TestALogThatLostItsEnd(t *testing.T) {
	needTorch(t)
	const steps = 12 // the kill after the third comes before the last
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := killable(tinyJob, whole, "--set", fmt.Sprintf("trainer.steps=%d", steps)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, weights := curve(t, whole)
	for _, c := range []struct {
		every string // checkpoint
		keep  float64
		says  string
	}{{"0", 0.5, ""}, {"2", 0, "the file lost its end; restore it from a copy together with its -wal"}} {
		dir := filepath.Join(t.TempDir(), "run")
		args := []string{"--set", "checkpoint.every=" + c.every, "--set", fmt.Sprintf("trainer.steps=%d", steps)}
		run := killable(tinyJob, dir, args...)
		require.NoError(t, run.Start())
		require.Eventually(t, func() bool { return len(stepsIn(dir)) >= 3 }, time.Minute, time.Millisecond)
		require.NoError(t, run.Process.Kill())
		_ = run.Wait() // it was killed
		wal := filepath.Join(dir, "store.db-wal")
		info, err := os.Stat(wal)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(wal, int64(c.keep*float64(info.Size()))))
		metrics, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = metrics.WriteString(`{"step": 3, "rew`)
		require.NoError(t, err)
		require.NoError(t, metrics.Close())
		again := killable(tinyJob, dir, args...)
		out, err := again.CombinedOutput()
		if c.says != "" {
			require.Equal(t, 1, again.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), c.says)
			require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
			continue
		}
		require.NoError(t, err, "%s", out)
		require.Regexp(t, `note: store.db has no step \d+, which metrics.jsonl has: the file lost its end; steps are sampled again from there`, string(out))
		_, same := curve(t, dir)
		require.True(t, bytes.Equal(weights, same), "the final weights differ")
		requireSameMetrics(t, whole, dir)
		requireWhole(t, dir, steps, 0)
	}
}

// stepsIn lists the steps of a metrics.jsonl that is being written.
func stepsIn(dir string) (out []string) {
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(data), "\n") {
		if strings.Contains(line, `"reward/mean"`) {
			out = append(out, line)
		}
	}
	return out
}

// The disk of the whole run folder is full, and then read-only: one line that says so, and nothing is lost.
func TestAFullDiskOfTheStore(t *testing.T) {
	needTorch(t)
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := killable(tinyJob, whole).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, weights := curve(t, whole)
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=900k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	fails := func(says string) {
		t.Helper()
		run := killable(tinyJob, dir, "--set", "checkpoint.every=0")
		var out, errs bytes.Buffer
		run.Stdout, run.Stderr = &out, &errs
		require.Error(t, run.Run(), out.String())
		require.Equal(t, 1, run.ProcessState.ExitCode(), errs.String())
		require.Regexp(t, says, errs.String())
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
	// store.db or metrics.jsonl is the first to find it full
	fails(`(database or disk is full \(13\)|metrics.jsonl: .*no space left on device); free some space on its disk, then continue the run with --resume`)
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	fails(`attempt to write a readonly database \(8\); make the file and its folder writable, then continue the run with --resume`)
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
	db := filepath.Join(dir, "store.db")
	require.NoError(t, syscall.Mount(db, db, "", syscall.MS_BIND, ""))
	require.NoError(t, syscall.Mount(db, db, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	fails(`attempt to write a readonly database \(8\)`)
	require.NoError(t, syscall.Unmount(db, 0))
	out, err = killable(tinyJob, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, same := curve(t, dir)
	require.True(t, bytes.Equal(weights, same), "the final weights differ")
	requireWhole(t, dir, killSteps, 0)
	requireSameMetrics(t, whole, dir)
}

// A disk that is full while init writes leaves nothing, so that the same command works when there is room.
func TestInitOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	status, out, errs := command("", "init", filepath.Join(dir, "mine"), "--model", "examples/tiny/model")
	require.Equal(t, 1, status)
	require.Empty(t, out)
	require.Contains(t, errs, "no space left on device; make room, or name another folder: agentfly init DIR")
	left, err := filepath.Glob(filepath.Join(dir, "mine", "*"))
	require.NoError(t, err)
	for _, path := range left {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, info.IsDir(), "%s is left", path)
	}
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
	status, _, errs = command("", "init", filepath.Join(dir, "mine"), "--model", "examples/tiny/model")
	require.Zero(t, status, errs)
}
