//go:build torch

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// What hangs in a child does so whatever its context says.
func init() {
	forever := func() { select {} }
	inChildren = append(
		inChildren,
		agentfly.WithTool(tools.NewFunc("hang", "Hangs.", func(context.Context, struct {
			Text string `json:"text"`
		},
		) (string, error) {
			forever()
			return "", nil
		})),
		agentfly.WithReward(rewards.NewFunc("hang", func(context.Context, rewards.Input) (float64, error) { forever(); return 0, nil })),
		agentfly.WithLoss(algorithms.LossSpec{
			Name: "hang", Formula: "none", Source: "this test",
			New: func(algorithms.Settings) (algorithms.Loss, error) { return hanging{}, nil },
		}),
	)
}

// hanging is a loss that takes an hour: the update that has begun cannot be finished.
type hanging struct{}

func (hanging) Name() string { return "hang" }

func (hanging) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	time.Sleep(time.Hour)
	return in.Current, nil
}

// hung is examples/tiny.yaml in a process of its own, with a watchdog of half a second.
func hung(t *testing.T, args ...string) (run *exec.Cmd, printed *lines, dir string, until func(text string)) {
	needTorch(t)
	dir = filepath.Join(t.TempDir(), "run")
	run = process(append([]string{"train", "examples/tiny.yaml", "--output", dir, "--set", "rollout.watchdog=0.5"}, args...)...)
	printed = &lines{}
	run.Stdout, run.Stderr = printed, printed
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() }) // it ended, unless the test failed
	return run, printed, dir, func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(printed.String(), text) }, time.Minute, time.Millisecond, "%s", text)
	}
}

// callsHang is the tiny model with a tool that hangs in place of the calculator.
func callsHang(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(dir, os.DirFS("examples/tiny/model")))
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(data), "calculator>", "hang>")), 0o600))
	return dir
}

func TestASignalDrainsARunWhoseToolHangs(t *testing.T) {
	run, printed, dir, until := hung(t, "--set", "model.path="+callsHang(t), "--set", "agent.tools=[hang]", "--set", "rollout.tool_timeout=3600")
	until("; waiting for tool hang: ") // before, a slow start waits for nothing
	require.Regexp(t, `agentfly: nothing moved for [0-9.]+m?s; waiting for tool hang: \d+, the oldest train-0-\d+-\d+ for `, printed.String())
	require.NoError(t, run.Process.Signal(syscall.SIGUSR1))
	until("agentfly: waiting for tool hang: ")
	require.NoError(t, run.Process.Signal(syscall.SIGTERM))
	_ = run.Wait() // the status says more
	require.Equal(t, 3, run.ProcessState.ExitCode(), printed.String())
	require.Contains(t, printed.String(), "agentfly: stopping; a second signal ends the process at once")
	require.Contains(t, printed.String(), "interrupted after step 0; saved in ")
	require.Contains(t, printed.String(), "\ngo on with     "+self()+" train examples/tiny.yaml --output "+dir+" --set rollout.watchdog=0.5 --set model.path=", "the whole command line")
	require.Contains(t, printed.String(), " --set rollout.tool_timeout=3600 --resume\n")
	require.FileExists(t, filepath.Join(dir, "checkpoints", "last", "run.json"))
}

func TestASignalDrainsARunWhoseRewardHangs(t *testing.T) {
	run, printed, _, until := hung(t, "--set", "rewards=[final_answer, hang]", "--set", "rollout.reward_timeout=3600")
	until("waiting for reward hang: 128, the oldest train-0-")
	require.NoError(t, run.Process.Signal(syscall.SIGINT))
	_ = run.Wait()
	require.Equal(t, 3, run.ProcessState.ExitCode(), printed.String())
}

// What saves nothing of itself ends in one line, which says how far it came, and with the status of a run that was interrupted.
func TestASignalEndsOtherCommands(t *testing.T) {
	needTorch(t)
	run := filepath.Join(t.TempDir(), "run")
	trainTiny(t, run, "--set", "trainer.steps=40", "--set", "rollout.group_size=2")
	held := filepath.Join(t.TempDir(), "held.jsonl")
	require.NoError(t, os.WriteFile(held, []byte(`{"question": "4+4", "answer": "8", "steps": ["8"]}`+"\n"), 0o600))
	hangs := []string{"--set", "data.eval=" + held, "--set", "rollout.watchdog=0.5", "--set", "model.path=" + callsHang(t), "--set", "agent.tools=[hang]", "--set", "rollout.tool_timeout=3600"}
	for name, c := range map[string]struct {
		args        []string
		until, want string
	}{
		"eval":    {append([]string{"eval", "examples/tiny.yaml", "--set", "eval.samples=64", "--set", "eval.temperature=1"}, hangs...), "; waiting for tool hang: ", `interrupted; trajectories that had ended: \d+; an evaluation that is cut off has no result`},
		"rollout": {append([]string{"rollout", "examples/tiny.yaml"}, hangs...), "; waiting for tool hang: ", `interrupted; trajectories that had ended: \d+; those that were cut off are written with stop_reason cancelled`},
		"try":     {append([]string{"try", "examples/tiny.yaml"}, hangs...), "; waiting for tool hang: ", `interrupted`},
		"replay":  {[]string{"replay", run}, "policy version 2: the same", `interrupted; steps that are the same: \d+ of 40`},
	} {
		t.Run(name, func(t *testing.T) {
			p, printed := process(c.args...), &lines{}
			p.Stdout, p.Stderr = printed, printed
			require.NoError(t, p.Start())
			t.Cleanup(func() { _ = p.Process.Kill() }) // it ended, unless the test failed
			require.Eventually(t, func() bool { return strings.Contains(printed.String(), c.until) }, time.Minute, time.Millisecond, c.until)
			require.NoError(t, p.Process.Signal(syscall.SIGINT))
			_ = p.Wait()
			require.Equal(t, 3, p.ProcessState.ExitCode(), printed.String())
			require.Regexp(t, `agentfly: stopping; a second signal ends the process at once\n(.*\n)*agentfly: `+c.want+`\n$`, printed.String())
		})
	}
}

// A reward that is late ends its trajectory with its name, and here the run: all of them are late.
func TestALateRewardIsNamed(t *testing.T) {
	run, printed, _, _ := hung(t, "--set", "rewards=[final_answer, hang]", "--set", "rollout.reward_timeout=0.2")
	_ = run.Wait()
	require.Equal(t, 1, run.ProcessState.ExitCode(), printed.String())
	require.Contains(t, printed.String(), "step 1: 128 of 128 trajectories failed, more than rollout.max_failed (0.5); the first: reward: rewards: hang: no score after 200ms")
}

func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	run, printed, dir, until := hung(t, "--set", "algorithm={advantage: grpo, loss: hang}")
	until("waiting for trainer: step 1 for ")
	require.NoError(t, run.Process.Signal(syscall.SIGTERM))
	until("agentfly: stopping; a second signal ends the process at once")
	require.NoError(t, run.Process.Signal(syscall.SIGTERM))
	_ = run.Wait()
	status, ok := run.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), printed.String())
	require.Equal(t, syscall.SIGTERM, status.Signal(), "a shell sees 143")
	require.NoFileExists(t, filepath.Join(dir, "checkpoints", "last", "run.json"), "nothing was saved")
}
