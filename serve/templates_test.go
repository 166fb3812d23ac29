package serve

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
