package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/trajectory"
)

// templated renders a chat template that models come with.
type templated struct {
	lines
	template *jinja.Template
}

func newTemplated(t *testing.T, name string) templated {
	t.Helper()
	compiled, err := jinja.Compile(jinjatest.Template(t, name), jinja.Options{EOSToken: "<|end|>"})
	require.NoError(t, err)
	return templated{template: compiled}
}

func (r templated) Prompt(messages []trajectory.Message, tools []json.RawMessage, addPrompt bool) ([]int32, string, error) {
	text, err := r.template.Render(jinja.Input{Messages: messages, Tools: tools, AddGenerationPrompt: addPrompt, Now: time.Unix(1_700_000_000, 0).UTC()})
	return letters{}.Encode(text), text, err
}

// Mistral's templates take ids of nine letters and digits alone: a loop of calls goes through in every dialect, whole and streamed.
func TestAToolLoopUnderMistralsTemplates(t *testing.T) {
	const call = `[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]`
	for _, template := range []string{"mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506"} {
		renderer := newTemplated(t, template)
		for path, c := range map[string]struct {
			asks string         // with a place for what follows the question
			turn string         // a call and its result, by the call's id
			id   *regexp.Regexp // of a call, in a reply
		}{
			"/v1/chat/completions": {
				`{"messages":[{"role":"user","content":"Rome?"}%s],` + weather,
				`,{"role":"assistant","content":null,"tool_calls":[{"id":%[1]q,"type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":%[1]q,"content":"sunny"}`,
				regexp.MustCompile(`"id":"([^"]*)","type":"function"`),
			},
			"/v1/responses": {
				`{"input":[{"role":"user","content":"Rome?"}%s],` + responsesTool,
				`,{"type":"function_call","call_id":%[1]q,"name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":%[1]q,"output":"sunny"}`,
				regexp.MustCompile(`"call_id":"([^"]*)"`),
			},
			"/v1/messages": {
				`{"max_tokens":500,"messages":[{"role":"user","content":"Rome?"}%s],` + messagesTool,
				`,{"role":"assistant","content":[{"type":"tool_use","id":%[1]q,"name":"weather","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":%[1]q,"content":"sunny"}]}`,
				regexp.MustCompile(`"id":"([^"]*)","input":`),
			},
		} {
			for _, stream := range []string{"false", "true"} {
				t.Run(template+path+" stream "+stream, func(t *testing.T) {
					h := start(t, scripted.Options{Respond: says(call), MaxModelLen: 8000}, func(o *Options) { o.ToolParser, o.Renderer = "mistral", renderer })
					turns := ""
					for range 3 {
						status, out := h.do("POST", path, fmt.Sprintf(c.asks, turns)+`,"stream":`+stream+"}")
						require.Equal(t, 200, status, out)
						found := c.id.FindStringSubmatch(out)
						require.NotNil(t, found, out)
						require.Regexp(t, "^[a-zA-Z0-9]{9}$", found[1])
						require.NotContains(t, turns, found[1])
						turns += fmt.Sprintf(c.turn, found[1])
					}
				})
			}
		}
	}
}

// Mistral's and Gemma's templates want user and assistant in turn behind one system message. What Codex and Claude Code send is combined for them.
func TestAgentsUnderTemplatesThatWantTurns(t *testing.T) {
	for template, results := range map[string]bool{ // it knows results of tools
		"mistralai-Mistral-Nemo-Instruct-2407": true, "Mistral-Small-3.2-24B-Instruct-2506": true, "unsloth-mistral-Devstral-Small-2507": true, "lenml-gemma3": false,
	} {
		renderer := newTemplated(t, template)
		h := start(t, scripted.Options{Respond: says("hi"), MaxModelLen: 1 << 20}, func(o *Options) { o.ToolParser, o.Renderer = "mistral", renderer })
		for file, path := range map[string]string{"codex": "/v1/responses", "claude-code": "/v1/messages"} {
			recorded, err := os.ReadFile("../dialects/testdata/requests/" + file + ".jsonl")
			require.NoError(t, err)
			asked := 0
			for line := range strings.Lines(string(recorded)) {
				var r struct{ Body map[string]any }
				require.NoError(t, json.Unmarshal([]byte(line), &r))
				delete(r.Body, "model")
				delete(r.Body, "stream")
				if _, ok := r.Body["tools"].(string); ok { // as before
					delete(r.Body, "tools")
				}
				body, err := json.Marshal(r.Body)
				require.NoError(t, err)
				body = regexp.MustCompile(`"(call|toolu)_\d\w*"`).ReplaceAll(body, []byte(`"abcdefghi"`)) // as this server names calls under these templates
				if strings.Contains(string(body), `"abcdefghi"`) && !results {
					continue
				}
				asked++
				status, out := h.do("POST", path, string(body))
				require.Equal(t, 200, status, "%s, request %d of %s: %s", template, asked, file, out)
			}
			require.GreaterOrEqual(t, asked, 5)
		}
	}
}

// What is combined are neighbours of one role; a system message in the middle is the user's only where the template knows none there, and what the user
// says behind a result stands in it only where it may not stand behind it.
func TestCombinedTurns(t *testing.T) {
	const (
		turns    = `{"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"e"}]}`
		middle   = `{"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"system","content":"c"}]}`
		behind   = `{"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"abcdefghi","name":"weather","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"abcdefghi","content":"sunny"},{"type":"text","text":"go on"}]}]}`
		accepted = `{"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	)
	for _, c := range []struct{ template, body, want string }{
		{"mistralai-Mistral-Nemo-Instruct-2407", turns, "[INST]a\nb[/INST]c\nd<|end|>[INST]e[/INST]"},
		{"mistralai-Mistral-Nemo-Instruct-2407", middle, "[INST]a\nb\nc[/INST]"},
		{"Mistral-Small-3.2-24B-Instruct-2506", middle, "[INST]a\nb[/INST][SYSTEM_PROMPT]c[/SYSTEM_PROMPT]"},
		{"mistralai-Mistral-Nemo-Instruct-2407", behind, `[INST]a[/INST][TOOL_CALLS][{"name": "weather", "arguments": {}, "id": "abcdefghi"}]<|end|>[TOOL_RESULTS]{"content": sunny` + "\ngo on" + `, "call_id": "abcdefghi"}[/TOOL_RESULTS]`},
		{"mistralai-Mistral-Nemo-Instruct-2407", accepted, "[INST]a[/INST]b<|end|>[INST]c[/INST]"},
		{"Qwen-Qwen3-0.6B", turns, "<|im_start|>user\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n"},
	} {
		renderer, prompts := newTemplated(t, c.template), make(chan string, 1)
		h := start(t, scripted.Options{MaxModelLen: 8000, Respond: func(r engines.Request) (engines.Completion, error) {
			prompts <- letters{}.Decode(r.Prompt, false)
			return says("hi")(r)
		}}, func(o *Options) { o.Renderer = renderer })
		status, out := h.do("POST", "/v1/messages", c.body)
		require.Equal(t, 200, status, out)
		prompt := <-prompts
		require.True(t, strings.HasSuffix(prompt, c.want), prompt)
	}
	h := start(t, scripted.Options{Respond: says("hi"), MaxModelLen: 8000}, func(o *Options) { o.Renderer = newTemplated(t, "mistralai-Mistral-Nemo-Instruct-2407") })
	status, out := h.do("POST", "/v1/messages", `{"max_tokens":5,"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"b"}]}`)
	require.Equal(t, 400, status)
	require.Contains(t, out, "conversation roles must alternate", "no form of it goes")
}
