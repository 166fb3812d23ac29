package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

// shortTiny are the settings of a tiny run of a second or two.
var shortTiny = []string{"--set", "trainer.steps=4", "--set", "checkpoint.every=2"}

// asyncTiny makes it asynchronous.
var asyncTiny = []string{
	"--set", "deterministic=false", "--set", "rollout.mode=async", "--set", "rollout.max_staleness=2", "--set", "algorithm.correction={kind: tis_token}",
}

func trainShort(t *testing.T, dir string, args ...string) {
	t.Helper()
	status, out, errs := command("", append(append([]string{"train", "examples/tiny.yaml", "--output", dir}, shortTiny...), args...)...)
	require.Zero(t, status, "%s%s", out, errs)
}

// A run is sampled and trained again from its log: the same tokens, logprobs, versions and weights, bit for bit.
func TestReplay(t *testing.T) {
	needTorch(t)
	for name, args := range map[string][]string{"sync": nil, "async": asyncTiny} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			trainShort(t, dir, args...)
			again := filepath.Join(t.TempDir(), "again")
			status, out, errs := command("", "replay", dir, "--output", again)
			require.Zero(t, status, "%s%s", out, errs)
			require.Regexp(t, `(?m)^step   4/4   4 groups, 128 trajectories, policy version 4: the same$`, out)
			require.Regexp(t, `(?m)^4 batches, 512 trajectories, \d+ tokens sampled again, weights: identical$`, out)
			weights, err := os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
			require.NoError(t, err)
			same, err := os.ReadFile(filepath.Join(again, "checkpoints", "last", "model.safetensors"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(weights, same))

			t.Run("another learning rate", func(t *testing.T) {
				status, _, errs := replayWith(t, dir, func(job []byte) []byte {
					return regexp.MustCompile(`learning_rate: \S+`).ReplaceAll(job, []byte("learning_rate: 0.02"))
				})
				require.Equal(t, 1, status)
				require.Regexp(t, `^agentfly: replay: step [234]: trajectory train-\d+-\d+-\d+, turn \d+, token \d+ of its completion: (sampled is|its logprob is) \S+, recorded is \S+\n$`, errs)
			})
			t.Run("another seed", func(t *testing.T) {
				status, _, errs := replayWith(t, dir, func(job []byte) []byte {
					return regexp.MustCompile(`(?m)^seed: \d+`).ReplaceAll(job, []byte("seed: 77"))
				})
				require.Equal(t, 1, status)
				require.Regexp(t, `^agentfly: replay: step 1: trajectory train-\d+-\d+-\d+, turn 0.*\n$`, errs)
			})
			t.Run("other weights", func(t *testing.T) {
				path := filepath.Join(dir, "checkpoints", "last", "model.safetensors")
				other := bytes.Clone(weights)
				other[len(other)-1] ^= 1
				require.NoError(t, os.WriteFile(path, other, 0o600))
				status, _, errs := command("", "replay", dir)
				require.Equal(t, 1, status)
				require.Contains(t, errs, "model.safetensors is not the file that was written")

				// as if the run had written it so
				state := filepath.Join(dir, "checkpoints", "last", "run.json")
				table := crc32.MakeTable(crc32.Castagnoli)
				text, err := os.ReadFile(state)
				require.NoError(t, err)
				text = bytes.ReplaceAll(text, fmt.Appendf(nil, "%08x", crc32.Checksum(weights, table)), fmt.Appendf(nil, "%08x", crc32.Checksum(other, table)))
				require.NoError(t, os.WriteFile(state, text, 0o600))
				status, _, errs = command("", "replay", dir)
				require.Equal(t, 1, status)
				require.Regexp(t, `^agentfly: replay: checkpoint after step 4: a weight differs in model.safetensors, first at byte \d+\n$`, errs)
			})
		})
	}
	status, _, errs := command("", "replay", t.TempDir())
	require.Equal(t, 2, status)
	require.Contains(t, errs, "name a run folder that holds a store.db")
}

// replayWith replays a run whose job was changed.
func replayWith(t *testing.T, dir string, change func([]byte) []byte) (int, string, string) {
	t.Helper()
	path := filepath.Join(dir, "job.yaml")
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	changed := change(was)
	require.NotEqual(t, string(was), string(changed))
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	defer func() { require.NoError(t, os.WriteFile(path, was, 0o600)) }()
	return command("", "replay", dir)
}

// A run that was interrupted and went on is replayed as one.
func TestReplayOfAResumedRun(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	args := append(append([]string{"agentfly", "train", "examples/tiny.yaml", "--output", dir}, shortTiny...), asyncTiny...)
	ctx, cancel := context.WithCancel(context.Background())
	stop := &after{n: 2, text: "step ", then: cancel}
	var out, errs bytes.Buffer
	require.Equal(t, 3, agentfly.Run(ctx, args, bytes.NewReader(nil), stop, &errs))
	require.Zero(t, agentfly.Run(context.Background(), append(args, "--resume"), bytes.NewReader(nil), &out, &errs), errs.String())
	status, printed, said := command("", "replay", dir)
	require.Zero(t, status, "%s%s", printed, said)
	require.Contains(t, printed, "weights: identical\n")
}

// A replay takes the newest job for all steps. Where the run changed a setting on its way, the difference is said to be that.
func TestReplayOfARunThatWentOnWithAnotherSettingSaysSo(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	trainShort(t, dir, "--set", "trainer.schedule=linear")
	trainShort(t, dir, "--resume", "--set", "trainer.schedule=linear", "--set", "trainer.steps=8")
	status, out, errs := command("", "replay", dir)
	require.Equal(t, 1, status, out)
	require.Regexp(t, `^agentfly: replay: step \d: trajectory .*, recorded is \S+; the run went on with other settings, and its replay takes the newest for every step: trainer\.steps: 4 → 8\n$`, errs)
}

// after calls then when the n-th line that begins with text is written.
type after struct {
	n    int
	text string
	then func()
}

func (a *after) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(a.text)) {
		if a.n--; a.n == 0 {
			a.then()
		}
	}
	return len(p), nil
}

// A replay evaluates nothing, so held-out tasks that changed or are gone do not keep it; other training data are told of by the run's folder.
func TestReplayNeedsTheTrainingDataAlone(t *testing.T) {
	needTorch(t)
	files := t.TempDir()
	train, held := filepath.Join(files, "train.jsonl"), filepath.Join(files, "held.jsonl")
	text, err := os.ReadFile("examples/tiny/tasks.jsonl")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(train, text, 0o600))
	require.NoError(t, os.WriteFile(held, []byte(`{"question": "1+3", "answer": "4", "steps": ["4"]}`+"\n"), 0o600))
	dir := filepath.Join(t.TempDir(), "run")
	trainShort(t, dir, "--set", "trainer.steps=2", "--set", "data.train="+train, "--set", "data.eval="+held)
	replay := func() (int, string, string) { return command("", "replay", dir) }
	require.NoError(t, os.WriteFile(held, []byte(`{"question": "3+1", "answer": "4", "steps": ["4"]}`+"\n"), 0o600))
	status, out, errs := replay()
	require.Zero(t, status, errs)
	require.Contains(t, out, "weights: identical\n")
	require.NoError(t, os.Remove(held))
	status, _, errs = replay()
	require.Zero(t, status, errs)
	require.NoError(t, os.WriteFile(train, append(text, `{"question": "2+1", "answer": "3", "steps": ["3"]}`+"\n"...), 0o600))
	status, _, errs = replay()
	require.Equal(t, 2, status)
	require.Contains(t, errs, train+" is not the file that the run in "+dir+" began with; give it back its content")
}
