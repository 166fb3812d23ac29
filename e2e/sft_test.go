package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first step's loss and gradient are those that transformers computes (scripts/goldens/sft.py).
func TestSFTAgainstTransformers(t *testing.T) {
	needTorch(t)
	var golden map[string]struct {
		Loss     float64 `json:"loss"`
		GradNorm float64 `json:"grad_norm"`
	}
	data, err := os.ReadFile("orchestrator/objective/testdata/sft.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))
	for name, tools := range map[string]string{"stops": "[calculator]", "none": "[]"} {
		args := []string{"--set", "sft={batch: 16}", "--set", "trainer.steps=1", "--set", "data.eval=", "--set", "eval.every=0", "--set", "agent.tools=" + tools, "--set", "agent.instructions=false"}
		if name == "none" {
			args = append(args, "--set", "agent.format=hermes")
		}
		steps := metricsOf(t, trainJob(t, "examples/tiny_sft.yaml", args...), "sft/loss")
		require.Len(t, steps, 1)
		require.InDelta(t, golden[name].Loss, steps[0]["sft/loss"], 1e-5, name)
		require.InDelta(t, golden[name].Loss, steps[0]["update/loss"], 1e-5, name)
		require.InEpsilon(t, golden[name].GradNorm, steps[0]["update/grad_norm"], 1e-4, name)
	}
}

func TestSFTLearnsAndResumesBitForBit(t *testing.T) {
	needTorch(t)
	weights := func(dir string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
		require.NoError(t, err)
		return data
	}
	whole := trainJob(t, "examples/tiny_sft.yaml")
	s := summaryOf(t, whole)
	require.Equal(t, 80, s.Steps, "40 epochs of 16 conversations in steps of 8")
	require.Greater(t, s.Loss["eval_before"], 2.0)
	require.Less(t, s.Loss["eval_after"], 0.1, "held-out conversations")
	require.Less(t, s.Loss["last"], 0.1)
	require.Len(t, metricsOf(t, whole, "eval"), 5, "before, steps 20, 40 and 60, after")
	steps := metricsOf(t, whole, "sft/loss")
	require.Len(t, steps, 80)
	require.Equal(t, 0.5, steps[0]["sft/epoch"])
	require.Equal(t, 40.0, steps[79]["sft/epoch"])
	require.Equal(t, 1.0, steps[0]["update/policy_version"])
	require.Equal(t, 80.0, steps[79]["update/policy_version"], "each step moved the weights")

	parts := filepath.Join(t.TempDir(), "parts") // as if it had been stopped in the middle of an epoch
	status, out, errs := command("", "train", "--output", parts, "examples/tiny_sft.yaml", "--set", "checkpoint.every=7", "--set", "trainer.schedule=constant")
	require.Zero(t, status, "%s%s", out, errs)
	constant := weights(parts)
	require.NoError(t, os.RemoveAll(filepath.Join(parts, "checkpoints", "step-80")))
	require.NoError(t, os.Remove(filepath.Join(parts, "checkpoints", "last")))
	require.NoError(t, os.Symlink("step-77", filepath.Join(parts, "checkpoints", "last")))
	status, out, errs = command("", "train", "--output", parts, "--resume", "examples/tiny_sft.yaml", "--set", "trainer.schedule=constant")
	require.Zero(t, status, "%s%s", out, errs)
	require.True(t, bytes.Equal(constant, weights(parts)), "a resumed run ends with other weights")
	again := metricsOf(t, parts, "sft/loss")
	require.Len(t, again, 80)
	require.Equal(t, 80.0, again[79]["update/policy_version"])

	// The warm model solves the tasks that it saw solved.
	status, out, errs = command("", "eval", "examples/tiny.yaml", "--model", filepath.Join(whole, "checkpoints", "last"), "--set", "data.train=", "--set", "data.eval=tiny/tasks.jsonl")
	require.Zero(t, status, errs)
	var e struct {
		Reward float64 `json:"reward"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &e))
	require.Equal(t, 1.0, e.Reward)

	// A packed batch is the sum of its conversations: other micro-batches, the same loss.
	small := trainJob(t, "examples/tiny_sft.yaml", "--set", "trainer.steps=2", "--set", "sft={batch: 8}", "--set", "trainer.schedule=constant", "--set", "trainer.micro_batch_tokens=20")
	for i, m := range metricsOf(t, small, "sft/loss") {
		require.InDelta(t, steps[i]["sft/loss"], m["sft/loss"], 1e-4)
	}
}

// A run that goes on with another batch learns the rest of its epochs in steps of that: none is left out, and no step is empty.
func TestSFTGoesOnWithAnotherBatch(t *testing.T) {
	needTorch(t)
	for name, c := range map[string]struct {
		batch string
		rest  []float64 // conversations of each step from the fourth on
	}{
		"double": {"16", []float64{16, 8}},
		"half":   {"4", []float64{4, 4, 4, 4, 4, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := trainJob(t, "examples/tiny_sft.yaml", "--set", "sft.epochs=3", "--set", "checkpoint.every=3") // as if it had been stopped in the middle of the second
			last := filepath.Join(dir, "checkpoints", "last")
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "checkpoints", "step-6")))
			require.NoError(t, os.Remove(last))
			require.NoError(t, os.Symlink("step-3", last))
			status, out, errs := command("", "train", "--output", dir, "--resume", "examples/tiny_sft.yaml", "--set", "sft.epochs=3", "--set", "sft.batch="+c.batch)
			require.Zero(t, status, "%s%s", out, errs)
			steps := metricsOf(t, dir, "sft/loss")
			var rest []float64
			for _, m := range steps[3:] {
				rest = append(rest, m["sft/conversations"].(float64))
			}
			require.Equal(t, c.rest, rest)
			require.Equal(t, 3.0, steps[len(steps)-1]["sft/epoch"])
			require.Less(t, steps[len(steps)-1]["update/learning_rate"], steps[len(steps)-2]["update/learning_rate"])
			s := summaryOf(t, dir)
			require.Equal(t, len(steps), s.Steps)
			status, out, errs = command("", "runs", "--json", dir)
			require.Zero(t, status, errs)
			var told struct{ Steps, Planned int }
			require.NoError(t, json.Unmarshal([]byte(out), &told))
			require.Equal(t, struct{ Steps, Planned int }{len(steps), len(steps)}, told, "agentfly runs tells the steps of the epochs")
			require.Positive(t, s.Loss["last"])
		})
	}
}

// A run's own trajectories are learned with the very ids and masks that the run sampled.
func TestRejectionSampling(t *testing.T) {
	needTorch(t)
	source := trainJob(t, "examples/tiny.yaml", "--set", "trainer.steps=25")
	dir := trainJob(t, "examples/tiny_rejection.yaml", "--set", "data.run="+source, "--set", "data.eval=")
	type token struct {
		ID   int32 `json:"id"`
		Mask int   `json:"mask"`
	}
	read := func(dir, phase string, keep func(reward float64) bool) map[string]bool {
		_, out, _ := command("", "inspect", "trajectory", "--run", dir)
		all := map[string]bool{}
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var r struct {
				Phase      string    `json:"phase"`
				Samples    [][]token `json:"samples"`
				Trajectory struct {
					Reward float64 `json:"reward"`
				} `json:"trajectory"`
			}
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			if r.Phase == phase && keep(r.Trajectory.Reward) {
				key, err := json.Marshal(r.Samples)
				require.NoError(t, err)
				all[string(key)] = true
			}
		}
		return all
	}
	good := read(source, "train", func(r float64) bool { return r >= 0.9 })
	learned := read(dir, "sft", func(float64) bool { return true })
	require.NotEmpty(t, learned)
	for key := range learned {
		require.True(t, good[key], "%s was not sampled by the run, or not with this reward", key)
	}
	s := summaryOf(t, dir)
	require.Less(t, s.Loss["last"], s.Loss["first"]/4)

	other := filepath.Join(t.TempDir(), "run")
	template := filepath.Join(t.TempDir(), "other.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"), 0o600))
	status, _, errs := command("", "train", "--output", other, "examples/tiny_rejection.yaml", "--set", "data.run="+source, "--set", "model.chat_template="+template, "--set", "data.eval=")
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, "was sampled with another tokenizer or chat template")
	require.NoDirExists(t, other)
}

func TestAConversationThatIsTooLongIsRefused(t *testing.T) {
	needTorch(t)
	long := filepath.Join(t.TempDir(), "long.jsonl")
	line, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": strings.Repeat("2", 300)}, {"role": "assistant", "content": "2"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(long, line, 0o600))
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--output", dir, "examples/tiny_sft.yaml", "--set", "data.train="+long, "--set", "agent.instructions=false")
	require.Equal(t, 2, status)
	require.Contains(t, errs, long+":1 has 305 tokens, and the model takes 256; shorten it or leave it out")
	require.NoDirExists(t, dir)
}
