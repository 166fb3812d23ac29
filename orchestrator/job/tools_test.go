package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/tools"
)

func TestEntriesOfTools(t *testing.T) {
	for name, c := range map[string]struct {
		tools string
		want  []job.Tool
	}{
		"names": {"[calculator, python]", []job.Tool{{Name: "calculator"}, {Name: "python"}}},
		"parameters and limits": {
			"[{name: search, corpus: a.jsonl, top: 3, timeout: 1.5, max_tokens: 200, concurrency: 4, rate: 0.5, retries: 2, cache: true}]",
			[]job.Tool{{
				Name: "search", Params: map[string]any{"corpus": "a.jsonl", "top": int64(3)}, Cache: true,
				Limits: tools.Limits{Timeout: 1500 * time.Millisecond, MaxTokens: 200, Concurrency: 4, Rate: 0.5, Retries: 2},
			}},
		},
		"sources": {
			"[{python: my.py, sandboxed: true, only: [a, b]}, {mcp: {command: [server], env: {X: y}}}, {http: {url: 'http://h/', name: x}}]",
			[]job.Tool{
				{Source: "python", Only: []string{"a", "b"}, Params: map[string]any{"python": "my.py", "sandboxed": true}},
				{Source: "mcp", Params: map[string]any{"mcp": map[string]any{"command": []any{"server"}, "env": map[string]any{"X": "y"}}}},
				{Source: "http", Params: map[string]any{"http": map[string]any{"url": "http://h/", "name": "x"}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := parse(sourced+"agent: {tools: "+c.tools+"}", job.Options{})
			require.NoError(t, err)
			require.Equal(t, c.want, j.Agent.Tools)
			again, err := parse(string(j.Source()), job.Options{})
			require.NoError(t, err)
			require.Equal(t, c.want, again.Agent.Tools, "the copy in the run folder reads back as the same")
		})
	}
}

// Nothing of the environment, and no literal key, is in the copy of the job, wherever in an entry it stands.
func TestToolsKeepSecrets(t *testing.T) {
	env := func(name string) (string, bool) { return "hunter2", name == "KEY" }
	for _, entry := range []string{
		`{http: {url: "https://h/?key=${KEY}", name: x, headers: {Authorization: "Bearer ${KEY}", X-Custom: "${KEY}"}}}`,
		`{http: {url: "https://h/", name: x, headers: {authorization: Bearer hunter2, X-API-Key: hunter2, Set-Cookie: hunter2}}}`,
		`{mcp: {command: ["server", "${KEY}"], env: {API_KEY: hunter2, OTHER: "${KEY}"}}}`,
		`{python: "${KEY}.py", only: ["${KEY}"]}`,
		`{name: search, api_key: hunter2, cache: true}`,
	} {
		j, err := parse(sourced+"agent: {tools: ["+entry+"]}", job.Options{Env: env})
		require.NoError(t, err)
		require.NotContains(t, string(j.Source()), "hunter2", entry)
		again, err := parse(string(j.Source()), job.Options{Env: env})
		require.NoError(t, err, string(j.Source()))
		require.Len(t, again.Agent.Tools, 1)
	}
	j, err := parse(sourced+`agent: {tools: [{http: {url: "https://h/", name: x, headers: {X-Custom: "${KEY}"}}, only: ["${KEY}"]}]}`, job.Options{Env: env})
	require.NoError(t, err)
	again, err := parse(string(j.Source()), job.Options{Env: env})
	require.NoError(t, err)
	require.Equal(t, j.Agent.Tools, again.Agent.Tools)
	require.Equal(t, []string{"hunter2"}, j.Agent.Tools[0].Only)
}

func TestMistakesInTools(t *testing.T) {
	for name, c := range map[string]struct{ tools, want string }{
		"a list":         {"[[a]]", "/jobs/job.yaml:5:17: agent.tools.0: a list, allowed is a name, {name: NAME, parameter: value}, {python: FILE}, {mcp: …} or {http: …}"},
		"nothing":        {"[{timeout: 3}]", "/jobs/job.yaml:5:17: agent.tools.0: exactly one of name, python, mcp and http says which tool; allowed is a name, {name: NAME, parameter: value}, {python: FILE}, {mcp: …} or {http: …}"},
		"both":           {"[{name: a, python: b.py}]", "/jobs/job.yaml:5:17: agent.tools.0: exactly one of name, python, mcp and http says which tool; allowed is a name, {name: NAME, parameter: value}, {python: FILE}, {mcp: …} or {http: …}"},
		"two sources":    {"[{python: b.py, http: {url: x}}]", "/jobs/job.yaml:5:32: agent.tools.0: python and http in one entry; make two of it"},
		"only of a name": {"[{name: a, only: [b]}]", "/jobs/job.yaml:5:17: agent.tools.0.only: it chooses among the tools of python, mcp or http; a name is one tool, leave it out"},
		"only nothing":   {"[{python: a.py, only: []}]", "/jobs/job.yaml:5:38: agent.tools.0.only: the list is empty; name the tools that are taken, or leave it out"},
		"a bad limit":    {"[{name: a, retries: -1}]", "/jobs/job.yaml:5:36: agent.tools.0.retries: -1 is out of range, allowed is a whole number from 0 to 100"},
		"a bad cache":    {"[{name: a, cache: often}]", "/jobs/job.yaml:5:34: agent.tools.0.cache: allowed is true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(sourced+"agent: {tools: "+c.tools+"}", job.Options{})
			require.EqualError(t, err, c.want)
		})
	}
}
