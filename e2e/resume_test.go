package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

func TestResumeIsBitIdentical(t *testing.T) {
	needTorch(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	run := func(args ...string) {
		status, out, errs := command("", append([]string{"train"}, append(args, "examples/tiny.yaml")...)...)
		require.Zero(t, status, "%s%s", out, errs)
	}
	run("--output", whole, "--set", "trainer.steps=8")
	run("--output", parts, "--set", "trainer.steps=5")
	run("--output", parts, "--resume", "--set", "trainer.steps=8")
	rewards, weights := curve(t, whole)
	again, sameWeights := curve(t, parts)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, sameWeights))

	status, _, errs := command("", "train", "--output", parts, "examples/tiny.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "--resume")
}

// A run has no fewer steps than it did: nothing would be done, and its job would name settings that trained nothing.
func TestResumeRefusesFewerSteps(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	trainTiny(t, dir, "--set", "trainer.steps=3")
	job, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	status, _, errs := command("", "train", "examples/tiny.yaml", "--output", dir, "--resume", "--set", "trainer.steps=2", "--set", "rollout.groups=2")
	require.Equal(t, 2, status, errs)
	require.Equal(t, "agentfly: --set trainer.steps=2: trainer.steps: 2, but the run in "+dir+" has 3 steps already; give more to go on\n", errs)
	same, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(job), string(same))
	status, out, errs := command("", "status", dir)
	require.Zero(t, status, errs)
	require.Contains(t, out, "ended, 3 of 3 steps done")
	trainTiny(t, dir, "--resume", "--set", "trainer.steps=3") // as many say once more what the run came to

	// With as many, settings that would have trained nothing are left out, and the run replays as before.
	status, out, errs = command("", "train", "examples/tiny.yaml", "--output", dir, "--resume", "--set", "trainer.steps=3", "--set", "seed=2")
	require.Zero(t, status, errs)
	require.Contains(t, out, "note: nothing is left to train: 3 of 3 steps are done; raise trainer.steps to go on\nnote: the run keeps its job.yaml without the settings that changed: seed: 1 → 2\n")
	same, err = os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(job), string(same))
	status, out, errs = command("", "replay", dir)
	require.Zero(t, status, "%s%s", out, errs)
}

// A critic, whose head no Hugging Face file holds, and a reference, which stays where the run began, survive a resume.
func TestCriticAndReferenceResumeBitIdentical(t *testing.T) {
	needTorch(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	run := func(dir string, args ...string) {
		status, out, errs := command("", append([]string{
			"train", "--output", dir, "examples/tiny.yaml", "--set", "algorithm={advantage: gae, loss: {name: cispo, bound: relative}, kl: {coefficient: 0.05}, correction: {kind: seq_mask}, mini_batches: 2}",
		}, args...)...)
		require.Zero(t, status, "%s%s", out, errs)
	}
	run(whole, "--set", "trainer.steps=6")
	run(parts, "--set", "trainer.steps=3")
	run(parts, "--resume", "--set", "trainer.steps=6")
	rewards, weights := curve(t, whole)
	again, sameWeights := curve(t, parts)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, sameWeights))
	data, err := os.ReadFile(filepath.Join(parts, "metrics.jsonl"))
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]float64
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.Positive(t, m["update/value_loss"])
		require.Equal(t, i > 0, m["update/kl"] > 1e-9, "the policy begins as its reference and leaves it: %v", m["update/kl"])
	}
}

func TestDynamicSamplingResumesBitIdentical(t *testing.T) {
	needTorch(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	run := func(dir string, args ...string) {
		status, out, errs := command("", append([]string{
			"train", "--output", dir, "examples/tiny.yaml", "--set", "algorithm.dynamic_sampling=true", "--set", "rollout.group_size=4", "--set", "rollout.max_refills=3",
		}, args...)...)
		require.Zero(t, status, "%s%s", out, errs)
	}
	run(whole, "--set", "trainer.steps=8")
	run(parts, "--set", "trainer.steps=5")
	run(parts, "--resume", "--set", "trainer.steps=8")
	rewards, weights := curve(t, whole)
	again, sameWeights := curve(t, parts)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, sameWeights))
	dropped := 0.0
	data, err := os.ReadFile(filepath.Join(parts, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]float64
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.Zero(t, m["groups/flat"], "what is trained on has variance")
		require.Equal(t, m["groups/sampled"]*4, m["trajectories/finished"])
		require.LessOrEqual(t, m["groups/sampled"]-m["groups/dropped"], 4.0)
		dropped += m["groups/dropped"]
	}
	require.Positive(t, dropped)
}

func TestResumeRefusesOtherData(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := tiny(context.Background(), dir, harmless, "--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	other := filepath.Join(t.TempDir(), "tasks.jsonl")
	data, err := os.ReadFile("examples/tiny/tasks.jsonl")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, append(data, '\n'), 0o600))
	status, _, errs = tiny(context.Background(), dir, harmless, "--resume", "--set", "data.train="+other)
	require.Equal(t, 2, status)
	require.Contains(t, errs, "is not the file that the run in")
	for job, line := range map[string]string{
		"examples/tiny.yaml":     `{"question": "Which two?", "answer": "2"}`,
		"examples/tiny_sft.yaml": `{"messages": [{"role": "user", "content": "Which two?"}, {"role": "assistant", "content": "<answer>2</answer>"}]}`,
	} {
		held := filepath.Join(t.TempDir(), "held.jsonl")
		require.NoError(t, os.WriteFile(held, []byte(line), 0o600))
		args := []string{"--set", "data.eval=" + held, "--set", "eval.every=0", "--set", "trainer.steps=1"}
		if strings.Contains(job, "sft") {
			args[len(args)-1] = "sft.epochs=1"
		}
		dir := trainJob(t, job, args...)
		require.NoError(t, os.WriteFile(held, []byte(line+"\n"), 0o600))
		status, _, errs = command("", append([]string{"train", "--output", dir, "--resume", job}, args...)...)
		require.Equal(t, 2, status, job)
		require.Contains(t, errs, held+" is not the file that the run in")
	}
	status, _, errs = tiny(context.Background(), filepath.Join(t.TempDir(), "empty"), harmless, "--resume")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "holds no run to resume; leave --resume out")
}

func TestResumeRefusesACheckpointThatChanged(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := tiny(context.Background(), dir, harmless, "--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	for _, name := range []string{"model.safetensors", "trainer/optimizer.safetensors", "tokenizer.json"} {
		path := filepath.Join(dir, "checkpoints", "last", name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o600))
		status, _, errs = tiny(context.Background(), dir, harmless, "--resume")
		require.Equal(t, 1, status, errs)
		require.Contains(t, errs, filepath.Base(name)+" is not the file that was written")
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	status, _, errs = tiny(context.Background(), dir, harmless, "--resume", "--set", "trainer.steps=2")
	require.Zero(t, status, errs)
}

// A run that goes on with other settings says each of them, and keeps the job of before.
func TestResumeSaysWhichSettingsChanged(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := tiny(context.Background(), dir, harmless, "--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	before, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	status, out, errs := tiny(context.Background(), dir, harmless, "--resume", "--set", "trainer.steps=2", "--set", "trainer.learning_rate=5e-4")
	require.Zero(t, status, errs)
	require.Contains(t, out, "note: the run goes on with another setting: trainer.learning_rate: 0.001 → 0.0005\nnote: the run goes on with another setting: trainer.steps: 1 → 2\nnote: the job of before stays as "+filepath.Join(dir, "job.1.yaml")+"\n")
	kept, err := os.ReadFile(filepath.Join(dir, "job.1.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(kept))
	status, out, errs = tiny(context.Background(), dir, harmless, "--resume", "--set", "trainer.steps=2", "--set", "trainer.learning_rate=5e-4")
	require.Zero(t, status, errs)
	require.NotContains(t, out, "another setting")
	require.NoFileExists(t, filepath.Join(dir, "job.2.yaml"))
}

// A run that refuses to go on is as it was: its job, how many steps it takes, and what a replay comes to.
func TestARefusedResumeChangesNothing(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) (int, string, string) {
		return command("", append([]string{"train", "--output", dir, "examples/tiny.yaml"}, args...)...)
	}
	status, _, errs := train("--set", "trainer.steps=2")
	require.Zero(t, status, errs)
	before, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	status, _, errs = train("--resume", "--set", "trainer.steps=4", "--set", "model.lora.rank=4")
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, "model.lora: the run trained no adapter so far, and model.lora is set now; leave it out, or begin a new run with --output")
	now, err := runfolder.ReadNow(dir)
	require.NoError(t, err)
	require.Equal(t, runfolder.EndedDone, now.Ended)
	after, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.NoFileExists(t, filepath.Join(dir, "job.1.yaml"))
	steps, err := runfolder.Planned(opened(t, dir))
	require.NoError(t, err)
	require.Equal(t, 2, steps)
	status, out, errs := command("", "replay", dir)
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "weights: identical\n")
}

// A run goes on from its checkpoint, so other weights in model.path would change nothing but its replay: they are refused, at a path of the same
// name too. The same ones elsewhere are taken.
func TestResumeRefusesAnotherModel(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) (int, string, string) {
		return command("", append([]string{"train", "--output", dir, "examples/tiny.yaml"}, args...)...)
	}
	replay := func() (int, string, string) { return command("", "replay", dir) }
	status, _, errs := train("--set", "trainer.steps=2")
	require.Zero(t, status, errs)
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.CopyFS(moved, os.DirFS("examples/tiny/model")))
	trained := filepath.Join(dir, "checkpoints", "step-2")
	for path, says := range map[string]string{
		"nowhere": "model.path: nowhere does not exist",
		trained:   "model.path: the weights of " + trained + " are not those that the run in " + dir + " began with; give it that model back, or begin a new run with --output",
	} {
		status, _, errs := train("--resume", "--set", "trainer.steps=4", "--set", "model.path="+path)
		require.Equal(t, 2, status, errs)
		require.Contains(t, errs, says)
	}
	status, _, errs = train("--resume", "--set", "trainer.steps=4", "--set", "model.path="+moved)
	require.Zero(t, status, errs)
	status, out, errs := replay()
	require.Zero(t, status, errs)
	require.Contains(t, out, "weights: identical\n")

	require.NoError(t, os.RemoveAll(moved))
	require.NoError(t, os.CopyFS(moved, os.DirFS(trained)))
	for _, again := range []func() (int, string, string){
		replay,
		func() (int, string, string) {
			return train("--resume", "--set", "trainer.steps=6", "--set", "model.path="+moved)
		},
	} {
		status, _, errs = again()
		require.Equal(t, 2, status, errs)
		require.Contains(t, errs, "model.path: the weights of "+moved+" are not those that the run in "+dir+" began with; give it that model back")
	}
}

// An adapter that a run begins with is part of its model: another one would change nothing but its replay.
func TestResumeRefusesAnotherAdapter(t *testing.T) {
	needTorch(t)
	train := func(dir string, args ...string) (int, string, string) {
		return command("", append([]string{"train", "--output", dir, "examples/tiny.yaml"}, args...)...)
	}
	made := filepath.Join(t.TempDir(), "made")
	status, _, errs := train(made, "--set", "model.lora.rank=4", "--set", "trainer.steps=2", "--set", "checkpoint.every=1")
	require.Zero(t, status, errs)
	adapter := func(step string) string { return filepath.Join(made, "checkpoints", step, "adapter") }
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.CopyFS(moved, os.DirFS(adapter("step-1"))))
	louder := filepath.Join(t.TempDir(), "louder")
	require.NoError(t, os.CopyFS(louder, os.DirFS(moved)))
	config := filepath.Join(louder, "adapter_config.json")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, bytes.Replace(text, []byte(`"lora_alpha": 8`), []byte(`"lora_alpha": 4`), 1), 0o600))

	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs = train(dir, "--set", "model.lora.path="+adapter("step-1"), "--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	differs := func(path string) string {
		return "model.lora.path: the adapter " + path + " is not what the run in " + dir + " began with; give it back what it had, or begin a new run with --output"
	}
	for set, says := range map[string]string{
		"model.lora.path=" + adapter("step-2"): differs(adapter("step-2")),
		"model.lora.path=" + louder:            differs(louder),
		"model.lora.rank=4":                    "model.lora: the run in " + dir + " began with the adapter of a model.lora.path; give it that back, or begin a new run with --output",
	} {
		status, _, errs := train(dir, "--resume", "--set", "trainer.steps=2", "--set", set)
		require.Equal(t, 2, status, "%s: %s", set, errs)
		require.Contains(t, errs, says)
	}
	status, _, errs = train(dir, "--resume", "--set", "trainer.steps=2", "--set", "model.lora.path="+moved)
	require.Zero(t, status, errs)
	status, out, errs := command("", "replay", dir)
	require.Zero(t, status, errs)
	require.Contains(t, out, "weights: identical\n")
	require.NoError(t, os.RemoveAll(moved))
	require.NoError(t, os.CopyFS(moved, os.DirFS(adapter("step-2"))))
	status, _, errs = command("", "replay", dir)
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, differs(moved))
}

// A run that has ended stays what it is where a job that cannot go on with it is refused.
func TestResumeRefusesAnotherCritic(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) (int, string, string) {
		return command("", append([]string{"train", "--output", dir, "examples/tiny.yaml"}, args...)...)
	}
	status, _, errs := train("--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	before, err := os.ReadFile(filepath.Join(dir, "now.json"))
	require.NoError(t, err)
	status, _, errs = train("--resume", "--set", "trainer.steps=2", "--set", "algorithm.advantage=gae")
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, "algorithm.advantage: ")
	require.Contains(t, errs, "the run trained no critic so far, and algorithm.advantage gae has one; give it back the advantage that it had, or begin a new run with --output")
	after, err := os.ReadFile(filepath.Join(dir, "now.json"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// The weights of a checkpoint's adapter are of its rank and targets, and act by alpha/rank: another one would make another policy of them. The same
// alpha in other words is taken.
func TestResumeRefusesAnotherSettingOfItsAdapter(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	train := func(args ...string) (int, string, string) {
		return command("", append([]string{"train", "--output", dir, "examples/tiny.yaml", "--set", "model.lora.rank=4"}, args...)...)
	}
	status, _, errs := train("--set", "trainer.steps=1", "--set", "model.lora.alpha=8")
	require.Zero(t, status, errs)
	before, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	for set, says := range map[string]string{
		"model.lora.alpha=80":         "model.lora.alpha: the run in " + dir + " trains an adapter with alpha 8, and this job's has 80; give that back, or begin a new run with --output",
		"model.lora.rank=8":           "model.lora.rank: the run in " + dir + " trains an adapter with rank 4, and this job's has 8; give that back, or begin a new run with --output",
		"model.lora.targets=[q_proj]": "model.lora.targets: the run in " + dir + " trains an adapter with targets [q_proj k_proj v_proj o_proj gate_proj up_proj down_proj], and this job's has [q_proj]; give that back, or begin a new run with --output",
	} {
		status, _, errs := train("--resume", "--set", "trainer.steps=2", "--set", set)
		require.Equal(t, 2, status, "%s: %s", set, errs)
		require.Contains(t, errs, says)
		after, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	}
	status, _, errs = train("--resume", "--set", "trainer.steps=2") // alpha is twice the rank
	require.Zero(t, status, errs)
}

// A run that is stopped before its first step says so, without the words of what met the stop.
func TestStoppedBeforeTheRunBegan(t *testing.T) {
	needTorch(t)
	stopped, stop := context.WithCancel(context.Background())
	stop()
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := tiny(stopped, dir, harmless)
	require.Equal(t, 1, status, errs)
	require.Equal(t, "agentfly: interrupted before the run began, so nothing is saved\n", errs)
	status, _, errs = tiny(context.Background(), dir, harmless, "--set", "trainer.steps=1")
	require.Zero(t, status, errs)
	status, _, errs = tiny(stopped, dir, harmless, "--resume", "--set", "trainer.steps=2")
	require.Equal(t, 3, status, errs)
	require.Equal(t, "agentfly: the run was interrupted and saved; continue it with --resume (it had not gone on yet)\n", errs)
}
