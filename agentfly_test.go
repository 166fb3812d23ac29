package agentfly_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/python/gpython"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// command runs a command line and returns status, output and errors.
func command(in string, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = agentfly.Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

// TestMain lets the test binary stand in for agentfly's in tests that need a process of its own.
func TestMain(m *testing.M) {
	gpython.Main(os.Args)
	if os.Getenv("AGENTFLY_TEST_BINARY") != "" {
		agentfly.Main(inChildren...)
	}
	os.Exit(m.Run())
}

// inChildren is what those processes know beside what agentfly has.
var inChildren []agentfly.Option

// process is a command line that runs in a process of its own.
func process(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "AGENTFLY_TEST_BINARY=1")
	return c
}

func needTorch(t *testing.T) {
	t.Helper()
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
}

func TestEveryShippedJobIsValid(t *testing.T) {
	onPath(t)
	files, err := filepath.Glob("examples/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			if _, err := os.Stat("examples/masksearch/passages.jsonl"); f == "examples/masksearch.yaml" && err != nil {
				t.Skip("its passages are not there: scripts/learn.sh masksearch fetches them")
			}
			status, out, errs := command("", "job", "validate", "--run-code", f)
			require.Zero(t, status, errs)
			require.Equal(t, f+": ok\n", out)
			status, out, _ = command("", "job", "effective", f)
			require.Zero(t, status)
			require.Contains(t, out, "aggregation")
		})
	}
}

// A job may be for rollouts alone; whoever means to train with it reads that it would be refused.
func TestValidateSaysWhatTrainingRefuses(t *testing.T) {
	onPath(t)
	const f, refused = "examples/tiny.yaml", "--set rollout.top_p=0.9: rollout.top_p: 0.9: training needs the logprobs of the whole distribution that was sampled; this is for rollout and eval only, leave it out\n"
	status, out, errs := command("", "job", "validate", f, "--set", "rollout.top_p=0.9")
	require.Zero(t, status, errs)
	require.Equal(t, f+": ok for rollout and eval; train refuses it:\n"+refused, out)
	status, out, errs = command("", "job", "effective", f, "--set", "rollout.top_p=0.9")
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Contains(t, errs, refused)
	status, _, errs = command("", "job", "validate", "examples/tiny_sft.yaml", "--set", "rollout.temperature=0.5")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "rollout.temperature: 0.5: sft learns the distribution at temperature 1; leave it out")
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("version: 1\nname: x\nmodle: {path: y}\ntrainer: {steps: lots}\nrewards: [final_answer]\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command": {[]string{"trian"}, []string{`there is no command "trian"`}},
		"no job":          {[]string{"train"}, []string{"takes one argument, the job file"}},
		"missing file":    {[]string{"train", filepath.Join(dir, "none.yaml")}, []string{"no such file"}},
		"wrong keys":      {[]string{"job", "validate", broken}, []string{broken + ":3:1", "model", broken + ":4:18", "whole number"}},
		"set":             {[]string{"job", "validate", "--set", "trainer.stpes=3", "examples/calculator.yaml"}, []string{"steps"}},
		"flag":            {[]string{"train", "--sed", "1", "examples/tiny.yaml"}, []string{"flag"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errs := command("", c.args...)
			require.Equal(t, 2, status, errs)
			for _, w := range c.want {
				require.Contains(t, errs, w)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	found, err := process("job", "--generate-bash-completion").Output()
	require.NoError(t, err)
	require.Equal(t, "validate\neffective\nschema\nhelp\nh\n", string(found))
	found, err = process("train", "--generate-bash-completion").Output()
	require.NoError(t, err)
	require.Empty(t, found, "a job file follows: the shell completes it")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, errs := command("", "completion", shell)
		require.Zero(t, status, errs)
		require.Contains(t, out, "agentfly")
	}
	status, _, errs := command("", "completion", "ksh")
	require.Equal(t, 2, status)
	require.Equal(t, "agentfly: there is no completion for \"ksh\"; allowed: bash, fish, zsh\n", errs)
}

func TestToolsCall(t *testing.T) {
	status, out, _ := command("", "tools", "call", "calculator", `{"expression": "347 + 589"}`)
	require.Zero(t, status)
	require.JSONEq(t, `{"observation": "936"}`, out)
	status, out, _ = command("", "tools", "call", "calculator", `{"expression": "1 / 0"}`)
	require.Equal(t, 1, status)
	require.Contains(t, out, `"error"`)
	status, _, errs := command("", "tools", "call", "calculater", `{}`)
	require.Equal(t, 2, status)
	require.Contains(t, errs, "calculator")
}

func TestSchemaIsJSON(t *testing.T) {
	status, out, _ := command("", "job", "schema")
	require.Zero(t, status)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Contains(t, v["properties"], "rollout")
}

func TestOptionsRegister(t *testing.T) {
	var out, errs bytes.Buffer
	shout := tools.NewFunc("shout", "Say it louder.", func(_ context.Context, a struct {
		Text string `json:"text"`
	},
	) (string, error) {
		return strings.ToUpper(a.Text), nil
	})
	kind := rewards.NewFunc("kind", func(context.Context, rewards.Input) (float64, error) { return 1, nil })
	status := agentfly.Run(context.Background(), []string{"agentfly", "tools", "call", "shout", `{"text": "hi"}`}, strings.NewReader(""), &out, &errs, agentfly.WithTool(shout), agentfly.WithReward(kind))
	require.Zero(t, status, errs.String())
	require.JSONEq(t, `{"observation": "HI"}`, out.String())
	status = agentfly.Run(context.Background(), []string{"agentfly", "version"}, strings.NewReader(""), &out, &errs, agentfly.WithTool(shout), agentfly.WithTool(shout))
	require.Equal(t, 1, status)
	require.Contains(t, errs.String(), "already registered")
}

// curve is the reward of each step of a run, and the bytes of its final weights.
func curve(t *testing.T, dir string) (rewards []float64, weights []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if r, ok := m["reward/mean"].(float64); ok {
			rewards = append(rewards, r)
			require.Less(t, m["update/mismatch_max"].(float64), 1e-4, "engine and trainer disagree")
		}
	}
	weights, err = os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
	require.NoError(t, err)
	return rewards, weights
}

func last(v []float64, n int) (mean float64) {
	for _, x := range v[len(v)-n:] {
		mean += x / float64(n)
	}
	return mean
}

func TestTinyRunLearnsAndRepeatsBitForBit(t *testing.T) {
	needTorch(t)
	train := func(args ...string) ([]float64, []byte) {
		dir := filepath.Join(t.TempDir(), "run")
		status, out, errs := command("", append([]string{"train", "--output", dir}, append(args, "examples/tiny.yaml")...)...)
		require.Zero(t, status, "%s%s", out, errs)
		require.FileExists(t, filepath.Join(dir, "summary.json"))
		return curve(t, dir)
	}
	rewards, weights := train()
	require.Greater(t, last(rewards, 5), 0.9, "the reward must rise: %v", rewards)
	require.Less(t, rewards[0], 0.4)

	again, sameWeights := train()
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, sameWeights), "the final weights differ")

	shuffled, _ := train("--set", "control.shuffle_rewards=true")
	require.Less(t, last(shuffled, 5), 0.3, "with shuffled rewards there is nothing to learn: %v", shuffled)
}

// With control.tools_off no call is answered, so the tiny job, whose reward needs one, has nothing to learn from.
func TestControlToolsOff(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", "--output", dir, "--set", "control.tools_off=true", "--set", "trainer.steps=4", "examples/tiny.yaml")
	require.Zero(t, status, "%s%s", out, errs)
	rewards, _ := curve(t, dir)
	require.Equal(t, []float64{0, 0, 0, 0}, rewards)
}

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

func TestInspectTrajectoryShowsTheStoredTokens(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--output", dir, "--set", "trainer.steps=1", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	status, out, errs := command("", "inspect", "trajectory", "--run", dir)
	require.Zero(t, status, errs)
	trained := 0
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r struct {
			Phase   string `json:"phase"`
			Samples [][]struct {
				Mask      int      `json:"mask"`
				Old       *float64 `json:"old_logprob"`
				Advantage *float64 `json:"advantage"`
			} `json:"samples"`
			Trajectory struct {
				Turns []struct {
					Start int `json:"completion_start"`
					End   int `json:"completion_end"`
				} `json:"turns"`
			} `json:"trajectory"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		sampled, masked := 0, 0
		for _, turn := range r.Trajectory.Turns {
			sampled += turn.End - turn.Start
		}
		for _, token := range r.Samples[0] {
			masked += token.Mask
			if r.Phase == "train" && token.Mask == 1 {
				require.NotNil(t, token.Old)
				require.NotNil(t, token.Advantage)
				trained++
			}
		}
		require.Equal(t, sampled, masked, "trained tokens are exactly the sampled ones")
	}
	require.Positive(t, trained)
}

func TestInspectScoreOfTrainerAndEngineAgree(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--output", dir, "--set", "trainer.steps=1", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	type answer struct {
		Logprobs []float64 `json:"logprobs"`
		Entropy  []float64 `json:"entropy"`
		Error    string    `json:"error"`
	}
	model := filepath.Join(dir, "checkpoints", "last")
	score := func(flags ...string) (answers []answer) {
		lines := `{"ids": [1, 5, 9, 4, 4, 7, 2, 8, 3, 6]}` + "\n" + `{"ids": [3]}` + "\n" + `{"ids": [1, 100000]}` + "\n"
		status, out, errs := command(lines, append([]string{"inspect", "score", "--model", model}, flags...)...)
		require.Zero(t, status, errs)
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var a answer
			require.NoError(t, json.Unmarshal([]byte(line), &a))
			answers = append(answers, a)
		}
		return answers
	}
	trainer, engine := score(), score("--engine")
	require.Len(t, trainer, 3)
	require.Len(t, engine, 3)
	require.Len(t, trainer[0].Logprobs, 9)
	require.Len(t, trainer[0].Entropy, 9)
	require.InDeltaSlice(t, trainer[0].Logprobs, engine[0].Logprobs, 2e-5)
	for _, bad := range []answer{trainer[1], trainer[2], engine[1], engine[2]} {
		require.NotEmpty(t, bad.Error)
	}
	bare := t.TempDir() // ids need no tokenizer
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(model, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bare, name), data, 0o600))
	}
	model = bare
	require.Equal(t, trainer, score())
	require.Equal(t, engine, score("--engine"))
}

// An engine that reads its matrices in bfloat16 samples from another distribution than the trainer's: the gap is in the
// metrics, a correction weighs it, and the job learns.
func TestBFloat16EngineIsCorrectedFor(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--seed", "2", "--output", dir, "--set", "engine.dtype=bfloat16", "--set", "algorithm.correction.kind=tis_token", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	data, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	var summary struct {
		MismatchMax float64            `json:"mismatch_max"`
		Reward      map[string]float64 `json:"reward"`
	}
	require.NoError(t, json.Unmarshal(data, &summary))
	require.Less(t, summary.Reward["first"], 0.1)
	require.Greater(t, summary.Reward["last"], 0.8)
	require.Greater(t, summary.MismatchMax, 1e-3, "the matrices are not in bfloat16")
	require.Less(t, summary.MismatchMax, 0.5)
}
