package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A random student comes close to its teacher on held-out prompts, with its own samples alone; with the teacher's scores
// permuted over the tokens it does not.
func TestDistillationOnHeldOutPrompts(t *testing.T) {
	needTorch(t)
	teacher := filepath.Join(trainJob(t, "examples/tiny_sft.yaml", "--set", "data.eval=", "--set", "eval.every=0"), "checkpoints", "last")
	args := []string{"--set", "distill.teacher.path=" + teacher, "--set", "eval.every=0"}
	dir := trainJob(t, "examples/tiny_distill.yaml", args...)
	eval := summaryOf(t, dir).Eval
	require.Greater(t, eval["reverse_kl_before"], 1.0)
	require.Less(t, eval["reverse_kl_after"], eval["reverse_kl_before"]/10)
	require.GreaterOrEqual(t, eval["after"], 0.75, "what the teacher can, the student can: no reward was trained on")
	steps := metricsOf(t, dir, "distill/reverse_kl")
	require.Less(t, steps[len(steps)-1]["distill/reverse_kl"].(float64), steps[0]["distill/reverse_kl"].(float64)/10)

	again := trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "trainer.steps=4")...)
	status, out, errs := command("", append([]string{"train", "--output", again, "--resume", "examples/tiny_distill.yaml", "--set", "trainer.steps=8"}, args...)...)
	require.Zero(t, status, "%s%s", out, errs)
	whole := trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "trainer.steps=8")...)
	weights := func(dir string) string {
		data, err := os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
		require.NoError(t, err)
		return string(data)
	}
	require.True(t, weights(whole) == weights(again), "a resumed distillation ends with other weights")

	control := summaryOf(t, trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "control.shuffle_teacher=true")...)).Eval
	require.Greater(t, control["reverse_kl_after"], eval["reverse_kl_before"]/2, "before %v", control["reverse_kl_before"])

	other := filepath.Join(t.TempDir(), "run")
	template := filepath.Join(t.TempDir(), "other.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"), 0o600))
	status, _, errs = command("", append([]string{"train", "--output", other, "examples/tiny_distill.yaml", "--set", "model.chat_template=" + template}, args...)...)
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, "the teacher has another tokenizer or chat template")
	require.NoDirExists(t, other)
}
