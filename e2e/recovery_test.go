package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/rewards"
)

// tiny trains examples/tiny.yaml for six steps with a checkpoint every two and a rate that falls, in dir. A reward of weight 0 is called for
// every trajectory and may do harm.
func tiny(ctx context.Context, dir string, harm func() (float64, error), args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	line := []string{
		"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "trainer.steps=6", "--set", "checkpoint.every=2", "--set", "trainer.schedule=linear",
		"--set", "rewards=[{name: final_answer, weight: 0.8, require_steps: true}, {name: right_call, weight: 0.2}, {name: harm, weight: 0}]",
	}
	reward := rewards.NewFunc("harm", func(context.Context, rewards.Input) (float64, error) { return harm() })
	status = agentfly.Run(ctx, append(line, args...), strings.NewReader(""), &o, &e, agentfly.WithReward(reward))
	return status, o.String(), e.String()
}

func harmless() (float64, error) { return 0, nil }

func TestARunThatStoppedContinuesBitForBit(t *testing.T) {
	needTorch(t)
	const perStep = 128 // trajectories
	whole := filepath.Join(t.TempDir(), "whole")
	status, out, errs := tiny(context.Background(), whole, harmless)
	require.Zero(t, status, "%s%s", out, errs)
	rewardsWhole, weightsWhole := curve(t, whole)

	t.Run("interrupted", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "run")
		ctx, cancel := context.WithCancel(context.Background())
		var calls atomic.Int64
		status, out, errs := tiny(ctx, dir, func() (float64, error) {
			if calls.Add(1) == 3*perStep+50 { // in the middle of the fourth step
				cancel()
			}
			return 0, nil
		})
		require.Equal(t, 3, status, "%s%s", out, errs)
		require.Contains(t, out, "interrupted after step 3; saved in ")
		require.Equal(t, []int{1, 2, 3}, stepLines(t, dir))
		status, out, errs = tiny(context.Background(), dir, harmless, "--resume")
		require.Zero(t, status, "%s%s", out, errs)
		require.Contains(t, out, "note: resumed after step 3; groups that go on: 4, with ")
		requireSameRun(t, dir, rewardsWhole, weightsWhole)
	})

	t.Run("failed after its last checkpoint", func(t *testing.T) { // as after a kill: steps 2 and 3 are saved, 4 is not
		dir := filepath.Join(t.TempDir(), "run")
		var calls atomic.Int64
		status, out, errs := tiny(context.Background(), dir, func() (float64, error) {
			if calls.Add(1) > 5*perStep {
				return 0, errors.New("the judge is away")
			}
			return 0, nil
		})
		require.Equal(t, 1, status, out)
		require.Contains(t, errs, "step 6: 128 of 128 trajectories failed, more than rollout.max_failed (0.5); the first: reward: rewards: harm: the judge is away")
		require.NotContains(t, strings.TrimSpace(errs), "\n")
		require.Equal(t, []int{1, 2, 3, 4, 5}, stepLines(t, dir))
		last, err := filepath.EvalSymlinks(filepath.Join(dir, "checkpoints", "last"))
		require.NoError(t, err)
		require.Equal(t, "step-4", filepath.Base(last))
		f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(`{"step": 6, "rew`) // cut by the kill
		require.NoError(t, err)
		require.NoError(t, f.Close())
		status, out, errs = tiny(context.Background(), dir, harmless, "--resume")
		require.Zero(t, status, "%s%s", out, errs)
		require.Contains(t, out, "note: resumed after step 4; steps that are trained again as recorded: 1; groups that go on: 4, with 0 trajectories that had ended and 0 that continue after 0 recorded turns\n")
		require.Contains(t, out, "note: step 5 was trained again as recorded: the same loss, gradient norm and policy version\n")
		requireSameRun(t, dir, rewardsWhole, weightsWhole)
	})
}

// The trainer divides the logits of a step by one temperature, so what was sampled at another one is not trained with it: such a run is refused until
// nothing of the kind is left.
func TestResumeRefusesAnotherTemperatureWhileGroupsGoOn(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(context.Background())
	var calls atomic.Int64
	status, out, errs := tiny(ctx, dir, func() (float64, error) {
		if calls.Add(1) == 128+50 { // in the middle of the second step
			cancel()
		}
		return 0, nil
	})
	require.Equal(t, 3, status, "%s%s", out, errs)
	before, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	colder := []string{"--resume", "--set", "rollout.temperature=0.4"}
	status, out, errs = tiny(context.Background(), dir, harmless, colder...)
	require.Equal(t, 2, status, "%s%s", out, errs)
	require.Contains(t, errs, "rollout.temperature: what the run in "+dir+" recorded after step 1 (steps that are trained again: 0; groups that go on: ")
	require.Contains(t, errs, ") was sampled at 1, and this job's is 0.4; give 1 back until step 2 is done (with trainer.steps 2 the run ends there), or begin a new run with --output")
	after, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))

	status, out, errs = tiny(context.Background(), dir, harmless, "--resume", "--set", "trainer.steps=2")
	require.Zero(t, status, "%s%s", out, errs)
	status, out, errs = tiny(context.Background(), dir, harmless, append(colder, "--set", "trainer.steps=3")...)
	require.Zero(t, status, "%s%s", out, errs)
	run := opened(t, dir)
	steps, err := run.Steps()
	require.NoError(t, err)
	require.Len(t, steps, 3)
	for step, m := range steps {
		require.Less(t, m["update/mismatch_max"], 1e-4, step)
	}
}

// Real processes and real signals: what a kill leaves on the disk continues to the same end.
func TestAKilledProcessContinuesBitForBit(t *testing.T) {
	needTorch(t)
	const steps = 15 // the signal after the third comes before the last
	train := func(dir string) *exec.Cmd {
		return process("train", "examples/tiny.yaml", "--output", dir, "--set", fmt.Sprintf("trainer.steps=%d", steps), "--set", "checkpoint.every=2")
	}
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := train(whole).CombinedOutput()
	require.NoError(t, err, "%s", out)
	rewards, weights := curve(t, whole)
	for name, c := range map[string]struct {
		signal syscall.Signal
		status int
	}{
		"SIGKILL": {syscall.SIGKILL, -1},
		"SIGINT":  {syscall.SIGINT, 3},
		"SIGTERM": {syscall.SIGTERM, 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			run := train(dir)
			var printed bytes.Buffer
			run.Stdout, run.Stderr = &printed, &printed
			require.NoError(t, run.Start())
			require.Eventually(t, func() bool {
				data, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
				return bytes.Count(data, []byte(`"reward/mean"`)) >= 3
			}, time.Minute, time.Millisecond)
			require.NoError(t, run.Process.Signal(c.signal))
			_ = run.Wait() // the status says more than the error
			require.Equal(t, c.status, run.ProcessState.ExitCode(), printed.String())
			again := train(dir)
			again.Args = append(again.Args, "--resume")
			out, err := again.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, stepLines(t, whole), stepLines(t, dir))
			require.Len(t, rewards, steps)
			sameRewards, sameWeights := curve(t, dir)
			require.Equal(t, rewards, sameRewards)
			require.True(t, bytes.Equal(weights, sameWeights), "the final weights differ")
		})
	}
}

// The disk of the checkpoints holds the first one and half of the second.
func TestAFullDiskLeavesTheLastCheckpoint(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	checkpoints := filepath.Join(dir, "checkpoints")
	status, _, errs := tiny(context.Background(), dir, harmless, "--set", "trainer.steps=2")
	require.Zero(t, status, errs)
	size := 0
	require.NoError(t, filepath.Walk(checkpoints, func(_ string, info os.FileInfo, err error) error {
		size += int(info.Size())
		return err
	}))
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(checkpoints, 0o755))
	if err := syscall.Mount("none", checkpoints, "tmpfs", 0, fmt.Sprintf("size=%d", size*3/2)); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(checkpoints, 0)) })
	status, _, errs = tiny(context.Background(), dir, harmless)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "no space left on device")
	require.NotContains(t, strings.TrimSpace(errs), "\n")
	last, err := filepath.EvalSymlinks(filepath.Join(checkpoints, "last"))
	require.NoError(t, err)
	require.Equal(t, "step-2", filepath.Base(last))
	entries, err := os.ReadDir(checkpoints)
	require.NoError(t, err)
	require.Len(t, entries, 2, "step-2 and last: nothing half written stays")
	require.NoError(t, syscall.Mount("none", checkpoints, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
	status, out, errs := tiny(context.Background(), dir, harmless, "--resume")
	require.Zero(t, status, "%s%s", out, errs)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, stepLines(t, dir))
}

func TestACheckpointThatCannotBeWrittenLeavesTheLastOne(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoints", "step-4"), nil, 0o600)) // in the way
	status, _, errs := tiny(context.Background(), dir, harmless)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "agentfly: checkpoint after step 4: ")
	last, err := filepath.EvalSymlinks(filepath.Join(dir, "checkpoints", "last"))
	require.NoError(t, err)
	require.Equal(t, "step-2", filepath.Base(last))
	require.FileExists(t, filepath.Join(last, "model.safetensors"))
	require.NoError(t, os.Remove(filepath.Join(dir, "checkpoints", "step-4")))
	status, out, errs := tiny(context.Background(), dir, harmless, "--resume")
	require.Zero(t, status, "%s%s", out, errs)
}

func TestARewardThatIsNaNStopsTheRun(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := tiny(context.Background(), dir, func() (float64, error) { return math.NaN(), nil })
	require.Equal(t, 1, status)
	require.Contains(t, errs, "rewards: harm: the value is NaN, not a finite number")
}

func TestARunThatCouldNotBeginLeavesNoFolder(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "examples/calculator.yaml", "--output", dir, "--set", "model.path=nowhere")
	require.Equal(t, 2, status)
	require.Equal(t, "agentfly: --set model.path=nowhere: model.path: nowhere does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)\n", errs)
	require.NoDirExists(t, dir)
}

// A run that was killed in its first step, or failed in it, leaves no folder that its user has to clear away.
func TestARunThatDiedInItsFirstStepDoesNotBlockItsFolder(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", "examples/tiny.yaml", "--output", dir, "--set", "rewards=[{name: math_equal, field: nothing}]", "--set", "trainer.steps=1")
	require.Equal(t, 1, status, "%s%s", out, errs)
	require.FileExists(t, filepath.Join(dir, "store.db"))
	status, out, errs = command("", "train", "examples/tiny.yaml", "--output", dir, "--set", "trainer.steps=1")
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "ended before its first step: it is removed, and this one begins")
	status, out, errs = command("", "inspect", "trajectory", "--run", dir)
	require.Zero(t, status, errs)
	require.Equal(t, 128, strings.Count(out, "\n"))

	status, _, errs = command("", "train", "examples/tiny.yaml", "--output", dir, "--set", "trainer.steps=1")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "holds a run of 1 step already; continue it with --resume, give another folder with --output, or delete the run with --overwrite")
	status, out, errs = command("", "train", "examples/tiny.yaml", "--output", dir, "--set", "trainer.steps=2", "--overwrite", "--yes")
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "note: the run that "+dir+" held is deleted")
	require.Len(t, metricsOf(t, dir, "reward/mean"), 2)
}
