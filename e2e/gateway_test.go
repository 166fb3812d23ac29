package e2e_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// guestJob is a job whose agent is a program of its own, in Python without packages, on a model from scratch.
const guestJob = `version: 1
name: guest
seed: 3
deterministic: true
device: cpu
model:
  scratch:
    alphabet: "abcdefgh :"
    chat_template: "{% for m in messages %}{{ m.role[0] + ': ' + m.content + '<eos>' }}{% endfor %}{{ 'a: ' if add_generation_prompt }}"
    max_positions: 512
agent: {kind: external, command: [python3, agent.py], processes: 4}
data: {train: tasks.jsonl}
rollout: {groups: 2, group_size: 4, max_new_tokens: 8, max_tokens: 400}
rewards: [posted]
trainer: {steps: 5, learning_rate: 3.0e-3}
`

// guestAgent talks twice and is paid for every a.
const guestAgent = `
import json, os, urllib.request

task = json.load(open(os.environ["AGENTFLY_TASK"]))["task"]
messages, reward = list(task["prompt"]), 0.0
for turn in range(2):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    reply = json.load(urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)))
    said = reply["choices"][0]["message"]["content"] or ""
    reward += said.count("a") / 8
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "b"}]
print("said", said)
json.dump({"reward": reward, "answer": said}, open(os.environ["AGENTFLY_RESULT"], "w"))
`

// guest writes a job with its agent and tasks into a folder of its own.
func guest(t *testing.T, job, agent string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"job.yaml": job, "agent.py": agent,
		"tasks.jsonl": strings.Repeat(`{"prompt": "ab"}`+"\n"+`{"prompt": "cd"}`+"\n"+`{"prompt": "ef"}`+"\n", 1),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "job.yaml")
}

// A program of its own trains: its calls are the turns of trajectories, one sample each; killed at random moments the run comes to the same end, and its
// replay to the same weights.
func TestAnAgentOfItsOwn(t *testing.T) {
	needTorch(t)
	k := newKilled(t)
	k.job = guest(t, guestJob, guestAgent)
	whole := k.endAlike(kills(t, 3), func(string) {})
	db, err := store.OpenReader(filepath.Join(whole, "store.db"))
	require.NoError(t, err)
	defer db.Close()
	n := 0
	require.NoError(t, db.Each("", func(r store.Record) error {
		tr := r.Trajectory
		require.Empty(t, tr.Err)
		require.Len(t, tr.Samples, 1, tr.ID)
		require.Len(t, tr.Turns, 2)
		require.Equal(t, "chat", tr.Turns[1].Incoming.Dialect)
		require.Equal(t, 0, tr.Turns[1].Incoming.After)
		n++
		return nil
	}))
	require.Equal(t, 5*8, n)
	rewards, _ := curve(t, whole)
	require.Greater(t, rewards[len(rewards)-1], rewards[0], "it learns to say a")
	logs, err := filepath.Glob(filepath.Join(whole, "logs", "agents", "train-*.txt"))
	require.NoError(t, err)
	require.Len(t, logs, 5*8)
	status, out, errs := command("", "replay", whole)
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "weights: identical\n")
}

// An agent that fails is a failed trajectory with its origin and its last words; the others of its group go on.
func TestAgentsThatFail(t *testing.T) {
	needTorch(t)
	for name, c := range map[string]struct{ agent, says string }{
		"raises":     {guestAgent + "\nif hash(os.environ['AGENTFLY_API_KEY']) % 2: raise ValueError('no luck')", "ended with exit status 1; it printed last: ValueError: no luck"},
		"is killed":  {guestAgent + "\nif hash(os.environ['AGENTFLY_API_KEY']) % 2: os.kill(os.getpid(), 9)", "was killed (signal: killed)"},
		"calls none": {"import os\nif hash(os.environ['AGENTFLY_API_KEY']) % 2: raise SystemExit(0)\n" + guestAgent, "never called the gateway"},
		"result":     {guestAgent + "\nif hash(os.environ['AGENTFLY_API_KEY']) % 2: open(os.environ['AGENTFLY_RESULT'], 'w').write('no')", "is not JSON such as"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			status, out, errs := command("", "train", guest(t, guestJob, c.agent), "--output", dir, "--set", "trainer.steps=2", "--set", "rollout.max_failed=1")
			require.Zero(t, status, "%s%s", out, errs)
			db, err := store.OpenReader(filepath.Join(dir, "store.db"))
			require.NoError(t, err)
			defer db.Close()
			failed := 0
			require.NoError(t, db.Each("", func(r store.Record) error {
				if r.Trajectory.Err == "" {
					return nil
				}
				failed++
				require.Equal(t, trajectory.OriginAgent, r.Trajectory.ErrOrigin)
				require.Contains(t, r.Trajectory.Err, c.says)
				return nil
			}))
			require.Positive(t, failed)
			require.Less(t, failed, 16)
		})
	}
}

// Agents that run elsewhere come for tasks, and live on while the run is killed: they go on where they were.
func TestAgentsThatComeForTasks(t *testing.T) {
	needTorch(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	job := guest(t, strings.Replace(guestJob, "command: [python3, agent.py], processes: 4", "online: true, key: '${GUEST_KEY}', listen: '"+address+"'", 1), onlineAgent)
	t.Setenv("GUEST_KEY", "come in")
	agents, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		c := exec.CommandContext(agents, "python3", filepath.Join(filepath.Dir(job), "agent.py"), "http://"+address)
		c.Stderr = os.Stderr
		require.NoError(t, c.Start())
		t.Cleanup(func() { stop(); _ = c.Wait() })
	}
	k := newKilled(t)
	k.job = job
	start := time.Now()
	args := []string{"--set", "rollout.timeout=60"}
	k.finish(filepath.Join(t.TempDir(), "first"), 0, args...)
	k.longest = time.Since(start)
	dir := filepath.Join(t.TempDir(), "run")
	k.finish(dir, kills(t, 3), args...)
	db, err := store.OpenReader(filepath.Join(dir, "store.db"))
	require.NoError(t, err)
	defer db.Close()
	n := 0
	require.NoError(t, db.Each("", func(r store.Record) error {
		tr := r.Trajectory
		require.Empty(t, tr.Err, tr.ID)
		require.Len(t, tr.Turns, 2, tr.ID)
		require.Len(t, tr.Samples, 1, tr.ID)
		n++
		return nil
	}))
	require.Equal(t, 5*8, n)
	status, out, errs := command("", "replay", dir)
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "weights: identical\n")
}

// onlineAgent is guestAgent as a loop that comes for tasks and asks again where nobody answers.
const onlineAgent = `
import json, sys, time, urllib.request, urllib.error

def post(url, key, body):
    while True:
        head = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head), timeout=60) as r:
                text = r.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            if e.code != 503 and e.code != 401:
                raise
            if e.code == 401 and b"is over" in e.read():
                return None
        except (OSError, ValueError):
            pass
        time.sleep(0.05)

while True:
    a = post(sys.argv[1] + "/agentfly/task", "come in", {})
    if a is None:
        continue
    messages, reward = list(a["task"]["prompt"]), 0.0
    for turn in range(2):
        reply = post(a["base_url"] + "/v1/chat/completions", a["api_key"], {"model": "any", "messages": messages})
        if reply is None:
            break
        said = reply["choices"][0]["message"]["content"] or ""
        reward += said.count("a") / 8
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "b"}]
    else:
        post(a["base_url"] + "/agentfly/result", a["api_key"], {"reward": reward, "answer": said})
`
