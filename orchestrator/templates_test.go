package orchestrator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trajectory"
)

// marked is a tokenizer of bytes with special tokens.
type marked []string

func (m marked) Encode(text string) []int32 {
	var out []int32
next:
	for len(text) > 0 {
		for i, s := range m {
			if strings.HasPrefix(text, s) {
				out, text = append(out, int32(256+i)), text[len(s):]
				continue next
			}
		}
		out, text = append(out, int32(text[0])), text[1:]
	}
	return out
}

func (m marked) ID(token string) (int32, bool) {
	for i, s := range m {
		if s == token {
			return int32(256 + i), true
		}
	}
	return 0, false
}

func (m marked) EncodeMarked(text, mark string) []int32 {
	var out []int32
	for _, part := range strings.Split(text, mark) { // "" is between all bytes, but nothing asks for that
		out = append(out, m.Encode(part)...)
	}
	return out
}

func (m marked) Specials() []string { return m }

func (marked) OtherAdded() []string { return nil }

func (m marked) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 256 {
			b.WriteByte(byte(id))
		} else if !skipSpecial {
			b.WriteString(m[id-256])
		}
	}
	return b.String()
}

func (m marked) IsSpecial(id int32) bool { return id >= 256 }

// Each format goes on under the chat template of the models that write it: what stands between a call and the next turn, as the template has
// it.
func TestFormatsUnderTheirTemplates(t *testing.T) {
	templates := jinjatest.Templates(t)
	spec := []tools.Spec{calculator.New().Spec()}
	data, err := tools.OpenAI(spec)
	require.NoError(t, err)
	var schemas []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &schemas))
	for _, c := range []struct{ format, template, eos, call, want string }{
		{"hermes", "Qwen-Qwen2.5-7B-Instruct", "<|im_end|>", `<tool_call>{"name": "calculator", "arguments": {"expression": "1"}}</tool_call>`, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n<|im_start|>assistant\n"},
		{"qwen3_coder", "Qwen3-Coder", "<|im_end|>", "<tool_call>\n<function=calculator>\n<parameter=expression>\n1\n</parameter>\n</function>\n</tool_call>", "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<|im_end|>\n<|im_start|>assistant\n"},
		{"llama3_json", "meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", `{"name": "calculator", "parameters": {"expression": "1"}}`, "<|start_header_id|>ipython<|end_header_id|>\n\n\"1\"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"mistral", "mistralai-Mistral-Nemo-Instruct-2407", "</s>", `[TOOL_CALLS][{"name": "calculator", "arguments": {"expression": "1"}}]`, "[INST]1[/INST]"},
	} {
		t.Run(c.format, func(t *testing.T) {
			enc := marked{c.eos, "<|im_start|>", "[TOOL_CALLS]", "[INST]", "[/INST]"}
			tmpl, err := jinja.Compile(templates[c.template], jinja.Options{EOSToken: c.eos, BOSToken: ""})
			require.NoError(t, err)
			renderer, err := masks.NewRenderer(enc, tmpl, masks.Options{})
			require.NoError(t, err)
			require.False(t, renderer.ToolsInSystemPrompt())
			format, err := agents.NewFormat(c.format, spec, agents.FormatOptions{})
			require.NoError(t, err)
			history := []trajectory.Message{trajectory.Text("user", "1?")}
			_, text, err := renderer.Prompt(history, schemas, true)
			require.NoError(t, err)
			require.Contains(t, text, "calculator")
			ids := append(enc.Encode(c.call), 256)
			completion := masks.DecodeKeeping(enc, ids[:len(ids)-1], masks.Kept(enc, agents.MarksOf(format)))
			parsed, err := format.Parse(t.Context(), completion)
			require.NoError(t, err)
			require.Len(t, parsed.Calls, 1)
			results, err := format.Observe(t.Context(), []trajectory.ToolResult{{Call: parsed.Calls[0], Observation: "1"}})
			require.NoError(t, err)
			reply := masks.Reply{History: history, Tools: schemas, Completion: completion, Results: results, Sampled: renderer.StopIDs()[:1]}
			between, _, err := renderer.Continue(reply)
			if c.format == "mistral" { // it describes the tools before the last message alone: each turn begins a sample, unless the prompt describes them
				require.ErrorIs(t, err, masks.ErrRewritten)
				reply.Tools = nil
				between, _, err = renderer.Continue(reply)
			}
			require.NoError(t, err)
			require.Equal(t, c.want, enc.Decode(between, false))
		})
	}
}

// Which real templates open a thought behind their generation prompt is read from what they write.
func TestRealTemplatesThatOpenAThought(t *testing.T) {
	templates := jinjatest.Templates(t)
	for name, opens := range map[string]bool{
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": true, "Qwen3.5-4B": true, "GLM-4.7-Flash": true, "NVIDIA-Nemotron-Nano-v2": true,
		"Qwen-Qwen3-0.6B": false, "Qwen-Qwen2.5-7B-Instruct": false, "HuggingFaceTB-SmolLM2-135M-Instruct": false,
	} {
		tmpl, err := jinja.Compile(templates[name], jinja.Options{EOSToken: "</s>", BOSToken: "<s>"})
		require.NoError(t, err)
		renderer, err := masks.NewRenderer(marked{"</s>"}, tmpl, masks.Options{})
		require.NoError(t, err)
		for _, question := range []string{"1?", "What does <think> mean?", "<think>"} {
			_, text, err := renderer.Prompt([]trajectory.Message{trajectory.Text("user", question)}, nil, true)
			require.NoError(t, err)
			require.Equal(t, opens, agents.OpensThought(text), "%s %q", name, text)
		}
	}
}

// Tokenizers of thinking models may call <think> and </think> special. A thought is seen to end all the same, its drafts are no calls,
// and a template that leaves out the thoughts of earlier turns finds them.
func TestThoughtsInSpecialTokens(t *testing.T) {
	enc := marked{"</s>", "<think>", "</think>"}
	spec := []tools.Spec{calculator.New().Spec()}
	format, err := agents.NewFormat("hermes", spec, agents.FormatOptions{})
	require.NoError(t, err)
	kept := masks.Kept(enc, agents.MarksOf(format))
	const call, draft = `<tool_call>{"name": "calculator", "arguments": {"expression": "1"}}</tool_call>`, `<tool_call>{"name": "calculator", "arguments": {"expression": "2"}}</tool_call>`
	for prompt, said := range map[string]string{"q<think>\n": draft + "</think>" + call, "q": "<think>" + draft + "</think>" + call} {
		completion := masks.DecodeKeeping(enc, enc.Encode(said), kept)
		parsed, err := agents.ParseBehind(t.Context(), format, prompt, completion)
		require.NoError(t, err)
		require.Len(t, parsed.Calls, 1, prompt)
		require.JSONEq(t, `{"expression": "1"}`, string(parsed.Calls[0].Arguments))
	}
	const source = "{% for m in messages %}{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}</s>{% endfor %}"
	tmpl, err := jinja.Compile(source, jinja.Options{EOSToken: "</s>"})
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(enc, tmpl, masks.Options{Marks: agents.MarksOf(format)})
	require.NoError(t, err)
	_, text, err := renderer.Prompt([]trajectory.Message{trajectory.Text("user", "</s>"), trajectory.Text("assistant", "<think>hm</think>5"), trajectory.Text("user", "u")}, nil, true)
	require.NoError(t, err)
	require.Equal(t, "</s></s>5</s>u</s>", text)
}
