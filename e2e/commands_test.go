package e2e_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

func TestExitStatuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("version: 1\nname: x\nmodle: {}\nrewards: [right_call]\n"), 0o600))
	for name, c := range map[string]struct {
		args   []string
		status int
		err    string // the beginning of standard error
	}{
		"no such command":   {[]string{"trian"}, 2, `agentfly: there is no command "trian" (did you mean "train"?); see agentfly --help`},
		"no such flag":      {[]string{"train", "--reusme", "x"}, 2, "agentfly: there is no flag --reusme (did you mean --resume?); see agentfly train --help"},
		"no job":            {[]string{"train"}, 2, "agentfly: agentfly train takes one argument, the job file; got 0"},
		"no such file":      {[]string{"job", "validate", "nowhere.yaml"}, 2, "agentfly: nowhere.yaml: the job file cannot be read: no such file or directory"},
		"a broken job":      {[]string{"train", broken}, 2, "agentfly: " + broken + `:3:1: unknown key "modle" in the job`},
		"no such tool":      {[]string{"tools", "call", "calculater", "{}"}, 2, `agentfly: there is no tool "calculater"`},
		"a call that fails": {[]string{"tools", "call", "calculator", `{"expression": "1/0"}`}, 1, "agentfly: the call failed"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := command("", c.args...)
			require.Equal(t, c.status, status, errOut)
			require.True(t, strings.HasPrefix(errOut, c.err), errOut)
		})
	}
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("version: 1\nname: x\nmodle: {path: y}\ntrainer: {steps: lots}\nrewards: [final_answer]\n"), 0o600))
	plain := filepath.Join(dir, "plain.py")
	require.NoError(t, os.WriteFile(plain, []byte("def f(): return 1\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":   {[]string{"trian"}, []string{`there is no command "trian"`}},
		"no job":            {[]string{"train"}, []string{"takes one argument, the job file"}},
		"missing file":      {[]string{"train", filepath.Join(dir, "none.yaml")}, []string{"no such file"}},
		"wrong keys":        {[]string{"job", "validate", broken}, []string{broken + ":3:1", "model", broken + ":4:18", "whole number"}},
		"set":               {[]string{"job", "validate", "--set", "trainer.stpes=3", "examples/calculator.yaml"}, []string{"steps"}},
		"flag":              {[]string{"train", "--sed", "1", "examples/tiny.yaml"}, []string{"there is no flag --sed (did you mean --seed?)"}},
		"below a command":   {[]string{"job", "vlaidate", "x"}, []string{`there is no command "job vlaidate" (did you mean "job validate"?)`}},
		"a job is served":   {[]string{"serve", "examples/tiny.yaml"}, []string{"examples/tiny.yaml is a file, but no .gguf; agentfly serve takes a model's folder, a .gguf, a hub id or a run folder"}},
		"half a model":      {[]string{"serve", dir}, []string{dir + " holds no config.json"}},
		"a run, no flag":    {[]string{"inspect", "trajectory", "runs/x"}, []string{"write --run runs/x"}},
		"a chat with none":  {[]string{"chat", dir}, []string{dir + " holds no config.json"}},
		"stored nowhere":    {[]string{"inspect", "trajectory", "--run", dir}, []string{dir + "/store.db: no such file or directory; name a run folder that holds a store.db"}},
		"trees of nowhere":  {[]string{"inspect", "tree", "--run", dir}, []string{dir + "/store.db: no such file or directory; name a run folder that holds a store.db"}},
		"nothing decorated": {[]string{"tools", "list", plain}, []string{plain + " decorates no function: write @tool() or @reward() above one, and from agentfly import tool, reward"}},
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

func TestCompletion(t *testing.T) {
	found, err := process("job", "--generate-bash-completion").Output()
	require.NoError(t, err)
	require.Equal(t, "validate\neffective\nmemory\nschema\nhelp\n", string(found))
	found, err = process("train", "--generate-bash-completion").Output()
	require.NoError(t, err)
	require.Empty(t, found, "a job file follows: the shell completes it")
	found, err = process("train", "job.yaml", "--re", "--generate-bash-completion").Output()
	require.NoError(t, err)
	require.Equal(t, "--resume\n", string(found))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, errs := command("", "completion", shell)
		require.Zero(t, status, errs)
		require.Contains(t, out, "agentfly")
	}
	status, _, errs := command("", "completion", "ksh")
	require.Equal(t, 2, status)
	require.Equal(t, "agentfly: there is no completion for \"ksh\"; allowed: bash, zsh, fish\n", errs)
}

// A flag that is wrong is refused before the model is loaded.
func TestServeFlags(t *testing.T) {
	t.Setenv("AGENTFLY_API_KEY", "")
	for _, c := range []struct {
		message string
		args    []string
	}{
		{"takes one argument", nil},
		{"--host 0.0.0.0 is reachable from elsewhere: give --api-key", []string{"m", "--host", "0.0.0.0"}},
		{"--host example.com is reachable from elsewhere", []string{"--host", "example.com", "m"}},
		{"--port is 70000", []string{"m", "--port", "70000"}},
		{"--dtype is \"float16\"; allowed: auto, float, float32, bfloat16", []string{"m", "--dtype", "float16"}},
		{"--device is \"tpu\"; allowed: auto, cpu, cuda", []string{"m", "--device", "tpu"}},
		{"--logprobs-mode is \"raw_logits\"", []string{"m", "--logprobs-mode", "raw_logits"}},
		{"--tool-call-parser is \"harmony\"; allowed: hermes, llama3_json, llama4_json, mistral, qwen3_coder, qwen3_json, qwen3_xml", []string{"m", "--tool-call-parser", "harmony"}},
		{"--max-model-len is 1", []string{"m", "--max-model-len", "1"}},
		{"--max-num-seqs is 0", []string{"m", "--max-num-seqs", "0"}},
		{"--max-queue is 0", []string{"m", "--max-queue", "0"}},
		{"--max-logprobs is 0", []string{"m", "--max-logprobs", "0"}},
		{"--kv-cache-memory-bytes is -1; it must be at least 1", []string{"m", "--kv-cache-memory-bytes", "-1"}},
		{"--kv-cache-memory-bytes is 0; it must be at least 1", []string{"m", "--kv-cache-memory-bytes", "0"}},
		{"--shutdown-timeout is -1", []string{"m", "--shutdown-timeout", "-1"}},
	} {
		status, _, errs := command("", append([]string{"serve"}, c.args...)...)
		require.Equal(t, 2, status, c.message)
		require.Contains(t, errs, c.message)
	}
	if cgo.Available() && cgo.CUDADevices() == 0 {
		status, _, errs := command("", "serve", "m", "--device", "cuda")
		require.Equal(t, 2, status)
		require.Contains(t, errs, "--device is cuda, but libtorch sees no CUDA device here; use auto or cpu")
	}
	status, _, errs := command("", "serve", "/no/such/model", "--host", "0.0.0.0", "--api-key", "k")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "/no/such/model")
}
