package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The key, the address and the model of a gateway are what the flags say, letter by letter, whatever they would be as YAML or as a job file's text.
func TestTheFlagsOfAGatewayAreTakenLiterally(t *testing.T) {
	t.Setenv("HOME_OF_KEYS", "expanded")
	path := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(path, []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [posted]\ndata: {train: t.jsonl}\n"), 0o600))
	c := gatewayCommand{&env{}}
	for _, key := range []string{"ak-1", "20261105", "team #1", "#x", "${HOME_OF_KEYS}", "${HOME_OF_NOTHING}", "a: b", "[x]", "'quoted", `"quoted"`, `back\slash`, "null", "true", "2026-11-05", " x ", "*a", "!t", "é€", "x\ny", "a=b"} {
		for _, listen := range []string{"127.0.0.1:8100", "[::1]:8100", ":0"} {
			for _, of := range []string{path, "some/model"} {
				j, err := c.job(of, []string{"agent.key=other", "rollout.timeout=100"}, key, listen)
				require.NoError(t, err, "%q at %s", key, listen)
				require.Equal(t, key, j.Agent.Key)
				require.Equal(t, listen, j.Agent.Listen)
				require.Equal(t, 100.0, j.Rollout.Timeout)
			}
		}
	}
	for _, model := range []string{"mo${HOME_OF_KEYS}del", "${HOME_OF_NOTHING}", `a"b\c`, "${--api-key}", "x: y"} {
		j, err := c.job(model, nil, "k", ":0")
		require.NoError(t, err)
		require.Equal(t, model, j.Model.Path)
	}
	j, err := c.job(path, []string{"name=${HOME_OF_KEYS}", "rollout.timeout=100"}, "k", ":0")
	require.NoError(t, err)
	require.Equal(t, "expanded", j.Name, "other settings read the environment")
}

// An address that is none is refused by the name of its flag.
func TestTheAddressOfAGateway(t *testing.T) {
	_, _, err := command(t, "gateway", "some/model", "--listen", "here")
	var wrong *UsageError
	require.ErrorAs(t, err, &wrong)
	require.EqualError(t, err, `--listen is "here"; it must be HOST:PORT, such as 127.0.0.1:8100`)
}

// A gateway takes the jobs of agents that a run starts or asks for as they stand: it starts none itself.
func TestAGatewayStartsNoAgents(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "gateway.md"))
	require.NoError(t, err)
	ofPage := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.Contains(t, string(ofPage[1]), "command: ")
	const rest = "version: 1\nname: x\nmodel: {path: m}\nrewards: [posted]\ndata: {train: t.jsonl}\n"
	const day = 86400.0
	for name, c := range map[string]struct {
		text    string
		timeout float64
		wrong   string
	}{
		"of the page":      {text: string(ofPage[1]), timeout: day},
		"a service":        {text: rest + "agent: {kind: external, url: 'http://x.test/'}\nrollout: {timeout: 60}\n", timeout: 60},
		"in the sandbox":   {text: rest + "agent: {kind: external, command: [x], sandbox: true, show: [lib]}\nrollout: {timeout: 0}\n", timeout: day},
		"of a tree":        {text: rest + "agent: {kind: external, command: [x], deterministic: true}\nrollout: {tree: {rule: step_random}}\n", timeout: day},
		"a broken timeout": {text: rest + "agent: {kind: external, command: [x]}\nrollout: {timeout: soon}\n", wrong: "rollout.timeout: "},
		"a misspelt one":   {text: rest + "agent: {kind: external, command: [x]}\nrollout: {timeouts: 60}\n", wrong: `unknown key "timeouts"`},
		"and other faults": {text: rest + "agent: {kind: external, command: [x], max_turns: 0}\n", wrong: "agent.max_turns: "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "job.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			j, err := gatewayCommand{&env{}}.job(path, nil, "k", ":0")
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				require.NotContains(t, err.Error(), "\n", "and nothing else")
				return
			}
			require.NoError(t, err)
			require.True(t, j.Agent.Online)
			require.Equal(t, c.timeout, j.Rollout.Timeout)
		})
	}
}
