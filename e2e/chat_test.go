package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/trajectory"
)

// A trajectory is shown whole: what the model read, what it sampled and how likely that was, what its calls returned, and what it was paid.
func TestTryShowsATrajectory(t *testing.T) {
	needTorch(t)
	status, out, errs := command("", "try", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	require.Empty(t, errs)
	require.Equal(t, []string{"model     tiny/model", "task      1 of 4, id tiny-0", "prompt    4 tokens", "  │ <|user|>1+1<|end|><|assistant|>"}, strings.Split(out, "\n")[:4])
	require.Regexp(t, `(?m)^turn 1    \d tokens? sampled in \d+\.\d s, finish reason stop\n  │ .*\n          logprobs "`, out)
	require.Regexp(t, `(?m)^call      calculator \{"expression":"2\+2"\}  \(\d+ ms\)\n  │ 4$`, out)
	require.Regexp(t, `(?m)^stopped   \w+`, out)
	require.Regexp(t, `(?m)^mask      4 read, 2 sampled, 7 read, 2 sampled; trained are 4 of 15 tokens$`, out)
	require.Regexp(t, `(?m)^reward    0\.200\n          final_answer    0\.000  × 0\.8\n          right_call      1\.000  × 0\.2$`, out)
	require.NotContains(t, out, "\x1b", "no colours off a terminal")
	again := func(args ...string) string {
		status, out, errs := command("", append([]string{"try", "examples/tiny.yaml", "--json"}, args...)...)
		require.Zero(t, status, errs)
		return out
	}
	var first, same, other orchestrator.Inspected
	require.NoError(t, json.Unmarshal([]byte(again()), &first))
	require.NoError(t, json.Unmarshal([]byte(again("--task", "1")), &same))
	require.NoError(t, json.Unmarshal([]byte(again("--task", "2")), &other))
	require.Equal(t, first.Samples, same.Samples)
	require.Equal(t, "tiny-1", other.Task.ID)
	seeded := again("--seed", "7")
	require.NoError(t, json.Unmarshal([]byte(seeded), &same))
	require.NotEqual(t, first.Samples, same.Samples)

	for want, args := range map[string][]string{
		"--task is 5; the data has 4 tasks": {"--task", "5"}, "--task is 0; the first task is 1": {"--task", "0"},
		"nowhere does not exist": {"--model", "nowhere"},
	} {
		status, out, errs := command("", append([]string{"try", "examples/tiny.yaml"}, args...)...)
		require.NotZero(t, status)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
	// What fails says where, and with status 1.
	status, out, errs = command("", "try", "examples/tiny.yaml", "--set", "rewards=[{name: math_equal, field: nothing}]")
	require.Equal(t, 1, status)
	require.Contains(t, out, "failed    reward: ")
	require.Contains(t, errs, "agentfly: the trajectory failed: rewards: math_equal: ")
}

// A run stands for its last checkpoint wherever a model is asked for, and its job for itself.
func TestARunStandsForItsCheckpoint(t *testing.T) {
	needTorch(t)
	run := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "examples/tiny.yaml", "--output", run, "--set", "trainer.steps=2")
	require.Zero(t, status, errs)
	copied, err := os.ReadFile(filepath.Join(run, "job.yaml"))
	require.NoError(t, err)
	for _, args := range [][]string{
		{"try", run},
		{"try", "examples/tiny.yaml", "--model", run},
		{"chat", run},
		{"chat", "examples/tiny.yaml", "--model", run + "@2"},
		{"model", "info", run},
		{"model", "info", run + "@last"},
		{"inspect", "tokens", "--model", run},
		{"inspect", "score", "--model", run},
		{"eval", "examples/tiny.yaml", "--set", "data.eval=tiny/prompts_eval.jsonl", "--set", "data.columns={prompt: prompt}", "--set", "data.train=tiny/prompts.jsonl", "--set", "rewards=[format]", "--model", run},
		{"rollout", "examples/tiny.yaml", "--set", "rollout={groups: 1, group_size: 1, max_new_tokens: 2, max_tokens: 64}", "--model", run},
		{"model", "import", run, filepath.Join(t.TempDir(), "imported")},
	} {
		status, out, errs := command("1+1\n", args...)
		if args[0] == "inspect" {
			status, out, errs = command(`{"ids": [1, 2, 3]}`+"\n", args...)
		}
		require.Zero(t, status, "%v: %s", args, errs)
		require.NotEmpty(t, out, "%v", args)
	}
	// The run's copy stays what messages name.
	require.NoError(t, os.WriteFile(filepath.Join(run, "job.yaml"), append(copied, "modle: 1\n"...), 0o600))
	status, _, errs = command("", "try", run)
	require.Equal(t, 2, status)
	require.True(t, strings.HasPrefix(errs, "agentfly: "+filepath.Join(run, "job.yaml")+":"), errs)
	status, _, errs = command("", "try", run, "--set", "seed=2")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "--set changes a job file; "+run+" is a run")
}

// speaker is an engine that says the texts that it was given, each character by itself, and keeps what it was asked.
type speaker struct {
	encode  func(string) []int32
	replies []string
	asked   *[]string
}

func (s *speaker) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	return s.Stream(ctx, r, engines.Detail{}, func([]engines.Token) {})
}

func (s *speaker) Stream(_ context.Context, r engines.Request, _ engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	var roles []string
	turn := 0
	for _, m := range r.Messages {
		text, err := m.TextContent()
		if err != nil {
			return engines.Completion{}, err
		}
		roles = append(roles, m.Role+":"+text)
		if m.Role == "assistant" {
			turn++
		}
	}
	*s.asked = append(*s.asked, strings.Join(roles, "|"))
	ids := append(s.encode(s.replies[turn%len(s.replies)]), r.Sampling.StopIDs[0])
	for _, id := range ids {
		on([]engines.Token{{ID: id}})
	}
	return engines.Completion{TokenIDs: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), FinishReason: trajectory.FinishStop}, nil
}

func (*speaker) Update(context.Context, engines.Weights) error { return errors.New("no weights") }
func (*speaker) Close() error                                  { return nil }
func (*speaker) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, MaxModelLen: 4096}
}

// A conversation goes on over its lines; a call's result is shown; what the model writes does nothing to a terminal.
func TestChat(t *testing.T) {
	needTorch(t)
	model := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(model, os.DirFS("examples/tiny/model")))
	path := filepath.Join(model, "tokenizer.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), `"<answer>5</answer>"`)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), `"<answer>5</answer>"`, `"\u001b[2J"`)), 0o600)) // a token that clears the screen
	var asked []string
	run := func(in string, args ...string) (int, string, string) {
		asked = nil
		var o, e bytes.Buffer
		option := agentfly.WithEngineFactory("speaker", "speaks", func(_ context.Context, s engines.Setup) (engines.Engine, error) {
			return &speaker{s.Encode, []string{"5\x1b[2J4", "<calculator>2+2</calculator>", "4"}, &asked}, nil
		})
		status := agentfly.Run(context.Background(), append([]string{
			"agentfly", "chat", "examples/tiny.yaml", "--set", "deterministic=false", "--set", "engine={kind: speaker}",
			"--set", "rollout={max_new_tokens: 60, max_tokens: 64}", "--set", "agent.max_turns=3", "--set", "model.path=" + model,
		}, args...),
			strings.NewReader(in), &o, &e, option)
		return status, o.String(), e.String()
	}
	status, out, errs := run("1+1\n\n2+2\n/new\n1+2")
	require.Zero(t, status, errs)
	require.Equal(t, "5\\x1b[2J4\n<calculator>2+2</calculator>\n  calculator {\"expression\":\"2+2\"} → 4\n4\n5\\x1b[2J4\n", out)
	require.Equal(t, []string{
		"user:1+1", "user:1+1|assistant:5\x1b[2J4|user:2+2",
		"user:1+1|assistant:5\x1b[2J4|user:2+2|assistant:<calculator>2+2</calculator>|user:<result>4</result>", "user:1+2",
	}, asked)

	status, out, errs = run("")
	require.Zero(t, status, errs)
	require.Empty(t, out+errs)

	for want, args := range map[string][]string{
		"chat takes one argument, a model, a run folder or a job file": {"chat"},
		"--system is of a chat with a model":                           {"chat", "examples/tiny.yaml", "--system", "x"},
		"--model and --set are of a chat with a job":                   {"chat", "examples/tiny/model", "--set", "seed=1"},
		"nowhere does not exist":                                       {"chat", "nowhere"},
		"--max-new-tokens is 0":                                        {"chat", "examples/tiny/model", "--max-new-tokens", "0"},
	} {
		status, out, errs := command("x\n", args...)
		require.Equal(t, 2, status, errs)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
	// A line that is too long ends the chat with the reason, and a conversation that does not fit says so.
	status, _, errs = run(strings.Repeat("x", 2<<20))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "a message is one line of at most 1048576 bytes")
	status, _, errs = run(strings.Repeat("1+1", 100))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "agentfly: chat-0-0-0: the prompt has ")
}
