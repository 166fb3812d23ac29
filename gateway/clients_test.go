package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
)

// clients is the folder of scripts/gateway_packages.sh.
func clients(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("AGENTFLY_GATEWAY_CLIENTS")
	if folder == "" {
		t.Skip("AGENTFLY_GATEWAY_CLIENTS is not set: make test-gateway installs the clients and sets it")
	}
	return folder
}

// client runs a program against the bench's gateway, with what a job's command finds in its environment.
func (b *bench) client(args []string, more ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = b.t.TempDir()
	c.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "LANG=C.UTF-8", "NO_PROXY=127.0.0.1,localhost", "OPENAI_BASE_URL=" + b.url + "/v1", "OPENAI_API_KEY=" + testKey,
		"ANTHROPIC_BASE_URL=" + b.url, "ANTHROPIC_API_KEY=" + testKey, "OPENAI_AGENTS_DISABLE_TRACING=1", "LANGSMITH_TRACING=false",
	}, more...)
	out, err := c.CombinedOutput()
	require.NoError(b.t, err, "%s", out)
	return string(out)
}

// oneLoop is what a plain loop with a tool must come to: two calls in one sample, every sampled id in it once, nothing tokenized again.
func (b *bench) oneLoop(said string) {
	b.t.Helper()
	require.Contains(b.t, said, "FINAL It is 391.")
	require.Equal(b.t, gateway.Outcome{Calls: 2}, b.session.Finish())
	b.check()
	require.Len(b.t, b.told.Turns, 2)
	require.Len(b.t, b.told.Samples, 1, "the second call goes on in the sample of the first")
	require.Equal(b.t, 0, b.told.Turns[1].Incoming.After)
	require.Contains(b.t, rollouttest.Decode(b.told.Samples[0].TokenIDs), "391")
	answer, _ := b.told.FinalAnswer()
	require.Equal(b.t, "It is 391.", answer)
}

// Clients that people's agents are written with, unmodified, each in its dialect, streamed and not.
func TestClients(t *testing.T) {
	folder := clients(t)
	scripts, err := filepath.Abs("testdata/clients")
	require.NoError(t, err)
	for script, modes := range map[string][]string{
		"openai_loop.py":    {"chat", "chatstream", "responses", "responsesstream"},
		"anthropic_loop.py": {"plain", "stream", "runner"},
		"agents_loop.py":    {"responses", "responsesstream", "chat", "chatstream"},
		"langgraph_loop.py": {"plain", "stream", "responses"},
		"pydantic_loop.py":  {"chat", "responses", "anthropic"},
	} {
		for _, mode := range modes {
			t.Run(strings.TrimSuffix(script, ".py")+"/"+mode, func(t *testing.T) {
				b := newBench(t, byRound(callText, "It is 391."))
				b.oneLoop(b.client([]string{filepath.Join(folder, "bin", "python"), filepath.Join(scripts, script), mode}))
			})
		}
	}
}

// Each of them forks: begun anew it asks for the same again, gets the recorded reply, and goes on with another one.
func TestClientsFork(t *testing.T) {
	folder := clients(t)
	scripts, err := filepath.Abs("testdata/clients")
	require.NoError(t, err)
	for script, modes := range map[string][]string{
		"openai_loop.py":    {"chat", "responsesstream"},
		"anthropic_loop.py": {"stream", "runner"},
		"agents_loop.py":    {"responses", "chat"},
		"langgraph_loop.py": {"plain", "responses"},
		"pydantic_loop.py":  {"chat", "anthropic"},
	} {
		for _, mode := range modes {
			t.Run(strings.TrimSuffix(script, ".py")+"/"+mode, func(t *testing.T) {
				program := []string{filepath.Join(folder, "bin", "python"), filepath.Join(scripts, script), mode}
				first := newBench(t, byRound(callText, "It is 391."), rooted(time.Now()))
				require.Contains(t, first.client(program), "FINAL It is 391.")
				first.session.Finish()
				b := newBench(t, byRound("It is 17."), leaf(first, 1))
				require.Contains(t, b.client(program), "FINAL It is 17.")
				require.Equal(t, gateway.Outcome{Calls: 2}, b.session.Finish())
				require.Len(t, b.sampled, 1)
				require.Len(t, b.told.Turns, 2)
				from := first.told.Turns[1].CompletionStart
				require.Equal(t, first.told.Samples[0].TokenIDs[:from], b.told.Samples[0].TokenIDs[:from])
			})
		}
	}
}

// A model that thinks: the client may leave the thought out of its history, the sampled ids go on all the same.
func TestClientsOfAModelThatThinks(t *testing.T) {
	folder := clients(t)
	scripts, err := filepath.Abs("testdata/clients")
	require.NoError(t, err)
	for _, c := range [][2]string{{"openai_loop.py", "chat"}, {"agents_loop.py", "chat"}, {"langgraph_loop.py", "plain"}, {"agents_loop.py", "responses"}, {"anthropic_loop.py", "stream"}, {"pydantic_loop.py", "responses"}} {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) {
			b := newBench(t, byRound("<think>\nI multiply.\n</think>\n\n"+callText, "<think>\nRead it.\n</think>\n\nIt is 391."))
			b.oneLoop(b.client([]string{filepath.Join(folder, "bin", "python"), filepath.Join(scripts, c[0]), c[1]}))
		})
	}
}

// pi works in a shell of its own, in each of its three dialects, always streamed.
func TestClientsPi(t *testing.T) {
	pi := filepath.Join(clients(t), "node_modules", ".bin", "pi")
	if _, err := os.Stat(pi); err != nil {
		t.Skip("pi is not installed: npm is missing")
	}
	for api, base := range map[string]string{"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""} {
		t.Run(api, func(t *testing.T) {
			b := newBench(t, byRound(`I compute. <tool_call>{"name": "bash", "arguments": {"command": "echo $((17*23))"}}</tool_call>`, "FINAL It is 391."))
			home := t.TempDir()
			models := fmt.Sprintf(`{"providers":{"gw":{"baseUrl":%q,"api":%q,"apiKey":"GW_KEY","models":[{"id":"policy","contextWindow":32768,"maxTokens":4096,"reasoning":false}]}}}`, b.url+base, api)
			require.NoError(t, os.WriteFile(filepath.Join(home, "models.json"), []byte(models), 0o600))
			said := b.client([]string{pi, "-p", "--provider", "gw", "--model", "policy", "--no-session", "What is 17*23? Use bash."},
				"PI_CODING_AGENT_DIR="+home, "PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0", "GW_KEY="+testKey, "TERM=dumb")
			require.Contains(t, said, "It is 391.")
			require.Equal(t, gateway.Outcome{Calls: 2}, b.session.Finish())
			b.check()
			require.Len(t, b.told.Samples, 1)
		})
	}
}

// A client that is answered late, or with an error first, asks again as it does; what was sampled is there once.
func TestClientsThatAskAgain(t *testing.T) {
	folder := clients(t)
	scripts, err := filepath.Abs("testdata/clients")
	require.NoError(t, err)
	for _, c := range [][2]string{{"openai_loop.py", "chatstream"}, {"anthropic_loop.py", "stream"}, {"openai_loop.py", "responses"}} {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) {
			failed := false
			say := byRound(callText, "It is 391.")
			b := newBench(t, func(r engines.Request) (engines.Completion, error) {
				if !failed {
					failed = true
					return engines.Completion{}, fmt.Errorf("the engine is restarted")
				}
				time.Sleep(300 * time.Millisecond) // thirty keep-alives
				return say(r)
			})
			said := b.client([]string{filepath.Join(folder, "bin", "python"), filepath.Join(scripts, c[0]), c[1]})
			require.Contains(t, said, "FINAL It is 391.")
			b.session.Finish()
			b.sampled = b.sampled[1:] // the failure
			b.check()
			require.Len(t, b.told.Samples, 1)
		})
	}
}

// The tokens of a thought are told as reasoning: those up to the end of its tag, all where it does not end.
func TestTokensOfAThought(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(string) (engines.Completion, error)
		text string
		want int
	}{
		"a thought":  {rollouttest.Say, "<think>\nhm\n</think>\n\nso", len("<think>\nhm\n</think>")},
		"cut in it":  {rollouttest.SayCut, "<think>\nhm", len("<think>\nhm")},
		"no thought": {rollouttest.Say, "so", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(engines.Request) (engines.Completion, error) { return c.say(c.text) })
			_, text := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
			require.Contains(t, text, fmt.Sprintf(`"completion_tokens_details":{"reasoning_tokens":%d}`, c.want))
			_, text = b.post("/v1/responses", `{"input":"x","stream":true}`)
			require.Contains(t, text, fmt.Sprintf(`"output_tokens_details":{"reasoning_tokens":%d}`, c.want))
		})
	}
}
