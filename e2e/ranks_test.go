package e2e_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tinyRanks is the tiny job in so many processes, one thread each; 0: without the option.
func tinyRanks(dir string, ranks int, args ...string) *exec.Cmd {
	all := append([]string{"train", "examples/tiny.yaml", "--output", dir, "--set", "checkpoint.every=2"}, args...)
	if ranks > 0 {
		all = append(all, "--ranks", strconv.Itoa(ranks))
	}
	c := process(all...)
	c.Env = append(c.Env, "OMP_NUM_THREADS=1")
	return c
}

func runToEnd(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// One rank is the plain run bit for bit. Two give the same curve while no sampled token hangs on the float noise between
// them, and resume on their own number bit for bit, on another one within that noise.
func TestRanksTrainTheTinyJob(t *testing.T) {
	needTorch(t)
	folder := func() string { return filepath.Join(t.TempDir(), "run") }
	plain, one, two := folder(), folder(), folder()
	runToEnd(t, tinyRanks(plain, 0, "--set", "trainer.steps=6"))
	runToEnd(t, tinyRanks(one, 1, "--set", "trainer.steps=6"))
	runToEnd(t, tinyRanks(two, 2, "--set", "trainer.steps=6"))
	rewards, weights := curve(t, plain)
	rewardsOne, weightsOne := curve(t, one)
	require.Equal(t, rewards, rewardsOne)
	require.True(t, bytes.Equal(weights, weightsOne))
	rewardsTwo, weightsTwo := curve(t, two)
	require.InDeltaSlice(t, rewards, rewardsTwo, 0.03) // 128 trajectories: a token that falls the other way moves 0.008
	require.Equal(t, rewards[0], rewardsTwo[0])        // before the first update nothing differs

	for _, setting := range []string{"trainer.context_parallel", "trainer.tensor_parallel"} {
		together := folder()
		runToEnd(t, tinyRanks(together, 2, "--set", "trainer.steps=6", "--set", setting+"=2"))
		rewardsTogether, _ := curve(t, together)
		require.InDeltaSlice(t, rewards, rewardsTogether, 0.03)
		require.Equal(t, rewards[0], rewardsTogether[0])
		status, _, errs := command("", "train", "examples/tiny.yaml", "--output", folder(), "--set", setting+"=2")
		require.Equal(t, 2, status)
		require.Contains(t, errs, setting+": it is 2, which does not divide the number of training processes, 1; give a multiple of it with --ranks")
	}

	for _, from := range []int{1, 2} {
		for _, to := range []int{1, 2} {
			dir := folder()
			runToEnd(t, tinyRanks(dir, from, "--set", "trainer.steps=3"))
			runToEnd(t, tinyRanks(dir, to, "--set", "trainer.steps=6", "--resume"))
			again, end := curve(t, dir)
			require.InDeltaSlice(t, rewards, again, 0.03)
			if from == to {
				want := map[int][]byte{1: weights, 2: weightsTwo}[from]
				require.True(t, bytes.Equal(want, end), "%d ranks do not resume bit for bit", from)
			}
		}
	}
}

// A run whose float32 weights are spread over its ranks samples, trains and saves as one whose are not, bit for bit, and either goes on
// from the other's checkpoint.
func TestRanksTrainSpread(t *testing.T) {
	needTorch(t)
	run := func(dir, shard, steps string, more ...string) {
		runToEnd(t, tinyRanks(dir, 2, append(more, "--set", "model.dtype=bfloat16", "--set", "trainer.steps="+steps, "--set", "trainer.shard="+shard)...))
	}
	whole, spread, both := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	run(whole, "zero1", "3")
	run(spread, "fsdp", "3")
	run(both, "fsdp", "2")
	run(both, "zero1", "3", "--resume")
	rewards, weights := curveWithin(t, whole, 0.1) // of bfloat16
	for _, dir := range []string{spread, both} {
		r, w := curveWithin(t, dir, 0.1)
		require.Equal(t, rewards, r)
		require.True(t, bytes.Equal(weights, w))
	}
}

// Rank 0 samples while all of them train.
func TestRanksTrainInModeAsync(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	runToEnd(t, tinyRanks(dir, 2, "--set", "deterministic=false", "--set", "trainer.steps=8", "--set", "rollout.mode=async", "--set", "rollout.max_staleness=2",
		"--set", "algorithm.correction={kind: tis_token}"))
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, stepLines(t, dir))
	status, out, errs := command("", "inspect", "trajectory", "--run", dir)
	require.Zero(t, status, errs)
	require.Equal(t, 8*128, strings.Count(out, "\n"), "every trajectory is stored once, and none is left over")
}

// children are the processes that a process started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended meanwhile
		}
		for _, word := range strings.Fields(string(data)) {
			n, err := strconv.Atoi(word)
			require.NoError(t, err)
			pids = append(pids, n)
		}
	}
	return pids
}

// A rank that is killed or stopped between two steps: the run ends within the deadline and names it; what was saved stays
// and continues on one rank.
func TestALostRankEndsTheRun(t *testing.T) {
	needTorch(t)
	for name, c := range map[string]struct {
		signal syscall.Signal
		first  bool // rank 0 is the victim
	}{
		"killed": {syscall.SIGKILL, false}, "stopped": {syscall.SIGSTOP, false}, "rank 0 killed": {syscall.SIGKILL, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			run := tinyRanks(dir, 2, "--set", "trainer.steps=200", "--set", "trainer.rank_timeout=10") // in which the ranks have to join, too
			log, err := os.Create(filepath.Join(t.TempDir(), "log"))
			require.NoError(t, err)
			defer log.Close()
			run.Stdout, run.Stderr = log, log
			require.NoError(t, run.Start())
			defer func() { _ = run.Process.Kill(); _ = run.Wait() }()
			last := filepath.Join(dir, "checkpoints", "last", "run.json")
			require.Eventually(t, func() bool { _, err := os.Stat(last); return err == nil }, time.Minute, 5*time.Millisecond)
			others := children(t, run.Process.Pid)
			require.Len(t, others, 1)
			victim, survivor := others[0], run.Process.Pid
			if c.first {
				victim, survivor = survivor, victim
			}
			start := time.Now()
			require.NoError(t, syscall.Kill(victim, c.signal))
			printed := func() string { data, _ := os.ReadFile(log.Name()); return string(data) }
			require.Eventually(t, func() bool { return gone(survivor) }, time.Minute, 20*time.Millisecond, "the survivor hangs: %s", printed())
			t.Logf("%.1f s after the signal: %s", time.Since(start).Seconds(), printed()[max(0, strings.Index(printed(), "agentfly: ")):])
			lost := "rank 1"
			if c.first {
				lost = "rank 0"
			} else {
				_ = run.Wait()
				require.Equal(t, 1, run.ProcessState.ExitCode())
			}
			require.Contains(t, printed(), lost+" ")
			if c.first {
				return
			}
			runToEnd(t, tinyRanks(dir, 1, "--resume", "--set", "trainer.steps=12"))
		})
	}
}

// gone reports whether a process has ended; a zombie has.
func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return len(fields) > 0 && fields[0] == "Z"
}

// An interruption reaches all processes of a terminal: rank 0 saves, the others wait for it, and the run can be resumed.
func TestAnInterruptedRunOfTwoRanksResumes(t *testing.T) {
	needTorch(t)
	const steps = "trainer.steps=15" // the signal after the third comes before the last
	dir := filepath.Join(t.TempDir(), "run")
	run := tinyRanks(dir, 2, "--set", steps)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	defer func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL); _ = run.Wait() }()
	require.Eventually(t, func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		return bytes.Count(data, []byte(`"reward/mean"`)) >= 3
	}, time.Minute, time.Millisecond)
	require.NoError(t, syscall.Kill(-run.Process.Pid, syscall.SIGINT))
	_ = run.Wait()
	require.Equal(t, 3, run.ProcessState.ExitCode(), out.String())
	runToEnd(t, tinyRanks(dir, 2, "--resume", "--set", steps))
	whole := filepath.Join(t.TempDir(), "whole")
	runToEnd(t, tinyRanks(whole, 2, "--set", steps))
	rewards, weights := curve(t, whole)
	again, same := curve(t, dir)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same), "the final weights differ")
}

// What a rank cannot begin with is told at once, with the status of bad input.
func TestRanksThatCannotBegin(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	c := tinyRanks(dir, 0)
	c.Env = append(c.Env, "RANK=2", "WORLD_SIZE=2")
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, c.ProcessState.ExitCode())
	require.Contains(t, string(out), "RANK is 2 and WORLD_SIZE 2; ranks count from 0")
	c = tinyRanks(dir, 0, "--set", "trainer.rank_timeout=1")
	c.Env = append(c.Env, "RANK=0", "WORLD_SIZE=2", "MASTER_PORT=29511")
	out, err = c.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "rank 1 of 2 has not joined within 1 s")
	require.NoDirExists(t, dir)
}

// The whole tiny job on two ranks learns as it does on one.
func TestTwoRanksLearn(t *testing.T) {
	needTorch(t)
	if os.Getenv("AGENTFLY_LONG") == "" {
		t.Skip("long: AGENTFLY_LONG=1 or make test-long runs it")
	}
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	runToEnd(t, tinyRanks(one, 1))
	runToEnd(t, tinyRanks(two, 2))
	a, _ := curve(t, one)
	b, _ := curve(t, two)
	require.Greater(t, last(b, 5), 0.9)
	apart, first := 0.0, -1
	for i := range a {
		apart = math.Max(apart, math.Abs(a[i]-b[i]))
		if first < 0 && a[i] != b[i] {
			first = i
		}
	}
	t.Logf("first difference at step %d, largest %.3f; last five: %.3f on one rank, %.3f on two", first, apart, last(a, 5), last(b, 5))
}
