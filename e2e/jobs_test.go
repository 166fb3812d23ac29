package agentfly_test

import (
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
			require.Equal(t, "examples/tiny.yaml: ok, but not all of it was checked, because that runs what the job names:\n  "+strings.Replace(c.says, "SH", shell, 1)+"\na job file is code: run agentfly job validate --run-code on one that you trust\n", out)
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
	require.Equal(t, "examples/tiny.yaml: ok\n", out, "there is nothing to run")
}
