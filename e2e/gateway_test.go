package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/sandbox"
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
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	k := newKilled(t)
	k.job = guest(t, guestJob, guestAgent)
	whole := k.endAlike(kills(t, 3), func(string) {})
	db := opened(t, whole)
	n := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
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
	require.Empty(t, foldersLeft(t, temporary, "agentfly-agent-*"), "a resumed run removes the folders of killed agents")
}

// Beside updates, and where more is sampled than a step takes, programs of their own train as our agents do: each group once, no token too stale, also when
// the run is killed; the replay comes to the same weights.
func TestAgentsBesideUpdates(t *testing.T) {
	needTorch(t)
	for name, args := range map[string][]string{
		"async":      asyncTiny,
		"oversample": {"--set", "deterministic=false", "--set", "agent.processes=12", "--set", "rollout.oversample=1.5", "--set", "rollout.max_staleness=2", "--set", "algorithm.correction={kind: tis_token}"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKilled(t)
			k.job = guest(t, guestJob, "import os, time\ntime.sleep(int(os.environ['AGENTFLY_API_KEY'][-1], 16) / 20)\n"+guestAgent)
			k.longest = 2 * time.Second
			dir := filepath.Join(t.TempDir(), "run")
			k.finish(dir, 2, args...)
			db := opened(t, dir)
			seen, stale := map[string]bool{}, 0
			log := eachTrained(t, db, func(step int, b store.Batch, g trajectory.Group) {
				require.Len(t, b.Groups, 2)
				require.Len(t, g.Trajectories, 4)
				for _, tr := range g.Trajectories {
					require.Empty(t, tr.Err)
					require.False(t, seen[tr.ID], "%s is trained twice", tr.ID)
					seen[tr.ID] = true
					require.Len(t, tr.Samples, 1)
					for i, on := range tr.Samples[0].ResponseMask {
						if lag := b.Version - tr.Samples[0].PolicyVersion[i]; on {
							require.LessOrEqual(t, lag, int32(2), "step %d, %s", step, tr.ID)
							stale = max(stale, int(lag))
						}
					}
				}
			})
			require.Len(t, log.Batches, killSteps)
			require.Len(t, seen, 2*4*killSteps)
			require.Positive(t, stale, "agents sampled beside updates")
			status, out, errs := command("", "replay", dir)
			require.Zero(t, status, "%s%s", out, errs)
			require.Contains(t, out, "weights: identical\n")
		})
	}
}

// An agent in the sandbox trains as it does outside, the same weights bit for bit, also where the run is killed: its agents are killed with it.
func TestAnAgentInTheSandbox(t *testing.T) {
	needTorch(t)
	if _, err := sandbox.Open(t.Context(), sandbox.Bubblewrap); err != nil {
		t.Skip(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	status, out, errs := command("", "train", guest(t, guestJob, guestAgent), "--output", outside)
	require.Zero(t, status, "%s%s", out, errs)
	job := guest(t, strings.Replace(guestJob, "processes: 4", "processes: 4, sandbox: true", 1), guestAgent)
	require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(job), "agent.py"), 0o644))
	k := newKilled(t)
	k.job = job
	run := k.endAlike(kills(t, 2), func(string) {})
	weights := func(run string) string {
		text, err := os.ReadFile(filepath.Join(run, "checkpoints", "last", "model.safetensors"))
		require.NoError(t, err)
		return string(text)
	}
	require.True(t, weights(outside) == weights(run), "the weights differ")
	logs, err := filepath.Glob(filepath.Join(run, "logs", "agents", "train-*.txt"))
	require.NoError(t, err)
	require.Len(t, logs, 5*8)

	status, _, errs = command("", "train", job, "--output", run+"2", "--set", "agent.show=[no/such]")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "agent.sandbox: stat "+filepath.Join(filepath.Dir(job), "no/such")+": no such file or directory")
	status, _, errs = command("", "train", job, "--output", run+"2", "--set", "agent.command=[no-such-agent, agent.py]")
	require.Equal(t, 2, status)
	require.Contains(t, errs, `agent.command.0: the program "no-such-agent" is not in /usr/local/bin:/usr/bin:/bin, where the sandbox looks`)
	t.Setenv("PATH", filepath.Dir(job))
	status, _, errs = command("", "train", job, "--output", run+"3")
	require.Equal(t, 2, status, errs)
	require.Contains(t, errs, "agent.sandbox: ")
	require.Contains(t, errs, "bubblewrap")
}

// A model that is not there is said in words of the command line, before a key is printed.
func TestAGatewayOfNoModel(t *testing.T) {
	status, out, errs := command("", "gateway", "/no/such/model")
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Equal(t, "agentfly: model.path: /no/such/model does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)\n", errs)
}

// An agent that fails is a failed trajectory with its origin and its last words; the others of its group go on.
func TestAgentsThatFail(t *testing.T) {
	needTorch(t)
	for name, c := range map[string]struct{ agent, says string }{
		"raises":     {guestAgent + "\nif odd: raise ValueError('no luck')", "ended with exit status 1; it printed last: ValueError: no luck"},
		"is killed":  {guestAgent + "\nif odd: os.kill(os.getpid(), 9)", "was killed (signal: killed)"},
		"calls none": {"if odd: raise SystemExit(0)\n" + guestAgent, "never called the gateway"},
		"fifo":       {guestAgent + "\nos.remove(os.environ['AGENTFLY_RESULT'])\nif odd: os.mkfifo(os.environ['AGENTFLY_RESULT'])\nelse: open(os.environ['AGENTFLY_RESULT'], 'w').write('{\"reward\": 1}')", "is not a regular file"},
		"result":     {guestAgent + "\nif odd: open(os.environ['AGENTFLY_RESULT'], 'w').write('no')", "is not JSON such as"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			status, out, errs := command("", "train", guest(t, guestJob, oddAgent+c.agent), "--output", dir, "--set", "trainer.steps=2", "--set", "rollout.max_failed=1")
			require.Zero(t, status, "%s%s", out, errs)
			db := opened(t, dir)
			failed := 0
			require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
				if r.Trajectory.Err == "" {
					return nil
				}
				failed++
				require.Equal(t, trajectory.OriginAgent, r.Trajectory.ErrOrigin)
				require.Contains(t, r.Trajectory.Err, c.says)
				return nil
			}))
			require.Equal(t, 2*8/2, failed)
		})
	}
}

// oddAgent says of each other agent of a group that it is odd, by the last number of its trajectory's id.
const oddAgent = `
import json, os
odd = int(json.load(open(os.environ["AGENTFLY_TASK"]))["id"].split("-")[-1]) % 2
`

// Agents that run elsewhere come for tasks, and live on while the run is killed: they go on where they were.
func TestAgentsThatComeForTasks(t *testing.T) {
	needTorch(t)
	address := "127.0.0.1:" + freePort(t)
	job := guest(t, strings.Replace(guestJob, "command: [python3, agent.py], processes: 4", "online: true, key: '${GUEST_KEY}', listen: '"+address+"'", 1), onlineAgent)
	t.Setenv("GUEST_KEY", "come in")
	agents, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		c := exec.CommandContext(agents, "python3", filepath.Join(filepath.Dir(job), "agent.py"), "http://"+address)
		c.Stderr = os.Stderr
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill() }) // where the test failed
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
	db := opened(t, dir)
	n := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
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

// Outside a run that is resumed no session goes on from before: a key that is none is refused at once.
func TestAKeyOfNoSessionWhereNothingGoesOn(t *testing.T) {
	needTorch(t)
	for _, name := range []string{"eval", "rollout"} {
		address := "127.0.0.1:" + freePort(t)
		job := guest(t, strings.Replace(guestJob, "command: [python3, agent.py], processes: 4", "online: true, key: come in, listen: '"+address+"'", 1), onlineAgent)
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(job), "held.jsonl"), []byte(`{"prompt": "held out", "id": "h"}`+"\n"), 0o600))
		c := process(name, job, "--set", "rollout.timeout=100", "--set", "data.eval=held.jsonl")
		c.Stderr = os.Stderr
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		client := http.Client{Timeout: 10 * time.Second}
		require.Eventually(t, func() bool {
			q, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
			require.NoError(t, err)
			q.Header.Set("Authorization", "Bearer sk-agentfly-of-yesterday")
			r, err := client.Do(q)
			if err != nil {
				return false
			}
			r.Body.Close()
			return r.StatusCode == http.StatusUnauthorized
		}, 28*time.Second, 50*time.Millisecond, name)
	}
}

// A run learns from what agents of users do: they have work of their own, take a session for it, and post what it was worth.
func TestARunLearnsFromUsers(t *testing.T) {
	needTorch(t)
	address := "127.0.0.1:" + freePort(t)
	job := guest(t, strings.NewReplacer(
		"command: [python3, agent.py], processes: 4", "online: true, key: come in, listen: '"+address+"'",
		"group_size: 4", "group_size: 1", "groups: 2", "groups: 8, timeout: 60", "rewards: [posted]", "rewards: [posted]\nalgorithm: {advantage: reinforce_pp, loss: ppo_clip}",
		"steps: 5", "steps: 15",
	).Replace(guestJob), userAgent)
	agents, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 3 {
		c := exec.CommandContext(agents, "python3", filepath.Join(filepath.Dir(job), "agent.py"), "http://"+address, strconv.Itoa(i))
		c.Stderr = os.Stderr
		require.NoError(t, c.Start())
		t.Cleanup(func() { stop(); _ = c.Wait() })
	}
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", job, "--output", dir)
	require.Zero(t, status, "%s%s", out, errs)
	db := opened(t, dir)
	n, asked := 0, map[string]bool{}
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		require.Empty(t, r.Trajectory.Err, r.Trajectory.ID)
		require.Len(t, r.Trajectory.Turns, 1)
		asked[string(r.Trajectory.Turns[0].Incoming.Messages)] = true
		n++
		return nil
	}))
	require.Equal(t, 15*8, n)
	require.Greater(t, len(asked), 8, "the users' own words, not the tasks of the run")
	rewards, _ := curve(t, dir)
	first, end := last(rewards[:3], 3), last(rewards, 3)
	t.Logf("rewards %.3f, from %.3f to %.3f", rewards, first, end)
	require.Greater(t, end, first+0.2, "it learns to say what users pay for")
}

// userAgent asks what its users say, and posts what they found the reply worth.
const userAgent = onlinePost + `
n = 0
while True:
    a = post(sys.argv[1] + "/agentfly/sessions", "come in", {})
    if a is None:
        continue
    n += 1
    said = "abcdefgh"[n % 8] + "abcdefgh"[n // 8 % 8] + "abcdefgh"[int(sys.argv[2])]
    reply = post(a["base_url"] + "/v1/chat/completions", a["api_key"], {"model": "any", "messages": [{"role": "user", "content": said}]})
    worth = (reply["choices"][0]["message"]["content"] or "").count("a") / 8
    post(a["base_url"] + "/agentfly/reward", a["api_key"], {"reward": worth, "id": "user"})
    post(a["base_url"] + "/agentfly/result", a["api_key"], {})
`

// A harness as the command: it starts the agent with the session's key, then a verifier with a key of its own, which writes the reward into a file.
func TestAHarness(t *testing.T) {
	needTorch(t)
	job := guest(t, strings.NewReplacer("[python3, agent.py], processes: 4", "[python3, harness.py, --agent, agent.py], env: {GRADER_KEY: '${GRADER_KEY}'}", "steps: 5", "steps: 1").Replace(guestJob),
		guestAgent+"\nassert os.environ['OPENAI_API_KEY'] == os.environ['AGENTFLY_API_KEY'] and 'GRADER_KEY' not in os.environ\n")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(job), "harness.py"), []byte(harness), 0o600))
	t.Setenv("GRADER_KEY", "sk-grader")
	t.Setenv("OPENAI_API_KEY", "sk-of-the-user")
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", job, "--output", dir)
	require.Zero(t, status, "%s%s", out, errs)
	db := opened(t, dir)
	n := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		tr := r.Trajectory
		require.Empty(t, tr.Err, tr.ID)
		require.Len(t, tr.Turns, 2)
		last := tr.Turns[1].Completion
		require.Equal(t, float64(strings.Count(last, "a")), tr.Reward, last)
		n++
		return nil
	}))
	require.Equal(t, 8, n)
}

// harness runs one trial in a folder of its own: agent, verifier, reward.
const harness = `
import json, os, subprocess, sys, tempfile

trial = tempfile.mkdtemp()
task = json.load(open(os.environ["AGENTFLY_TASK"]))
env = {k: v for k, v in os.environ.items() if k != "GRADER_KEY"}
subprocess.run([sys.executable, sys.argv[2]], env=dict(env, AGENTFLY_RESULT=trial + "/answer.json"), check=True)
verifier = """
import json, os, sys
assert os.environ["OPENAI_API_KEY"] == "sk-grader" and "AGENTFLY_API_KEY" not in os.environ
answer = json.load(open(sys.argv[1] + "/answer.json"))["answer"]
open(sys.argv[1] + "/reward.txt", "w").write(str(answer.count("a")))
"""
subprocess.run([sys.executable, "-c", verifier, trial], env={"PATH": env["PATH"], "OPENAI_API_KEY": os.environ["GRADER_KEY"]}, check=True)
answer = json.load(open(trial + "/answer.json"))["answer"]
json.dump({"answer": answer, "reward": float(open(trial + "/reward.txt").read())}, open(os.environ["AGENTFLY_RESULT"], "w"))
`

// onlineAgent is guestAgent as a loop that comes for tasks and asks again where nobody answers.
const onlineAgent = onlinePost + `
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

// onlinePost is the post of agents that come by themselves.
const onlinePost = `
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
`

// A gateway alone keeps what agents that come by themselves sample, and their sessions go on when it is killed and begins again. No run
// takes its folder.
func TestAGatewayAlone(t *testing.T) {
	needTorch(t)
	address := "127.0.0.1:" + freePort(t)
	job, dir := guest(t, guestJob, guestAgent), filepath.Join(t.TempDir(), "kept")
	start := func() *exec.Cmd {
		c := process("gateway", job, "--listen", address, "--output", dir, "--api-key", "begin", "--set", "agent.forms=held")
		c.Stderr = os.Stderr
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill() }) // where the test failed
		require.Eventually(t, func() bool {
			r, err := http.Get("http://" + address + "/health")
			if err != nil {
				return false
			}
			r.Body.Close()
			return r.StatusCode == http.StatusOK
		}, time.Minute, 20*time.Millisecond)
		return c
	}
	post := func(path, key, body string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		reply, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		return reply.StatusCode, string(text)
	}
	run := start()
	status, text2 := post("/agentfly/sessions", "wrong", `{}`)
	require.Equal(t, http.StatusUnauthorized, status, text2)
	var sessions [2]struct {
		ID  string `json:"id"`
		Key string `json:"api_key"`
		URL string `json:"base_url"`
	}
	for i := range sessions {
		status, text := post("/agentfly/sessions", "begin", `{"task":{"prompt":[{"role":"user","content":"ab"}]}}`)
		require.Equal(t, http.StatusOK, status, text)
		require.NoError(t, json.Unmarshal([]byte(text), &sessions[i]), text)
	}
	require.Equal(t, "gateway-0-1-0", sessions[1].ID)
	messages := []map[string]string{{"role": "user", "content": "ab"}}
	ask := func(key string) {
		body, err := json.Marshal(map[string]any{"messages": messages})
		require.NoError(t, err)
		status, text := post("/v1/chat/completions", key, string(body))
		require.Equal(t, http.StatusOK, status, text)
		var reply struct {
			Choices []struct{ Message struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &reply))
		messages = append(messages, map[string]string{"role": "assistant", "content": reply.Choices[0].Message.Content}, map[string]string{"role": "user", "content": "b"})
	}
	ask(sessions[0].Key)
	status, text2 = post("/v1/chat/completions", sessions[1].Key, `{"messages":[{"role":"user","content":"ab"}],"structured_outputs":{"choice":["bad cab"]}}`)
	require.Equal(t, http.StatusOK, status, text2)
	require.Contains(t, text2, `"content":"bad cab"`, "nothing is trained, so that replies have the form that is asked for")
	require.NoError(t, run.Process.Kill())
	_ = run.Wait()

	run = start()
	ask(sessions[0].Key)
	status, text2 = post("/agentfly/result", sessions[0].Key, `{"reward": 0.5}`)
	require.Equal(t, http.StatusOK, status, text2)
	require.Eventually(t, func() bool { // the session ends behind the reply; counting is never recorded
		status, _ := post("/v1/messages/count_tokens", sessions[0].Key, `{"model":"m","messages":[{"role":"user","content":"late"}]}`)
		return status == http.StatusUnauthorized
	}, time.Minute, 10*time.Millisecond)
	status, text2 = post("/v1/chat/completions", sessions[0].Key, `{"messages":[{"role":"user","content":"late"}]}`)
	require.Equal(t, http.StatusUnauthorized, status, text2)
	status, text2 = post("/agentfly/sessions", "begin", ``)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text2, `"gateway-0-2-0"`)
	refused, _, errs := command("", "train", "--output", dir, "examples/tiny.yaml")
	require.Equal(t, 2, refused, errs)
	require.Contains(t, errs, dir+" holds what a gateway recorded; give another folder with --output")
	require.NoError(t, run.Process.Signal(os.Interrupt))
	_ = run.Wait()
	db := opened(t, dir)
	n := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		n++
		require.Equal(t, sessions[0].ID, r.Trajectory.ID)
		require.Len(t, r.Trajectory.Turns, 2)
		require.Len(t, r.Trajectory.Samples, 1, "it goes on in its sample")
		require.Equal(t, 0.5, r.Trajectory.Reward)
		return nil
	}))
	require.Equal(t, 1, n)
}

// readme is the README's code block of a language that holds a text.
func readme(t *testing.T, language, holds string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		if strings.Contains(string(found[1]), holds) {
			return string(found[1])
		}
	}
	t.Fatalf("README.md has no %s block with %q", language, holds)
	return ""
}

// The README's agent trains the model that is named there, with the openai package.
func TestTheREADMEsAgentTrains(t *testing.T) {
	needTorch(t)
	clients := os.Getenv("AGENTFLY_GATEWAY_CLIENTS")
	if clients == "" {
		t.Skip("AGENTFLY_GATEWAY_CLIENTS is not set: make test-gateway installs the openai package and sets it")
	}
	job, agent := readme(t, "yaml", "kind: external"), readme(t, "python", "AGENTFLY_TASK")
	require.LessOrEqual(t, strings.Count(job+agent, "\n"), 15)
	path := guest(t, strings.ReplaceAll(job, "train.jsonl, eval: eval.jsonl", "tasks.jsonl"), agent)
	tasks := `{"prompt": "Say yes.", "answer": "Yes."}` + "\n" + `{"prompt": "Name a colour.", "answer": "Blue"}` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "tasks.jsonl"), []byte(tasks), 0o600))
	t.Setenv("PATH", filepath.Join(clients, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", path, "--output", dir, "--set", "trainer.steps=2", "--set", "rollout.groups=2", "--set", "rollout.group_size=2", "--set", "rollout.max_new_tokens=16")
	require.Zero(t, status, "%s%s", out, errs)
	db := opened(t, dir)
	n := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		require.Empty(t, r.Trajectory.Err)
		require.Len(t, r.Trajectory.Turns, 1)
		n++
		return nil
	}))
	require.Equal(t, 8, n)
}
