package e2e_test

import (
	"bufio"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// A run hears what it is asked for while it opens its trainer.
func TestARunIsControlledWhileItOpens(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	run := process("train", tinyJob, "--output", dir, "--set", "trainer.steps=200")
	var said strings.Builder
	run.Stdout, run.Stderr = &said, &said
	require.NoError(t, run.Start())
	defer func() { _ = run.Process.Kill() }()
	for began := time.Now(); runfolder.Ask(dir, runfolder.Request{Action: runfolder.Stop, By: "the test"}) != nil; {
		require.Less(t, time.Since(began), time.Minute)
	}
	_ = run.Wait()
	require.Equal(t, 3, run.ProcessState.ExitCode(), said.String())
	require.Contains(t, said.String(), ", as the test asked\n")
}

// A run that is asked to pauses before its next step, saves itself while it pauses, goes on, and stops so that it can be resumed: to the weights of a
// run that nobody asked for anything. What it was asked for then does not hold for the process that goes on.
func TestARunIsControlled(t *testing.T) {
	needTorch(t)
	args := func(dir string) []string {
		return []string{"train", tinyJob, "--output", dir, "--set", "trainer.steps=30", "--set", "checkpoint.every=0"}
	}
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := process(args(whole)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, weights := curve(t, whole)

	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "control", dir, "pause")
	require.Equal(t, 2, status)
	require.Contains(t, errs, dir)
	run := process(args(dir)...)
	pipe, err := run.StdoutPipe()
	require.NoError(t, err)
	var said strings.Builder
	run.Stderr = &said
	require.NoError(t, run.Start())
	defer func() { _ = run.Process.Kill() }()
	lines := bufio.NewScanner(pipe)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(strings.Join(strings.Fields(lines.Text()), " "), text) {
				return
			}
		}
		t.Fatalf("the run ended without %q\n%s", text, said.String())
	}
	ask := func(action string) {
		t.Helper()
		status, out, errs := command("", "control", dir, action)
		require.Zero(t, status, errs)
		require.Contains(t, out, "asked     "+dir)
	}
	until("step 3/30 ")
	ask("pause")
	until("as agentfly control asked; agentfly control " + dir + " resume goes on")
	before, _ := statusOf(t, dir)
	require.Eventually(t, func() bool { _, now := statusOf(t, dir); return strings.Contains(now, "pausing before step") }, 10*time.Second, 100*time.Millisecond)
	time.Sleep(500 * time.Millisecond)
	after, _ := statusOf(t, dir)
	require.Equal(t, before, after, "no step is taken while it pauses")
	require.Less(t, after, 30)
	ask("checkpoint")
	until("saved after step")
	require.FileExists(t, filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
	ask("resume")
	until("going on with step")
	until("step")
	ask("stop")
	until("stopping before step")
	until("interrupted after step")
	for lines.Scan() {
	}
	require.Error(t, run.Wait())
	require.Equal(t, 3, run.ProcessState.ExitCode(), said.String())
	status, _, errs = command("", "control", dir, "resume")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "no process trains this run")

	out, err = process(append(args(dir), "--resume")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "pausing")
	_, resumed := curve(t, dir)
	require.Equal(t, weights, resumed)
}

// statusOf is how many steps of a run are done, and what it does.
func statusOf(t *testing.T, dir string) (steps int, now string) {
	t.Helper()
	status, out, errs := command("", "status", "--json", dir)
	require.Zero(t, status, errs)
	var s struct {
		Steps int    `json:"steps"`
		Doing string `json:"doing"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &s), out)
	return s.Steps, s.Doing
}
