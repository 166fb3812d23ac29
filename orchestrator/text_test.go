package orchestrator

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/trajectory"
)

// tinyModel copies examples/tiny/model and changes keys of its files.
func tinyModel(t *testing.T, changes map[string]map[string]any) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/tiny/model")))
	for name, keys := range changes {
		path := filepath.Join(dir, name)
		object := map[string]any{}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &object))
		for key, value := range keys {
			object[key] = value
		}
		data, err = json.Marshal(object)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	return dir
}

// opened is the session of examples/tiny.yaml with a model and settings.
func opened(t *testing.T, model string, sets ...string) *session.Session {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	j, err := job.Load("../examples/tiny.yaml", append(sets, "model.path="+model)...)
	require.NoError(t, err)
	s := session.New(j)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Equip(t.Context(), prebuilt(t)))
	require.NoError(t, s.Open(t.Context(), ""))
	return s
}

// Every id of config.json's and generation_config.json's eos_token_id, a number or a list, ends a completion of a rollout.
func TestRolloutsStopAtTheModelsEOSList(t *testing.T) {
	model := tinyModel(t, map[string]map[string]any{"config.json": {"eos_token_id": []int{7, 3}}, "generation_config.json": {"eos_token_id": 2}})
	s := opened(t, model)
	require.Subset(t, s.Sampler.Sampling.StopIDs, []int32{7, 3, 2})
	require.Subset(t, s.Sampler.Renderer.StopIDs(), []int32{7, 3, 2})
}

// The job's day reaches the prompts and the saved model, whose folder then brings it along.
func TestTheTemplatesDateIsOneSetting(t *testing.T) {
	const dated = "{{ strftime_now('%Y') }}" + "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
	model := tinyModel(t, map[string]map[string]any{"tokenizer_config.json": {"chat_template": dated}})
	year := func(s *session.Session) string {
		_, text, err := s.Sampler.Renderer.Prompt([]trajectory.Message{trajectory.Text("user", "2+2")}, nil, true)
		require.NoError(t, err)
		return text[:4]
	}
	require.Equal(t, "1970", year(opened(t, model)))
	s := opened(t, model, "model.template_date=2026-02-28")
	require.Equal(t, "2026", year(s))
	dir := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, s.Policy.SaveHF(dir, modelfile.F32))
	require.Equal(t, "2026", year(opened(t, dir)), "of a model that was trained so")
	require.Equal(t, "2031", year(opened(t, dir, "model.template_date=2031-01-01")))

	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, opened(t, "tiny/model").Policy.SaveHF(plain, modelfile.F32))
	data, err := os.ReadFile(filepath.Join(plain, "tokenizer_config.json"))
	require.NoError(t, err)
	require.NotContains(t, string(data), "template_date", "its template tells no day")

	_, err = job.Load("../examples/tiny.yaml", "model.template_date=28.2.2026")
	require.ErrorContains(t, err, `model.template_date: "28.2.2026" is not a day; write YYYY-MM-DD, such as 2026-01-31`)
}

func TestWhatSpellsASpecialTokenIsASetting(t *testing.T) {
	ends := func(s *session.Session, role string) int {
		ids, _, err := s.Sampler.Renderer.Prompt([]trajectory.Message{trajectory.Text("user", "2+2"), trajectory.Text(role, "2<|end|>")}, nil, true)
		require.NoError(t, err)
		n := 0
		for _, id := range ids {
			if id == 7 {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, ends(opened(t, "tiny/model"), "user"))
	require.Equal(t, 2, ends(opened(t, "tiny/model"), "assistant"))
	require.Equal(t, 3, ends(opened(t, "tiny/model", "agent.special_tokens=markup"), "user"))
}

// A whole step with rollout.cut: filter: what the model's two tokens left unfinished is counted, and leaves the update.
func TestAStepLeavesCutTrajectoriesOut(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	first := func(cut string) map[string]float64 {
		dir := filepath.Join(t.TempDir(), "run")
		j, err := job.Load("../examples/tiny.yaml", "trainer.steps=1", "rollout.cut="+cut, "output="+dir)
		require.NoError(t, err)
		_, err = Train(t.Context(), j, prebuilt(t), Options{Out: io.Discard})
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		require.NoError(t, err)
		line := map[string]float64{}
		require.NoError(t, json.Unmarshal([]byte(strings.SplitN(string(data), "\n", 2)[0]), &line))
		return line
	}
	score, filter, parse := first(rollout.CutScore), first(rollout.CutFilter), first(rollout.CutParse)
	require.Positive(t, score["turns/cut"])
	require.Equal(t, score["turns/cut"], score["stop/max_tokens"])
	require.Equal(t, score["turns/cut"], filter["turns/cut"])
	require.Equal(t, filter["turns/cut"], filter["trajectories/filtered"])
	require.Equal(t, score["tokens/sampled"], filter["tokens/sampled"])
	require.Less(t, filter["tokens/unpacked"], score["tokens/unpacked"])
	require.Zero(t, parse["stop/max_tokens"])
}

// A run's copy of the job that lacks a key or a password is not sampled with: a tool that is refused would look like a policy that fails.
func TestACopyWithoutItsSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"tools: [{http: {url: \"https://me:(secret)@host/\"}}]":             "tools",
		"engine: {kind: vllm, api_key: (secret)}\ntools: [calculator]":      "engine",
		"report: [{mlflow: \"http://me:(secret)@host\"}]":                   "",
		"engine: {kind: vllm, api_key: \"${KEY}\"}\nname: the secret of it": "",
	} {
		require.Equal(t, want, hiddenIn([]byte(text)), text)
	}
}
