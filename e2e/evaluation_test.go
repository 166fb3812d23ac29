package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoSources writes tasks of the tiny model into two training sources and two held-out ones.
func twoSources(t *testing.T) (sets []string) {
	dir := t.TempDir()
	for name, lines := range map[string][]string{
		"ones.jsonl":      {`{"id":"0","question":"1+1","answer":"2","steps":["2"]}`, `{"id":"1","question":"1+2","answer":"3","steps":["3"]}`},
		"twos.jsonl":      {`{"id":"0","question":"2+2","answer":"4","steps":["4"]}`, `{"id":"1","question":"2+3","answer":"5","steps":["5"]}`},
		"held_ones.jsonl": {`{"id":"0","question":[{"role":"user","content":"1+1"},{"role":"user","content":"1+1"}],"answer":"2","steps":["2"]}`},
		"held_twos.jsonl": {`{"id":"0","question":[{"role":"user","content":"2+2"},{"role":"user","content":"2+2"}],"answer":"4","steps":["4"]}`},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o600))
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"--set", "data.train=[{path: " + at("ones.jsonl") + ", weight: 3}, {path: " + at("twos.jsonl") + ", name: twos}]",
		"--set", "data.eval=[" + at("held_ones.jsonl") + ", " + at("held_twos.jsonl") + "]",
		"--set", "data.curriculum={by: success_rate}",
		"--set", "eval={every: 10, samples: 32, temperature: 1, k: [1, 4], stop_after: 2}", "--set", "checkpoint={best: true, keep: 1, every: 4}",
	}
}

type evaluated struct {
	Name    string             `json:"name"`
	Step    int                `json:"step"`
	Samples int                `json:"samples"`
	Reward  float64            `json:"reward"`
	Pass    map[string]float64 `json:"pass"`
	Sources map[string]struct {
		Tasks int                `json:"tasks"`
		Pass  map[string]float64 `json:"pass"`
	} `json:"sources"`
}

func evaluationsOf(t *testing.T, dir string) (out []evaluated) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m struct {
			Eval *evaluated `json:"eval"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m.Eval != nil {
			out = append(out, *m.Eval)
		}
	}
	return out
}

// A run with two sources, a curriculum and evaluations stops early, keeps its best state, and resumes bit for bit.
func TestTwoSourcesWithACurriculumAndEarlyStop(t *testing.T) {
	needTorch(t)
	sets := append(twoSources(t), "--set", "trainer.steps=200", "--set", "trainer.schedule=constant") // tiny has another one
	whole := filepath.Join(t.TempDir(), "whole")
	status, out, errs := command("", append([]string{"train", "examples/tiny.yaml", "--output", whole}, sets...)...)
	require.Zero(t, status, "%s%s", out, errs)
	t.Log(out)
	require.Contains(t, out, "stopped early  eval.stop_after: 2 evaluations in a row were no better than that after step ")
	require.Contains(t, out, "held_ones      1")
	data, err := os.ReadFile(filepath.Join(whole, "summary.json"))
	require.NoError(t, err)
	var s struct {
		Steps int `json:"steps"`
		Best  struct {
			Step  int
			Score float64
		} `json:"best"`
		Stopped string `json:"stopped"`
	}
	require.NoError(t, json.Unmarshal(data, &s))
	require.NotEmpty(t, s.Stopped)
	evaluations := evaluationsOf(t, whole)
	require.Less(t, s.Steps, 200)
	require.Zero(t, s.Steps%10)
	best := 0
	for i, e := range evaluations {
		require.Equal(t, 32, e.Samples)
		require.Len(t, e.Sources, 2)
		require.Equal(t, 1, e.Sources["held_twos"].Tasks)
		require.InDelta(t, (e.Sources["held_ones"].Pass["4"]+e.Sources["held_twos"].Pass["4"])/2, e.Pass["4"], 1e-12)
		require.GreaterOrEqual(t, e.Pass["4"], e.Pass["1"])
		if e.Reward > evaluations[best].Reward {
			best = i
		}
	}
	require.Equal(t, evaluations[best].Step, s.Best.Step)
	require.Equal(t, evaluations[best].Reward, s.Best.Score)
	kept, err := filepath.EvalSymlinks(filepath.Join(whole, "checkpoints", "best"))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(kept, "run.json"))
	status, out, errs = command("", append([]string{"eval", "examples/tiny.yaml", "--model", kept}, sets...)...)
	require.Zero(t, status, errs)
	require.Contains(t, out, `"sources":{"held_ones":`)
	require.Regexp(t, `source +tasks +reward +right +pass@1 +pass@4 +failed\nheld_ones +1 `, errs)

	rewards, weights := curve(t, whole)
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(context.Background())
	var calls atomic.Int64
	status, out, errs = tiny(ctx, dir, func() (float64, error) {
		if calls.Add(1) == 9*128 { // within a step, between two checkpoints
			cancel()
		}
		return 0, nil
	}, sets...)
	require.Equal(t, 3, status, "%s%s", out, errs)
	status, out, errs = tiny(context.Background(), dir, harmless, append(sets, "--resume")...)
	require.Zero(t, status, "%s%s", out, errs)
	again, same := curve(t, dir)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same), "the final weights differ")
	require.Equal(t, len(evaluations), len(evaluationsOf(t, dir)))
}

func TestTheDealIsPartOfTheCheckpoint(t *testing.T) {
	needTorch(t)
	for _, by := range []string{"{by: success_rate}", "{by: mask_count}", "{by: difficulty, field: level}"} {
		t.Run(by, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "levels.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(`{"id":"0","question":"1+1","answer":"2","steps":["2"],"level":2}
{"id":"1","question":"1+2","answer":"3","steps":["3"],"level":1}
{"id":"2","question":"2+2","answer":"4","steps":["4"],"level":4}
{"id":"3","question":"2+3","answer":"5","steps":["5"],"level":3}
{"id":"4","question":"3","answer":"3","steps":["3"],"level":0}
`), 0o600))
			sets := []string{"--set", "data.train=" + path, "--set", "data.curriculum=" + by}
			whole, dir := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
			status, out, errs := tiny(context.Background(), whole, harmless, sets...)
			require.Zero(t, status, "%s%s", out, errs)
			rewards, weights := curve(t, whole)
			ctx, cancel := context.WithCancel(context.Background())
			var calls atomic.Int64
			status, out, errs = tiny(ctx, dir, func() (float64, error) {
				if calls.Add(1) == 3*128+50 {
					cancel()
				}
				return 0, nil
			}, sets...)
			require.Equal(t, 3, status, "%s%s", out, errs)
			status, out, errs = tiny(context.Background(), dir, harmless, append(sets, "--resume")...)
			require.Zero(t, status, "%s%s", out, errs)
			requireSameRun(t, dir, rewards, weights)
		})
	}
}
