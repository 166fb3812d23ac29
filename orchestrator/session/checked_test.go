package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// What the tokenizer does not know of a conversation is told, with what the model reads. The end of a text is known, whatever else it is named.
func TestWhatIsUnknownInConversations(t *testing.T) {
	text, err := policy.LoadText("../../examples/tiny/model")
	require.NoError(t, err)
	end, ok := text.Tokenizer.ID("<|end|>")
	require.True(t, ok)
	p := &policy.Policy{Text: text, Config: &modelfile.Config{BOS: -1, EOS: []int{int(end)}}}
	learned := func(text string) []*trajectory.Trajectory {
		return []*trajectory.Trajectory{{ID: "data.jsonl:1", Samples: []*trajectory.Sample{{TokenIDs: p.Tokenizer.Encode(text)}}}}
	}
	require.Empty(t, UnknownLearned(p, learned("<|user|>1+1<|end|>")))
	require.Equal(t, `the tokenizer has no tokens for parts of data.jsonl:1: the model reads "<|user|><unk><unk><unk><|end|>"; use a model whose tokenizer knows them, or rewrite the conversations`,
		UnknownLearned(p, learned("<|user|>1é1<|end|>")))
	p.SpecialTokens = map[string]string{"unk_token": "<|end|>"}
	require.Empty(t, UnknownLearned(p, learned("<|user|>1+1<|end|>")))
}

// vLLM's command is looked for where it is started from: a path is the job's, relative to its folder or to the home folder.
func TestTheServersCommandIsCheckedWhereItIsStartedFrom(t *testing.T) {
	folder, home := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(folder, "venv", "vllm"), filepath.Join(home, "vllm")} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	}
	t.Setenv("HOME", home)
	t.Chdir(t.TempDir())
	for command, want := range map[string]string{
		"venv/vllm": "", "./venv/vllm": "", "~/vllm": "", filepath.Join(home, "vllm"): "", "sh": "",
		"other/vllm": `the program "other/vllm" is not there, or may not be run; it is looked for at ` + filepath.Join(folder, "other", "vllm"),
		"vllm-none":  `the program "vllm-none" is not on PATH`,
	} {
		text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nengine: {kind: vllm, serve: {command: " + command + "}}\n"
		j, err := job.Parse(filepath.Join(folder, "job.yaml"), []byte(text), job.Options{})
		require.NoError(t, err)
		if err = checkServe(j); want == "" {
			require.NoError(t, err, command)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// A program beside the job file is found there by ./NAME, from the job's own folder too: it is no name on PATH.
func TestTheAgentsCommandBesideTheJob(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("agent.sh", []byte("#!/bin/sh\n"), 0o755))
	for command, found := range map[string]bool{"./agent.sh": true, "./none.sh": false, "agent.sh": false} {
		text := "version: 1\nname: x\nmodel: {path: m}\nagent: {kind: external, command: [" + command + "]}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"
		j, err := job.Parse("job.yaml", []byte(text), job.Options{})
		require.NoError(t, err)
		if err = checkAgent(t.Context(), j); found {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, `the program "`+command+`" is not there, or may not be run`)
	}
}

// An argument of an agent's command that is code or the name of a module is no file that is missing, whatever it ends with.
func TestAnAgentsCommandOfCode(t *testing.T) {
	for command, want := range map[string]string{
		`sh, -c, cd . && python3 agent.py`:  "",
		`sh, -ec, ./agent.sh`:               "",
		`env, -S, python3 agent.py`:         "",
		`sh, agent.sh, -c, x`:               "the file agent.sh is not there",
		`sh, -c, python3 agent.py, none.py`: "the file none.py is not there",
	} {
		text := "version: 1\nname: x\nmodel: {path: m}\nagent: {kind: external, command: [" + command + "]}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"
		j, err := job.Parse(filepath.Join(t.TempDir(), "job.yaml"), []byte(text), job.Options{})
		require.NoError(t, err)
		if err = checkAgent(t.Context(), j); want == "" {
			require.NoError(t, err, command)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// A limit that nobody chose is no contradiction to a shorter context, in the copy of the job neither, which names every setting.
func TestTheCopyOfAJobFitsTheModelThatItFits(t *testing.T) {
	short := &policy.Policy{Config: &modelfile.Config{MaxPositionEmbeddings: 512}}
	for limit, want := range map[string]string{"": "", "max_tokens: 2048": "", "max_tokens: 400": "", "max_tokens: 2047": "2047 tokens are more than the model's context, 512"} {
		text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nengine: {kind: local, cache_tokens: 4096}\nrollout: {" + limit + "}\n"
		j, err := job.Parse("/jobs/job.yaml", []byte(text), job.Options{})
		require.NoError(t, err)
		again, err := job.Parse("/jobs/job.yaml", j.Source(), job.Options{})
		require.NoError(t, err)
		for name, j := range map[string]*job.Job{"job": j, "copy": again} {
			if err := checkRoom(j, short); want == "" {
				require.NoError(t, err, "%s with %q", name, limit)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}
