package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Settings of agents that are programs of their own, and what contradicts them.
func TestExternalAgents(t *testing.T) {
	load := func(agent, more string) error {
		path := filepath.Join(t.TempDir(), "job.yaml")
		text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [posted]\ndata: {train: t.jsonl}\nagent: " + agent + "\n" + more
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		j, err := Load(path)
		if err == nil {
			require.Equal(t, "hermes", j.Agent.Format)
			return nil
		}
		return err
	}
	require.NoError(t, load("{kind: external, command: [python3, agent.py]}", ""))
	require.NoError(t, load("{kind: external, url: 'http://127.0.0.1:9/run', roles: [{name: planner, system: '^You plan', train: false}, {name: rest}]}", ""))
	for agent, says := range map[string]string{
		"{kind: external}": "needs exactly one of command (the agent's program), url",
		"{kind: external, command: [a], url: 'http://x'}":                                                            "needs exactly one of command",
		"{kind: external, command: ['']}":                                                                            "its program is empty",
		"{kind: external, url: 'x:9'}":                                                                               `agent.url: "x:9" is no address`,
		"{kind: external, command: [a], tools: [calculator]}":                                                        "agent.tools: an agent of kind external has its own",
		"{kind: external, command: [a], system: hello}":                                                              "agent.system: an agent of kind external has its own",
		"{kind: external, command: [a], format: search_r1}":                                                          "is no format of calls that name their tool",
		"{kind: external, command: [a], listen: here}":                                                               `agent.listen: "here" is no address`,
		"{kind: external, command: [a], roles: [{name: p, system: '('}]}":                                            "agent.roles.0.system: error parsing regexp",
		"{kind: external, command: [a], roles: [{name: p}, {name: q, path: responses}]}":                             "agent.roles.0: it fits every call",
		"{kind: external, command: [a], roles: [{name: p, path: responses, train: false}, {name: q, train: false}]}": "agent.roles: every call has a role with train: false",
		"{kind: external, command: [a], roles: [{name: 'a b'}]}":                                                     "a name has 1 to 64 letters",
		"{kind: external, online: true}":                                                                             "agent.key: it is missing",
		"{kind: external, online: true, key: k, command: [a]}":                                                       "needs exactly one",
		"{kind: external, url: 'http://x', sandbox: true}":                                                           "agent.sandbox: the run starts nothing with url or online, so that it can confine nothing",
		"{kind: external, online: true, key: k, sandbox: true}":                                                      "agent.sandbox: the run starts nothing with url or online",
		"{kind: external, command: [a], show: [lib]}":                                                                "agent.show: without sandbox: true the agent reads what this program reads",
		"{sandbox: true}":   "agent.sandbox: it is for kind external",
		"{command: [a]}":    "agent.command: it is for kind external, and the kind is tool_call",
		"{url: 'http://x'}": "agent.url: it is for kind external",
		"{forms: held}":     "agent.forms: it is for kind external",
		"{max_time: 3}":     "agent.max_time: it is for kind external",
		"{kind: external, command: [a], forms: some}":  "agent.forms",
		"{kind: external, command: [a], max_time: -1}": "agent.max_time",
	} {
		err := load(agent, "")
		require.Error(t, err, agent)
		require.Contains(t, err.Error(), says, agent)
	}
	held, err := Parse("", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [posted]\ndata: {train: t.jsonl}\nagent: {kind: external, command: [a], forms: held, max_time: 3}\n"), Options{})
	require.NoError(t, err)
	require.ErrorContains(t, held.TrainingErrors(), "agent.forms: held: training needs the logprobs of the whole distribution that was sampled; this is for rollout and eval only, leave it out")
	err = load("{kind: external, command: [a]}", "environment: {kind: frozenlake}\neval: {tool_off: true}\n")
	require.NoError(t, load("{kind: external, command: [a], sandbox: true, show: [lib]}", "sandbox: bubblewrap\n"))
	require.ErrorContains(t, load("{kind: external, command: [a], sandbox: true}", "sandbox: none\n"), "agent.sandbox: it needs bubblewrap, where a program has a network of its own, and the job says sandbox: none")
	require.Contains(t, err.Error(), "acts in worlds of its own")
	require.Contains(t, err.Error(), "are its own; leave tools_off")
	require.Equal(t, 2, strings.Count(err.Error(), "\n")+1, "all at once")
}
