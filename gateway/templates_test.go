package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/tools"
)

// under has a gateway render a template, for a policy that writes Mistral's calls.
func under(t *testing.T, template string) func(*gateway.Options, *gateway.SessionOptions) {
	t.Helper()
	compiled, err := jinja.Compile(template, jinja.Options{EOSToken: "<|im_end|>"})
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(rollouttest.Letters{}, compiled, masks.Options{Now: time.Unix(1_700_000_000, 0).UTC()})
	require.NoError(t, err)
	return func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Renderer = renderer
		o.Format = func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("mistral", specs, agents.FormatOptions{})
		}
	}
}

const mistralCall = `[TOOL_CALLS][{"name": "calculator", "arguments": { "b" :23 ,"a" :17}}]`

// Mistral's templates take ids of nine letters and digits alone, and between two messages of a user one text of the assistant beside any number of calls.
// A loop of calls is one sample under them, two where the template rewrites the prompt. It goes on after a kill, and an agent that begins anew gets the
// recorded replies.
func TestAToolLoopUnderMistralsTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		system   bool
		samples  int
	}{
		"Nemo":                       {"mistralai-Mistral-Nemo-Instruct-2407", false, 1},
		"Nemo with a system message": {"mistralai-Mistral-Nemo-Instruct-2407", true, 2}, // it writes that into a last user message alone
		"Small":                      {"Mistral-Small-3.2-24B-Instruct-2506", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			say := []string{mistralCall, mistralCall, "I look." + mistralCall, mistralCall, "It is 391."}
			set := under(t, jinjatest.Template(t, c.template))
			ask := func(b *bench, messages []map[string]any) []map[string]any {
				m := b.chat(messages, "tools", calculator)
				messages = append(messages, m)
				calls, _ := m["tool_calls"].([]any)
				for _, call := range calls {
					id := call.(map[string]any)["id"].(string)
					require.Regexp(t, "^[a-zA-Z0-9]{9}$", id)
					messages = append(messages, tool(id, "391"))
				}
				return messages
			}
			var begin []map[string]any
			if c.system {
				begin = append(begin, map[string]any{"role": "system", "content": "You compute."})
			}
			begin = append(begin, user("17*23?"))
			whole := newBench(t, byRound(say...), set)
			messages := begin
			for range say {
				messages = ask(whole, messages)
			}
			require.Equal(t, "It is 391.", messages[len(messages)-1]["content"])
			require.Equal(t, gateway.Outcome{Calls: len(say)}, whole.session.Finish())
			whole.check()
			require.Len(t, whole.told.Samples, c.samples)
			last := whole.told.Samples[c.samples-1].TokenIDs
			require.Equal(t, 5-c.samples, strings.Count(rollouttest.Letters{}.Decode(last, false), mistralCall+"<|im_end|>[TOOL_RESULTS]"), "calls as they were sampled")

			first := newBench(t, byRound(say...), set)
			killed := begin
			for range 3 {
				killed = ask(first, killed)
			}
			second := newBench(t, byRound(say[3:]...), set, func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
			require.Len(t, second.told.Turns, 3)
			for range 2 {
				killed = ask(second, killed)
			}
			require.Equal(t, messages, killed)
			require.Len(t, second.told.Samples, c.samples)
			require.Equal(t, last, second.told.Samples[c.samples-1].TokenIDs)

			again := newBench(t, byRound("not sampled"), set, func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = whole.told })
			anew := begin
			for range say {
				anew = ask(again, anew)
			}
			require.Equal(t, messages, anew)
			require.Empty(t, again.sampled)
		})
	}
}

// A template that does not take what was sampled as text renders the conversation as it was sent: a sample begins, and nothing that was written anew is
// trained. What it refuses so too is the client's fault, in the template's words.
func TestATemplateThatRefusesWhatWasSampled(t *testing.T) {
	const template = `{% for m in messages %}{% if m.role == "assistant" and "[TOOL_CALLS]" in m.content %}{{ raise_exception("calls are no text") }}{% endif %}` +
		`{% if "wrong" in m.content %}{{ raise_exception("nothing is wrong") }}{% endif %}` +
		`<|im_start|>{{ m.role }}{{ "\n" }}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}<|im_end|>{% endfor %}` +
		`{% if add_generation_prompt %}<|im_start|>assistant{{ "\n" }}{% endif %}`
	b := newBench(t, byRound(mistralCall, "It is 391."), under(t, template))
	messages := []map[string]any{user("17*23?")}
	m := b.chat(messages, "tools", calculator)
	messages = append(messages, m, tool(m["tool_calls"].([]any)[0].(map[string]any)["id"].(string), "391"))
	require.Equal(t, "It is 391.", b.chat(messages, "tools", calculator)["content"])
	b.check()
	require.Len(t, b.told.Samples, 2)
	require.True(t, b.told.Turns[1].Incoming.Whole)
	require.Equal(t, 0, b.told.Turns[1].Incoming.After)
	require.Contains(t, rollouttest.Letters{}.Decode(b.told.Samples[1].TokenIDs[:b.told.Turns[1].CompletionStart], false),
		"<|im_start|>user\n17*23?<|im_end|><|im_start|>assistant\ncalculator<|im_end|><|im_start|>tool\n391<|im_end|><|im_start|>assistant\n")

	body, err := json.Marshal(map[string]any{"messages": append(messages, user("wrong")), "tools": calculator})
	require.NoError(t, err)
	status, text := b.post("/v1/chat/completions", string(body))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "nothing is wrong")
	require.Contains(t, text, `"param":"messages"`)
	status, text = b.post("/v1/responses", `{"input":"wrong"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, `"param":"input"`)
}

// Codex sends its first turn as messages of one role behind each other, and Claude Code puts system messages between. A template that refuses that has them
// combined: the prompts go on after the sampled ids, also after a kill.
func TestTurnsThatATemplateWantsCombined(t *testing.T) {
	set := under(t, jinjatest.Template(t, "mistralai-Mistral-Nemo-Instruct-2407"))
	system := func(text string) map[string]any { return map[string]any{"role": "system", "content": text} }
	say := []string{mistralCall, "It is 391.", "Yes."}
	begin := []map[string]any{user("You see files."), user("17*23?"), system("Be brief.")}
	ask := func(b *bench, messages []map[string]any) []map[string]any {
		m := b.chat(messages, "tools", calculator)
		messages = append(messages, m)
		if calls, _ := m["tool_calls"].([]any); len(calls) > 0 {
			return append(messages, tool(calls[0].(map[string]any)["id"].(string), "391"), system("Two turns are left."))
		}
		return append(messages, user("Sure?"), user("Say yes."))
	}
	whole := newBench(t, byRound(say...), set)
	messages := begin
	for range say {
		messages = ask(whole, messages)
	}
	whole.check()
	require.Len(t, whole.told.Samples, 2) // the template writes the tools into the last message of the user
	text := rollouttest.Letters{}.Decode(whole.told.Samples[0].TokenIDs, false)
	require.Contains(t, text, "[INST]You see files.\n17*23?\nBe brief.[/INST]"+mistralCall)
	require.Contains(t, text, "391\nTwo turns are left.")
	text = rollouttest.Letters{}.Decode(whole.told.Samples[1].TokenIDs, false)
	require.Contains(t, text, "[INST]Sure?\nSay yes.[/INST]Yes.")

	first := newBench(t, byRound(say...), set)
	killed := ask(first, ask(first, begin))
	second := newBench(t, byRound(say[2:]...), set, func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	require.Len(t, second.told.Turns, 2)
	require.Equal(t, messages, ask(second, killed))
	require.Len(t, second.told.Samples, 2)
	for i, sample := range whole.told.Samples {
		require.Equal(t, sample.TokenIDs, second.told.Samples[i].TokenIDs)
	}
}
