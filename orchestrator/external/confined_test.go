package external_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// confined is a command in the sandbox, whose gateway answers with the key that it was asked with. files are those of its job's folder.
func confined(t *testing.T, files map[string]string, args ...string) *external.Command {
	t.Helper()
	box, err := sandbox.Open(t.Context(), sandbox.Bubblewrap)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	folder := filepath.Join(t.TempDir(), "job")
	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "gateway: ", r.Header.Get("Authorization"))
	})}
	t.Cleanup(func() { _ = server.Close() })
	return &external.Command{
		Args: args, Folder: folder, Env: map[string]string{"OWN": "set"}, Logs: filepath.Join(folder, "run", "logs"), Name: filepath.Join(folder, "run"),
		Confined: &external.Confined{Sandbox: box, Serve: func(l net.Listener) { _ = server.Serve(l) }},
	}
}

func assignment(id string) external.Assignment {
	return external.Assignment{
		ID: id, Phase: "train", URL: external.InsideURL, Key: "key-of-" + id,
		Task: trajectory.Task{ID: "t", Prompt: []trajectory.Message{trajectory.Text("user", "17*23?")}},
	}
}

// snoops is an agent that asks the gateway, and then says what else it reaches. LOOK are paths and addresses.
const snoops = `
import json, os, sys, urllib.request, helper
task = json.load(open(os.environ["AGENTFLY_TASK"]))
def ask(url):
    try: return urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": task["api_key"]}), timeout=5).read().decode()
    except Exception as e: return type(e).__name__
assert task["base_url"] == os.environ["AGENTFLY_BASE_URL"] and task["base_url"] + "/v1" == os.environ["OPENAI_BASE_URL"]
found = {"gateway": ask(task["base_url"]), "helper": helper.word, "own": os.environ["OWN"], "secret": os.environ.get("SECRET"), "run": os.environ.get("AGENTFLY_RUN")}
for path in json.loads(os.environ["LOOK"]):
    if path.startswith("http"): found[path] = ask(path)
    else:
        try: found[path] = sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()
        except OSError as e: found[path] = type(e).__name__
found["environments"] = sum(task["api_key"] in open("/proc/%s/environ" % p, errors="replace").read() or "key-of-" in open("/proc/%s/environ" % p, errors="replace").read() for p in os.listdir("/proc") if p.isdigit())
try: open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "written"), "w"); found["writes"] = True
except OSError: found["writes"] = False
print("out", flush=True); print("err", file=sys.stderr)
json.dump({"answer": json.dumps(found)}, open(os.environ["AGENTFLY_RESULT"], "w"))
`

// An agent in the sandbox asks the gateway on its own loopback, reads its own folder and what the job shows, and nothing else: no other address, neither
// root's folder, nor the job's tasks, nor the run's, nor what this process knows in its environment, nor another agent's task and key.
func TestAConfinedAgent(t *testing.T) {
	t.Setenv("SECRET", "of this process")
	t.Setenv("TMPDIR", t.TempDir()) // the folders of other tests' agents are elsewhere
	host, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer host.Close()
	c := confined(t, map[string]string{
		"agent/main.py": snoops, "agent/helper.py": "word = 'beside it'", "train.jsonl": "answers", "run/store.db": "all", "shown/prompt.txt": "a prompt",
	}, "python3", "agent/main.py")
	c.Confined.Show = []string{filepath.Join(c.Folder, "shown")}
	neighbour := &external.Command{Args: []string{"sleep", "1000"}, Folder: c.Folder, Confined: &external.Confined{Sandbox: c.Confined.Sandbox, Serve: c.Confined.Serve}}
	ctx, cancel := context.WithCancel(t.Context())
	beside := make(chan error)
	go func() {
		_, err := neighbour.Run(ctx, assignment("train-0-0-1"))
		beside <- err
	}()
	var theirs []string // the folder of the neighbour's task
	require.Eventually(t, func() bool {
		theirs, _ = filepath.Glob(filepath.Join(os.TempDir(), "agentfly-agent-*", "task.json"))
		return len(theirs) > 0
	}, time.Minute, 10*time.Millisecond)
	none := []string{"/root", "/home", "/etc/hostname", filepath.Join(c.Folder, "train.jsonl"), filepath.Join(c.Folder, "run", "store.db"), filepath.Join(c.Folder, "run"), theirs[0], "http://" + host.Addr().String(), "http://127.0.0.1:8101", "http://1.1.1.1"}
	look, err := json.Marshal(append(none, filepath.Join(c.Folder, "shown", "prompt.txt"), "/workspace", c.Folder))
	require.NoError(t, err)
	c.Env["LOOK"] = string(look)
	end, err := c.Run(t.Context(), assignment("train-0-0-0"))
	require.NoError(t, err, end.Output)
	cancel()
	require.ErrorIs(t, <-beside, context.Canceled)
	require.Equal(t, "out\nerr\n", end.Output)
	kept, err := os.ReadFile(filepath.Join(c.Logs, "train-0-0-0.txt"))
	require.NoError(t, err)
	require.Equal(t, end.Output, string(kept))
	var found map[string]any
	require.NoError(t, json.Unmarshal([]byte(*end.Answer), &found))
	require.Equal(t, "gateway: key-of-train-0-0-0", found["gateway"])
	require.Equal(t, "beside it", found["helper"])
	require.Equal(t, "set", found["own"])
	require.Nil(t, found["secret"])
	require.Nil(t, found["run"])
	require.Equal(t, false, found["writes"])
	require.Equal(t, "a prompt", found[filepath.Join(c.Folder, "shown", "prompt.txt")])
	require.Equal(t, []any{"task.json"}, found["/workspace"])
	require.Equal(t, []any{"agent", "shown"}, found[c.Folder])
	for _, what := range none {
		want := "FileNotFoundError"
		if strings.HasPrefix(what, "http") {
			want = "URLError"
		}
		require.Equal(t, want, found[what], what)
	}
}

// An agent whose program lies in the job's folder is shown that file, and others that the command names.
func TestAConfinedAgentBesideItsJob(t *testing.T) {
	c := confined(t, map[string]string{"agent.sh": "ls; echo $HOME; cat $2", "train.jsonl": "answers", "hint.txt": "named\n"}, "sh", "agent.sh", "--hint", "hint.txt", ".")
	end, err := c.Run(t.Context(), assignment("train-0-0-0"))
	require.NoError(t, err)
	require.Equal(t, "agent.sh\nhint.txt\n/workspace\nnamed\n", end.Output)
}

// Of a program or a script below the job's folder its own folder is shown, of another file that the command names the file alone.
func TestWhatAConfinedAgentReads(t *testing.T) {
	c := confined(t, map[string]string{
		"tools/run": "#!/bin/sh\nexec \"$@\"", "tools/lib.sh": "", "agent/main.sh": "ls */*", "agent/lib.sh": "", "data/one.txt": "", "data/two.txt": "", "train.jsonl": "",
	}, "tools/run", "sh", "agent/main.sh", "data/one.txt", "data", "..", "train", "/usr/bin/env")
	require.NoError(t, os.Chmod(filepath.Join(c.Folder, "tools/run"), 0o755))
	readable, err := c.Readable()
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(c.Folder, "tools"), filepath.Join(c.Folder, "agent"), filepath.Join(c.Folder, "data/one.txt")}, readable)
	end, err := c.Run(t.Context(), assignment("train-0-0-0"))
	require.NoError(t, err, end.Output)
	require.Equal(t, "agent/lib.sh\nagent/main.sh\ndata/one.txt\ntools/lib.sh\ntools/run\n", end.Output)
}

// What a confined agent does wrong is told as that of any other: its status, its last words, what it wrote.
func TestConfinedAgentsThatFail(t *testing.T) {
	for script, says := range map[string]string{
		"echo no luck >&2; exit 3":           "the agent ended with exit status 3; it printed last: no luck",
		"kill -9 $$":                         "the agent was killed (sandbox: ended by SIGKILL)",
		"echo no >$AGENTFLY_RESULT":          "is not JSON such as",
		"ln -s /etc/passwd $AGENTFLY_RESULT": "is not a regular file",
		"mkfifo $AGENTFLY_RESULT":            "is not a regular file",
		"exec no-such-program":               "the agent ended with exit status 127; it printed last: ",
	} {
		_, err := confined(t, nil, "sh", "-c", script).Run(t.Context(), assignment("train-0-0-0"))
		require.ErrorContains(t, err, says, script)
	}
	c := confined(t, map[string]string{"agent.sh": ""}, "sh", "agent.sh")
	c.Confined.Show = []string{"/no/such/folder"}
	_, err := c.Run(t.Context(), assignment("train-0-0-0"))
	require.ErrorContains(t, err, "/no/such/folder")
	if os.Geteuid() == 0 {
		c = confined(t, map[string]string{"agent.sh": ""}, "sh", "agent.sh")
		require.NoError(t, os.Chmod(filepath.Join(c.Folder, "agent.sh"), 0o600))
		_, err = c.Readable()
		require.ErrorContains(t, err, "agent.sh cannot be read by the user nobody")
	}
}

// The end of a trajectory's time ends its agent in the sandbox with all that it started, also what left its process group and hides from its end.
func TestAConfinedAgentEndsWhole(t *testing.T) {
	sleep := fmt.Sprint("sleep ", 100_000+os.Getpid())
	running := func() int {
		out, _ := exec.Command("pgrep", "-fx", sleep).Output()
		return strings.Count(string(out), "\n")
	}
	c := confined(t, nil, "sh", "-c", strings.ReplaceAll(`trap "" TERM HUP INT; setsid SLEEP & SLEEP & (setsid sh -c 'trap "" TERM; SLEEP; SLEEP' &); SLEEP; SLEEP`, "SLEEP", sleep))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, assignment("train-0-0-0"))
		ended <- err
	}()
	require.Eventually(t, func() bool { return running() == 4 }, time.Minute, 20*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, running())
}

// Programs that reserve much more memory than they use run.
func TestAConfinedAgentInNode(t *testing.T) {
	if _, err := os.Stat("/usr/bin/node"); err != nil {
		t.Skip("there is no Node.js under /usr")
	}
	c := confined(t, map[string]string{"agent.mjs": `console.log(await (await fetch(process.env.AGENTFLY_BASE_URL, {headers: {Authorization: "x"}})).text())`}, "node", "agent.mjs")
	end, err := c.Run(t.Context(), assignment("train-0-0-0"))
	require.NoError(t, err, end.Output)
	require.Equal(t, "gateway: x\n", end.Output)
}
