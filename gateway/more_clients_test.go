package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// installed is a program of the longer target; it is there after `scripts/test_gateway.sh all`.
func installed(t *testing.T, path ...string) string {
	t.Helper()
	program := filepath.Join(append([]string{clients(t)}, path...)...)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not installed: scripts/test_gateway.sh all installs it", filepath.Base(program))
	}
	return program
}

// trainedOnce is what every client must come to, whatever it makes of its history: the ids that are trained are those that were sampled, each once, and
// a turn that goes on after another one has that one's ids before it.
func (b *bench) trainedOnce(calls int) {
	b.t.Helper()
	require.Equal(b.t, gateway.Outcome{Calls: calls}, b.session.Finish())
	require.Len(b.t, b.told.Turns, calls)
	b.check()
}

// Clients that take longer to install, in the same loop as the others.
func TestClientsOfTheLongerTarget(t *testing.T) {
	python := installed(t, "all", "bin", "python")
	scripts, err := filepath.Abs("testdata/clients")
	require.NoError(t, err)
	for _, mode := range []string{"plain", "stream"} {
		t.Run("autogen/"+mode, func(t *testing.T) {
			b := newBench(t, byRound(callText, "It is 391."))
			b.oneLoop(b.client([]string{python, filepath.Join(scripts, "autogen_loop.py"), mode}))
		})
		t.Run("smolagents/"+mode, func(t *testing.T) { // it tells its calls as texts, which no comparison matches: a sample a call
			b := newBench(t, byRound(callText, `It is there. <tool_call>{"name": "final_answer", "arguments": {"answer": "It is 391."}}</tool_call>`))
			require.Contains(t, b.client([]string{python, filepath.Join(scripts, "smolagents_loop.py"), mode}), "FINAL It is 391.")
			b.trainedOnce(2)
			require.Len(t, b.told.Samples, 2)
			require.Contains(t, rollouttest.Decode(b.told.Samples[1].TokenIDs), "391")
			require.Equal(t, -1, b.told.Turns[1].Incoming.After)
			require.Empty(t, b.told.Turns[1].Role)
		})
	}
}

// mini-swe-agent works in a shell until it says that it is done.
func TestClientsMiniSWEAgent(t *testing.T) {
	python := installed(t, "mini", "bin", "python")
	script, err := filepath.Abs("testdata/clients/mini_loop.py")
	require.NoError(t, err)
	call := func(command string) string {
		return fmt.Sprintf(`I compute. <tool_call>{"name": "bash", "arguments": {"command": %q}}</tool_call>`, command)
	}
	b := newBench(t, byRound(call("echo $((17*23))"), call("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo 391")))
	said := b.client([]string{python, script})
	require.Contains(t, said, "391")
	require.Contains(t, said, "calls 2")
	b.trainedOnce(2)
	require.Len(t, b.told.Samples, 1)
	require.Contains(t, rollouttest.Decode(b.told.Samples[0].TokenIDs), "391")
}

// opencode asks for a title beside its agent's calls; it is a sample of its own, and not trained. A token is a letter here, so that its prompt of 30 kB
// needs a context of that size: it would compact what it has for ever.
func TestClientsOpencode(t *testing.T) {
	program := installed(t, "more", "node_modules", ".bin", "opencode")
	b := newBench(t, byTitle(`I compute. <tool_call>{"name": "bash", "arguments": {"command": "echo $((17*23))", "description": "Multiplies"}}</tool_call>`, "FINAL It is 391."))
	home := t.TempDir()
	config := fmt.Sprintf(`{"autoupdate":false,"share":"disabled","model":"gw/policy","small_model":"gw/policy","permission":{"bash":"allow","edit":"allow"},
		"provider":{"gw":{"npm":"@ai-sdk/openai-compatible","name":"gw","options":{"baseURL":%q,"apiKey":%q},"models":{"policy":{"name":"policy","limit":{"context":1000000,"output":4096}}}}}}`, b.url+"/v1", testKey)
	path := filepath.Join(home, "opencode.json")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	said := b.client([]string{program, "run", "What is 17*23? Use bash."}, "OPENCODE_CONFIG="+path, "XDG_DATA_HOME="+home+"/d", "XDG_CONFIG_HOME="+home+"/c", "XDG_CACHE_HOME="+home+"/k", "XDG_STATE_HOME="+home+"/s",
		"TERM=dumb", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1")
	require.Contains(t, said, "It is 391.")
	b.trainedOnce(3)
	require.Len(t, b.told.Samples, 2, "the title's and the agent's")
	roles := map[trajectory.Role]int{}
	for _, turn := range b.told.Turns {
		roles[turn.Role]++
	}
	require.Equal(t, map[trajectory.Role]int{"": 2, trajectory.RoleAuxiliary: 1}, roles)
}

// Codex speaks Responses, with its tools in a shell of its own.
func TestClientsCodex(t *testing.T) {
	program := installed(t, "more", "node_modules", ".bin", "codex")
	b := newBench(t, byRound(`I compute. <tool_call>{"name": "exec_command", "arguments": {"cmd": "echo $((17*23))"}}</tool_call>`, "FINAL It is 391."))
	home := t.TempDir()
	config := fmt.Sprintf("model = \"policy\"\nmodel_provider = \"gw\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n[model_providers.gw]\nname = \"gw\"\nbase_url = %q\nenv_key = \"GW_KEY\"\nwire_api = \"responses\"\nsupports_websockets = false\n", b.url+"/v1")
	require.NoError(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600))
	said := b.client([]string{program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "What is 17*23? Use the shell."}, "CODEX_HOME="+home, "GW_KEY="+testKey, "TERM=dumb")
	require.Contains(t, said, "It is 391.")
	b.trainedOnce(2)
	require.Len(t, b.told.Samples, 1)
	require.Contains(t, rollouttest.Decode(b.told.Samples[0].TokenIDs), "391")
}

// Claude Code speaks Messages, with a message of the system within the conversation and marks of its cache that move. It may contact nobody but the
// gateway: every other address goes to a proxy that is not there.
func TestClientsClaudeCode(t *testing.T) {
	program := installed(t, "claude", "node_modules", ".bin", "claude")
	b := newBench(t, byRound(`I compute. <tool_call>{"name": "Bash", "arguments": {"command": "echo $((17*23))", "description": "Multiplies"}}</tool_call>`, "FINAL It is 391."))
	said := b.client([]string{program, "-p", "What is 17*23? Use bash.", "--model", "policy", "--allowedTools", "Bash"}, "CLAUDE_CONFIG_DIR="+t.TempDir(), "TERM=dumb", "IS_SANDBOX=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "HTTPS_PROXY=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9")
	require.Contains(t, said, "It is 391.")
	b.trainedOnce(2)
	require.Len(t, b.told.Samples, 1)
	require.Equal(t, 0, b.told.Turns[1].Incoming.After)
	require.Equal(t, "messages", b.told.Turns[0].Incoming.Dialect)
	require.Contains(t, rollouttest.Decode(b.told.Samples[0].TokenIDs), "391")
}

// byTitle says one text after another to who has tools, and a title to who has none.
func byTitle(texts ...string) rollouttest.Script {
	say := byRound(texts...)
	return func(r engines.Request) (engines.Completion, error) {
		if text, _ := r.Messages[0].TextContent(); strings.Contains(text, "title") {
			return rollouttest.Say("A product")
		}
		return say(r)
	}
}
