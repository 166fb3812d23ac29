package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// needs are the jobs that need what may not be here, another one's run, vLLM or bubblewrap, with the message that names it.
var needs = map[string]string{"tiny_distill.yaml": "distill.teacher.path: ", "tiny_rejection.yaml": "data.run: ", "tiny_vllm.yaml": "engine.serve.command: ", "tiny_http.yaml": "http: nobody listens at ", "harbor.yaml": "harbor: tasks name absolute paths .*; install the package bubblewrap"}

func TestEveryShippedJobIsValid(t *testing.T) {
	onPath(t)
	files, err := filepath.Glob("examples/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			if _, err := os.Stat("examples/masksearch/passages.jsonl"); f == "examples/masksearch.yaml" && err != nil {
				t.Skip("its passages are not there: scripts/learn.sh masksearch fetches them")
			}
			status, out, errs := command("", "job", "validate", "--run-code", f)
			if needs := needs[filepath.Base(f)]; needs != "" && status != 0 { // it is not here
				require.Equal(t, 2, status)
				require.Regexp(t, `^agentfly: (`+f+`:\d+:\d+: )?`+needs+`.*\n$`, errs)
			} else {
				require.Zero(t, status, errs)
				require.True(t, strings.HasPrefix(out, f+": ok\n"), out)
			}
			status, out, _ = command("", "job", "effective", f)
			require.Zero(t, status)
			require.Contains(t, out, "aggregation")
		})
	}
}

// A job may be for rollouts alone; whoever means to train with it reads that it would be refused.
func TestValidateSaysWhatTrainingRefuses(t *testing.T) {
	onPath(t)
	const f, refused = "examples/tiny.yaml", "--set rollout.top_p=0.9: rollout.top_p: 0.9: training needs the logprobs of the whole distribution that was sampled; this is for rollout and eval only, leave it out\n"
	status, out, errs := command("", "job", "validate", f, "--set", "rollout.top_p=0.9")
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Equal(t, "agentfly: "+refused, errs)
	status, out, errs = command("", "job", "validate", "--for", "rollout", f, "--set", "rollout.top_p=0.9")
	require.Zero(t, status, errs)
	require.True(t, strings.HasPrefix(out, f+": ok\n"), out)
	status, _, errs = command("", "job", "validate", "--for", "eval", f)
	require.Equal(t, 2, status)
	require.Contains(t, errs, "data.eval is missing; name the held-out tasks")
	status, out, errs = command("", "job", "effective", f, "--set", "rollout.top_p=0.9")
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Contains(t, errs, refused)
	status, _, errs = command("", "job", "validate", "examples/tiny_sft.yaml", "--set", "rollout.temperature=0.5")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "rollout.temperature: 0.5: sft learns the distribution at temperature 1; leave it out")
}

// A job file is code: it names programs, Python files and services. Looking at one runs and asks none of them.
func TestValidateRunsNothing(t *testing.T) {
	needPython(t)
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(404)
	}))
	defer service.Close()
	dir := t.TempDir()
	planted := func(name, text string) (marker string) {
		marker = filepath.Join(dir, "ran-"+name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".py"), []byte(fmt.Sprintf("open(%q, 'w').close()\n%s", marker, text)), 0o600))
		return marker
	}
	tool := planted("tool", "from agentfly import tool\n\n@tool()\ndef f(n: int) -> str:\n    \"Counts.\"\n    return ''\n")
	reward := planted("reward", "from agentfly import reward\n\n@reward()\ndef w(completion: str) -> float:\n    return 0.0\n")
	agent := planted("agent", "def parse(text):\n    return {}\n")
	program := filepath.Join(dir, "ran-program")
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		set, marker, says string
	}{
		"tool":    {`agent.tools=[{python: ` + dir + `/tool.py}]`, tool, "the Python file " + dir + "/tool.py, which is not imported"},
		"reward":  {`rewards=[{python: ` + dir + `/reward.py, name: w}]`, reward, "the Python file " + dir + "/reward.py, which is not imported"},
		"nested":  {`rewards=[{name: sum, of: [{python: ` + dir + `/reward.py, name: w}]}]`, reward, ""},
		"agent":   {`agent={kind: custom, python: ` + dir + `/agent.py}`, agent, "the Python file " + dir + "/agent.py, which is not imported"},
		"program": {`agent.tools=[{mcp: {command: [sh, -c, "touch ` + program + `"]}}]`, program, `the MCP server ["SH" "-c" "touch ` + program + `"], which is not started`},
		"server":  {`agent.tools=[{mcp: {url: "` + service.URL + `/mcp", headers: {Authorization: "Bearer ${HOME}"}}}]`, "", "the MCP server " + service.URL + "/mcp, which is not asked"},
		"service": {`agent.tools=[{http: {openapi: "` + service.URL + `/openapi.json"}}]`, "", "the document " + service.URL + "/openapi.json, which is not fetched"},
		"dense":   {`agent.tools=[{name: dense_search, corpus: tiny/tasks.jsonl, url: "` + service.URL + `", model: m}]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			status, out, errs := command("", "job", "validate", "--set", c.set, "examples/tiny.yaml")
			if c.marker != "" {
				require.NoFileExists(t, c.marker)
			}
			require.Zero(t, asked.Load())
			if c.says == "" { // a form that the job may not take; what counts is that nothing ran
				return
			}
			require.Zero(t, status, errs)
			require.Equal(t, "examples/tiny.yaml: ok, but not all of it was checked, because that runs what the job names:\n  "+strings.Replace(c.says, "SH", shell, 1)+"\na job file is code: run agentfly job validate --run-code on one that you trust\n", strings.SplitAfter(out, "that you trust\n")[0])
			_, _, _ = command("", "job", "validate", "--run-code", "--set", c.set, "examples/tiny.yaml")
			if c.marker != "" {
				require.FileExists(t, c.marker)
				require.NoError(t, os.Remove(c.marker))
			} else {
				require.Positive(t, asked.Load())
			}
		})
	}
}

// What can be told without running anything is told.
func TestValidateWithoutRunning(t *testing.T) {
	for set, want := range map[string]string{
		`agent.tools=[{python: nowhere.py}, calculator]`:                        "agent.tools.0: python: the file nowhere.py cannot be read: no such file or directory",
		`agent.tools=[{mcp: {command: [no-such-program]}}]`:                     `the program "no-such-program" is not on PATH`,
		`agent.tools=[{mcp: {command: [sh], colour: red}}]`:                     "colour",
		`agent.tools=[{python: tiny.yaml, workers: -1}]`:                        "workers and memory must be above 0",
		`agent.tools=[{mcp: {command: [sh]}}, {name: nothing}]`:                 `there is no tool "nothing"`,
		`rewards=[{python: nowhere.py, name: w}]`:                               "rewards.0: w: the file nowhere.py cannot be read: no such file or directory",
		`agent.tools=[{http: {openapi: "http://127.0.0.1:1/a.json", name: x}}]`: "openapi: the document says name",
	} {
		status, out, errs := command("", "job", "validate", "--set", set, "examples/tiny.yaml")
		require.Equal(t, 2, status, "%s: %s", set, out)
		require.Contains(t, errs, want, set)
	}
	status, out, errs := command("", "job", "validate", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	require.True(t, strings.HasPrefix(out, "examples/tiny.yaml: ok\n"), "there is nothing to run: %s", out)
}

func TestSchemaIsJSON(t *testing.T) {
	status, out, _ := command("", "job", "schema")
	require.Zero(t, status)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Contains(t, v["properties"], "rollout")
	require.Contains(t, out, "\n  \"properties\": {\n", "it is indented")
}
