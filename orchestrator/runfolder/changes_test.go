package runfolder

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
)

func TestChangedSettings(t *testing.T) {
	changes, err := changedSettings(
		[]byte("name: x\ntrainer: {steps: 6, learning_rate: 0.001, clip_grad: null}\nrewards: [{name: a, weight: 1}, {name: b, weight: 2}]\nagent: {system: ''}\n"),
		[]byte("name: x\ntrainer: {steps: 8, learning_rate: 1.0e-3, clip_grad: 1}\nrewards: [{name: a, weight: 1.5}]\nagent: {system: Be brief.}\n"))
	require.NoError(t, err)
	require.Equal(t, []string{
		`agent.system: "" → "Be brief."`, `rewards.0.weight: 1 → 1.5`, `rewards.1.name: "b" → not set`, `rewards.1.weight: 2 → not set`,
		`trainer.clip_grad: not set → 1`, `trainer.steps: 6 → 8`,
	}, changes)
	_, err = changedSettings([]byte("a: [\n"), nil)
	require.Error(t, err)
}

// A run folder holds every job that its run had: the newest as job.yaml. A job that did not change leaves nothing.
func TestTheRunFolderKeepsEveryJob(t *testing.T) {
	dir := t.TempDir()
	load := func(sets ...string) *job.Job {
		j, err := job.Load("../../examples/tiny.yaml", sets...)
		require.NoError(t, err)
		return j
	}
	write := func(j *job.Job) []string {
		var notes []string
		require.NoError(t, New(dir, true).writeJob(j, func(note string) { notes = append(notes, note) }))
		return notes
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	first, second, third := load(), load("trainer.steps=80", "trainer.learning_rate=5e-4"), load("trainer.steps=80")
	require.Empty(t, write(first))
	require.Empty(t, write(first))
	require.Equal(t, []string{
		"the run goes on with another setting: trainer.learning_rate: 0.001 → 0.0005", "the run goes on with another setting: trainer.steps: 60 → 80",
		"the job of before stays as " + filepath.Join(dir, "job.1.yaml"),
	}, write(second))
	require.Empty(t, write(second))
	require.Len(t, write(third), 2)
	require.Equal(t, string(first.Source()), read("job.1.yaml"))
	require.Equal(t, string(second.Source()), read("job.2.yaml"))
	require.Equal(t, string(third.Source()), read(JobFile))
	changes, err := Changes(dir, first)
	require.NoError(t, err)
	require.Equal(t, []string{"trainer.learning_rate: 0.001 → 0.0005", "trainer.steps: 60 → 80", "trainer.learning_rate: 0.0005 → 0.001"}, changes)
	changes, err = Changes(t.TempDir(), first)
	require.NoError(t, err)
	require.Empty(t, changes)

	// The same settings written otherwise: no copy that no note names.
	other := append([]byte("# by hand\n"), third.Source()...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, JobFile), other, 0o600))
	require.Empty(t, write(third))
	require.NoFileExists(t, filepath.Join(dir, "job.3.yaml"))
	require.Equal(t, string(third.Source()), read(JobFile))

	// One that somebody damaged stays beside the new one, which later jobs are compared with.
	damaged := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(damaged, JobFile), []byte("name: [\n"), 0o600))
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	require.NoError(t, New(damaged, true).writeJob(third, note))
	require.Len(t, notes, 1)
	require.Regexp(t, `^job\.yaml of the run folder cannot be read \(.*yaml: .*\), so what changed since is not known: it stays as .*job\.1\.yaml$`, notes[0])
	require.NoError(t, New(damaged, true).writeJob(third, note))
	require.Len(t, notes, 1)
	kept, err := os.ReadFile(filepath.Join(damaged, "job.1.yaml"))
	require.NoError(t, err)
	require.Equal(t, "name: [\n", string(kept))
	require.NoFileExists(t, filepath.Join(damaged, "job.2.yaml"))

	// The job of an older program, which had fewer settings: what is new with the defaults of today did not change.
	require.NoError(t, os.WriteFile(filepath.Join(dir, JobFile), []byte(`version: 1
name: tiny
seed: 1
deterministic: true
device: cpu
model: {path: tiny/model}
agent: {kind: tool_call, format: tags, max_turns: 2, tools: [calculator], instructions: false}
rewards: [{name: final_answer, weight: 0.8, require_steps: true}, {name: right_call, weight: 0.2}]
data: {train: tiny/tasks.jsonl, columns: {prompt: question}}
rollout: {groups: 4, group_size: 32, max_new_tokens: 2, max_tokens: 64}
algorithm: {advantage: grpo, loss: ppo_clip, entropy: 0.1}
trainer: {steps: 50, learning_rate: 1.0e-3, clip_grad: 1.0}
output: runs/tiny
`), 0o600))
	require.Equal(t, []string{"the run goes on with another setting: trainer.steps: 50 → 60", "the job of before stays as " + filepath.Join(dir, "job.3.yaml")}, write(first))
}

// A run that is at its last step keeps its job: other settings would have trained nothing. With more steps it takes them.
func TestARunWithNothingLeftKeepsItsJob(t *testing.T) {
	dir := t.TempDir()
	load := func(sets ...string) *job.Job {
		j, err := job.Load("../../examples/tiny.yaml", append(sets, "trainer.learning_rate=5e-4")...)
		require.NoError(t, err)
		return j
	}
	first := load("trainer.steps=4")
	f := New(dir, false)
	require.NoError(t, f.Open(first, func(string) {}))
	require.NoError(t, f.Close())
	goOn := func(j *job.Job, done int) (notes []string, job string) {
		f := New(dir, true)
		require.NoError(t, f.Open(j, func(string) {}))
		require.NoError(t, f.GoOn(j, done, func(note string) { notes = append(notes, note) }))
		require.NoError(t, f.Close())
		text, err := os.ReadFile(filepath.Join(dir, JobFile))
		require.NoError(t, err)
		return notes, string(text)
	}
	const nothing = "nothing is left to train: 4 of 4 steps are done; raise trainer.steps to go on"
	notes, text := goOn(load("trainer.steps=4", "seed=2"), 4)
	require.Equal(t, []string{nothing, "the run keeps its job.yaml without the settings that changed: seed: 1 → 2"}, notes)
	require.Equal(t, string(first.Source()), text)
	require.NoFileExists(t, filepath.Join(dir, "job.1.yaml"))
	notes, _ = goOn(first, 4)
	require.Equal(t, []string{nothing}, notes)

	second := load("trainer.steps=4", "seed=3") // its last steps were recorded, and are trained again
	notes, text = goOn(second, 3)
	require.Equal(t, "the run goes on with another setting: seed: 1 → 3", notes[0])
	require.Equal(t, string(second.Source()), text)
	third := load("trainer.steps=5", "seed=3")
	notes, text = goOn(third, 4)
	require.Equal(t, "the run goes on with another setting: trainer.steps: 4 → 5", notes[0])
	require.Equal(t, string(third.Source()), text)
	fourth := load("trainer.steps=4", "seed=3") // fewer than it was to have: it ends here
	_, text = goOn(fourth, 4)
	require.Equal(t, string(fourth.Source()), text)
}

// The copy of a program of before may have keys of engine that the kind does not read. They did nothing, so leaving them out changes nothing.
func TestKeysThatTheEngineDidNotReadAreNoSettings(t *testing.T) {
	dir := t.TempDir()
	j, err := job.Load("../../examples/tiny.yaml")
	require.NoError(t, err)
	older := bytes.Replace(j.Source(), []byte("weights: auto"), []byte("weights: disk"), 1)
	require.NotEqual(t, j.Source(), older)
	require.NoError(t, os.WriteFile(filepath.Join(dir, JobFile), older, 0o600))
	require.NoError(t, New(dir, true).writeJob(j, func(note string) { t.Error(note) }))
	text, err := os.ReadFile(filepath.Join(dir, JobFile))
	require.NoError(t, err)
	require.Equal(t, string(j.Source()), string(text))
}

// A run that goes on finds no other settings where the folder's copy hides a key or a password, and hides those that an older program's showed.
func TestAJobWithSecretsGoesOn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, JobFile)
	j, err := job.Parse("/jobs/job.yaml", []byte(`version: 1
name: x
model: {path: m}
agent: {kind: external, online: true, key: hunter2}
rewards: [posted]
data: {train: t.jsonl}
rollout: {timeout: 9}
report: [{mlflow: "http://me:hunter2@host"}]
`), job.Options{})
	require.NoError(t, err)
	shown := bytes.ReplaceAll(bytes.Replace(j.Source(), []byte("key: (secret)"), []byte("key: hunter2"), 1), []byte("me:(secret)@"), []byte("me:hunter2@"))
	require.Equal(t, 2, bytes.Count(shown, []byte("hunter2")))
	require.NoError(t, os.WriteFile(path, shown, 0o600))
	for range 2 {
		require.NoError(t, New(dir, true).writeJob(j, func(note string) { require.Fail(t, note) }))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(j.Source()), string(text))
		require.NotContains(t, string(text), "hunter2")
	}
}
