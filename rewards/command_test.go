package rewards

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func commandReward(t *testing.T, folder string, params map[string]any) (Reward, error) {
	t.Helper()
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(folder, path) }})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return newCommand(&Builder{Context: t.Context(), Resources: r}, params)
}

func sh(script string) []any { return []any{"sh", "-c", script} }

// A program scores by its exit status or by the last number that it prints, and what it reads is the trajectory.
func TestCommandScores(t *testing.T) {
	folder := t.TempDir()
	in := Input{
		Task: trajectory.Task{ID: "t", Fields: map[string]any{"answer": "4"}, Prompt: []trajectory.Message{trajectory.Text("user", "2 + 2?")}},
		Trajectory: &trajectory.Trajectory{ID: "train-0-0-0", Turns: []trajectory.Turn{{
			Completion: "call", Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "calculator", Arguments: json.RawMessage(`{"e": "2+2"`)}, Observation: "4"}},
		}, {Completion: "4", AnsweredThisTurn: true, FinalAnswer: "4"}}},
	}
	for script, want := range map[string]float64{"exit 0": 1, "exit 3": 0, "echo tests failed; exit 1": 0} {
		r, err := commandReward(t, folder, map[string]any{"command": sh(script)})
		require.NoError(t, err)
		s, err := r.Score(t.Context(), in)
		require.NoError(t, err, script)
		require.Equal(t, want, s.Value, script)
	}
	r, err := commandReward(t, folder, map[string]any{"command": sh("cat >read.json; pwd >where; echo half; echo 0.5; echo"), "score": "output"})
	require.NoError(t, err)
	s, err := r.Score(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 0.5, s.Value)
	warned, err := commandReward(t, folder, map[string]any{"command": sh("echo 0.25; echo 'warning: at exit' >&2"), "score": "output"})
	require.NoError(t, err)
	s, err = warned.Score(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 0.25, s.Value, "what is written on standard error is no score")
	read, err := os.ReadFile(filepath.Join(folder, "read.json"))
	require.NoError(t, err, "it runs in the job's folder")
	require.JSONEq(t, `{"id": "train-0-0-0", "answer": "4", "posted": null, "task": {"id": "t", "prompt": [{"role": "user", "content": "2 + 2?"}], "fields": {"answer": "4"}},
		"turns": [{"completion": "call", "calls": [{"name": "calculator", "arguments": "{\"e\": \"2+2\"", "observation": "4", "failed": false}]}, {"completion": "4", "calls": []}]}`, string(read))
}

// The program runs in the job's folder, wherever it and its script lie.
func TestCommandOfAnotherFolder(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"grade": "#!/bin/sh\ntest -f here\n", "grade.sh": "test -f here\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "here"), nil, 0o644))
	r := resources.New(resources.Options{Resolve: func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			return filepath.Join(home, rest)
		}
		return filepath.Join(folder, path)
	}})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	for _, args := range [][]any{{"~/grade"}, {"sh", "~/grade.sh"}} {
		reward, err := newCommand(&Builder{Context: t.Context(), Resources: r}, map[string]any{"command": args})
		require.NoError(t, err)
		score, err := reward.Score(t.Context(), Input{Trajectory: &trajectory.Trajectory{ID: "a"}})
		require.NoError(t, err)
		require.Equal(t, 1.0, score.Value)
	}
}

// An argument that is code or the name of a module is no script that is missing, whatever it ends with.
func TestCommandOfCode(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "grade.sh"), []byte("exit 0"), 0o700))
	for _, args := range [][]any{{"bash", "-c", "cd . && sh grade.sh"}, {"sh", "-ec", "./grade.sh"}, {"env", "-S", "sh grade.sh"}, {"sh", "-c", "./none.sh || exit 0"}} {
		r, err := commandReward(t, folder, map[string]any{"command": args})
		require.NoError(t, err)
		s, err := r.Score(t.Context(), Input{Trajectory: &trajectory.Trajectory{}})
		require.NoError(t, err)
		require.Equal(t, 1.0, s.Value, args)
	}
	_, err := commandReward(t, folder, map[string]any{"command": []any{"sh", "-e", "none.sh"}})
	require.ErrorContains(t, err, "the script is not found")
}

// What is no score is an error that names the program, and nothing that it started is left.
func TestCommandFails(t *testing.T) {
	folder := t.TempDir()
	in := Input{Trajectory: &trajectory.Trajectory{}}
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{map[string]any{"command": sh("echo right"), "score": "output"}, `the last line that sh printed is "right"; with score: output it must be a number`},
		{map[string]any{"command": sh("echo 1; echo broken; exit 2"), "score": "output"}, "sh ended with status 2: broken"},
		{map[string]any{"command": sh("true"), "score": "output"}, `the last line that sh printed is ""`},
		{map[string]any{"command": sh("echo 1; echo why >&2; exit 2"), "score": "output"}, "sh ended with status 2: why"},
		{map[string]any{"command": sh("no-such-grader-7")}, "sh ended with status 127: "},
		{map[string]any{"command": sh("sh -c 'kill -SEGV $$'; exit $?")}, "sh ended with status 139: "},
		{map[string]any{"command": sh("kill -9 $$")}, "sh: signal: killed"},
		{map[string]any{"command": sh("(sleep 4; touch late) & setsid sh -c 'sleep 4; touch later' & touch begun; sleep 100"), "timeout": 2}, "sh is not done after 2s (timeout)"},
	} {
		r, err := commandReward(t, folder, c.params)
		require.NoError(t, err)
		_, err = r.Score(t.Context(), in)
		require.ErrorContains(t, err, c.want)
	}
	require.FileExists(t, filepath.Join(folder, "begun"))
	time.Sleep(4 * time.Second)
	require.NoFileExists(t, filepath.Join(folder, "late"))
	require.NoFileExists(t, filepath.Join(folder, "later"))
	r, err := commandReward(t, folder, map[string]any{"command": sh("sleep 100")})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = r.Score(ctx, in)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the run's own deadline")
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{map[string]any{}, "the parameter command is missing"},
		{map[string]any{"command": sh("true"), "score": "exitt"}, `the parameter score is "exitt"; allowed are exit`},
		{map[string]any{"command": sh("true"), "timeout": 0}, "the parameter timeout is 0"},
		{map[string]any{"command": []any{"no-such-program-7"}}, "the program no-such-program-7 is not found"},
		{map[string]any{"command": []any{"./grade.sh"}}, "the program ./grade.sh is not found"},
		{map[string]any{"command": []any{"python3", "-u", "grade.py", "other.py"}}, "the script is not found: stat"},
		{map[string]any{"command": []any{"python3", "grade.py", "-c", "x"}}, "the script is not found: stat"},
		{map[string]any{"command": sh("true"), "timeout": 1e-12}, "the parameter timeout is 1e-12; allowed is a millisecond"},
		{map[string]any{"command": sh("true"), "exit": 1}, "exit"},
	} {
		_, err := commandReward(t, folder, c.params)
		require.ErrorContains(t, err, c.want)
	}
}

// The program has the time of its own parameter: that of the reward stands still while it waits for a place of the gradings and while it runs.
func TestCommandWaitsOffTheClock(t *testing.T) {
	r := resources.New(resources.Options{Resolve: func(path string) string { return path }, Gradings: 1})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	sleeps, err := newCommand(&Builder{Context: t.Context(), Resources: r}, map[string]any{"command": sh("sleep 0.5")})
	require.NoError(t, err)
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() {
			_, err := Run(t.Context(), 300*time.Millisecond, sleeps, Input{Trajectory: &trajectory.Trajectory{}})
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

// What the program reads lies in no file that a process which is killed would leave.
func TestCommandLeavesNoFile(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r, err := commandReward(t, temp, map[string]any{"command": sh("ls | wc -l"), "score": "output"})
	require.NoError(t, err)
	s, err := r.Score(t.Context(), Input{Trajectory: &trajectory.Trajectory{}})
	require.NoError(t, err)
	require.Zero(t, s.Value)
}
