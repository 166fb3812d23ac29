package masks_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

func marked(n int, learned ...int) []bool {
	out := make([]bool, n)
	for _, i := range learned {
		out[i] = true
	}
	return out
}

// A recorded conversation has the ids and the mask of the rollouts whose ids literalCases write down by hand.
func TestARecordedConversationIsTheRollout(t *testing.T) {
	r := smol(t)
	say := trajectory.Text
	for name, c := range map[string]struct {
		messages []trajectory.Message
		learned  []int
		stops    []string
		same     string // name among literalCases
	}{
		"sampled ends": {
			[]trajectory.Message{say("system", "Be brief."), say("user", "2*3?"), say("assistant", "CALL 2*3"), say("user", "6"), say("assistant", "It is 6.")},
			[]int{2, 4},
			nil, "call, result, answer; both turns end in a sampled end-of-turn token",
		},
		"stop strings": {
			[]trajectory.Message{say("system", "Be brief."), say("user", "2*3?"), say("assistant", "CALL 2*3"), say("tool", "6"), say("assistant", "It is 6")},
			[]int{2, 4},
			[]string{"*3", "is 6"},
			"the first turn is cut at a stop string: its end-of-turn token is an observation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := r.Samples(masks.Recorded{Messages: c.messages, Learned: marked(len(c.messages), c.learned...), Stops: c.stops})
			require.NoError(t, err)
			require.Len(t, samples, 1)
			require.NoError(t, samples[0].Check())
			for _, want := range literalCases {
				if want.name != c.same {
					continue
				}
				require.Equal(t, want.ids, samples[0].TokenIDs)
				for i, on := range samples[0].ResponseMask {
					require.Equal(t, want.response[i] == 1, on, "token %d", i)
				}
				return
			}
			t.Fatal("there is no such case")
		})
	}
}

func TestMessagesThatAreNotLearnedAreObservations(t *testing.T) {
	r := smol(t)
	say := trajectory.Text
	samples, err := r.Samples(masks.Recorded{
		Messages: []trajectory.Message{say("user", "2*3?"), say("assistant", "6"), say("user", "2*3?"), say("assistant", "It is 6"), say("user", "Thanks"), say("assistant", "wrong"), say("user", "Bye"), say("assistant", "Bye"), say("user", "Bye")},
		Learned:  marked(9, 3, 7),
	})
	require.NoError(t, err)
	require.Len(t, samples, 1)
	s := samples[0]
	var learned [][]int32
	for i, on := range s.ResponseMask {
		switch {
		case on && !s.ResponseMask[i-1]:
			learned = append(learned, []int32{s.TokenIDs[i]})
		case on:
			learned[len(learned)-1] = append(learned[len(learned)-1], s.TokenIDs[i])
		}
	}
	require.Equal(t, [][]int32{{12, eot}, {16, eot}}, learned)
	require.Equal(t, int32(eot), s.TokenIDs[s.Len()-1], "what follows the last learned message is left out")
	require.Contains(t, s.TokenIDs, int32(17), "a message that is not learned is read")
	for i, on := range s.ResponseMask {
		require.Zero(t, s.SamplingLogprobs[i])
		if on {
			require.Zero(t, s.PolicyVersion[i])
		}
	}
}

func TestRecordedToolCallsAreWrittenByTheTemplate(t *testing.T) {
	call := trajectory.Message{Role: "assistant", ToolCalls: []trajectory.ToolCall{{Name: "add", Arguments: json.RawMessage(`{"a": 1}`)}}}
	messages := []trajectory.Message{trajectory.Text("user", "1+1?"), call, trajectory.Text("tool", "2"), trajectory.Text("assistant", "two")}
	c := masks.Recorded{Messages: messages, Learned: marked(4, 1, 3), Tools: []json.RawMessage{json.RawMessage(`{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}}`)}}
	renderer := func(name string) *masks.Renderer {
		tmpl := compile(t, jinjatest.Template(t, name), jinja.Options{BOSToken: "<s>", EOSToken: "</s>"})
		r, err := masks.NewRenderer(marks, tmpl, masks.Options{Now: time.Unix(1_700_000_000, 0).UTC()})
		require.NoError(t, err)
		return r
	}
	samples, err := renderer("Qwen-Qwen2.5-7B-Instruct").Samples(c)
	require.NoError(t, err)
	require.Len(t, samples, 1)
	var learned []int32
	for i, on := range samples[0].ResponseMask {
		if on {
			learned = append(learned, samples[0].TokenIDs[i])
		}
	}
	require.Equal(t, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>two<|im_end|>", marks.Decode(learned, false))
	full, text, err := renderer("Qwen-Qwen2.5-7B-Instruct").Prompt(messages, c.Tools, false)
	require.NoError(t, err)
	require.Equal(t, text, marks.Decode(samples[0].TokenIDs, false)+"\n", "nothing was added or lost")
	require.Equal(t, full[:len(full)-1], samples[0].TokenIDs)

	_, err = renderer("HuggingFaceTB-SmolLM2-135M-Instruct").Samples(c)
	require.ErrorContains(t, err, "masks: conversation: message 1: the template does not write the call of add; write it into the content as the agent's format has it")
}

// functionary ends a message with calls by another token than one without. Where that is a stop token of the model, a rollout ends with it, and the
// template's end of turn behind it is of the observation.
func TestACallThatEndsWithAnotherStopTokenIsTheRollout(t *testing.T) {
	llama := words{vocab: []string{"<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>"}, special: 4}
	const eot, eom = 0, 1
	tmpl := compile(t, jinjatest.Template(t, "meetkai-functionary-medium-v3.1"), jinja.Options{BOSToken: "<s>", EOSToken: "<|eot_id|>"})
	r, err := masks.NewRenderer(llama, tmpl, masks.Options{StopIDs: []int32{eot, eom}})
	require.NoError(t, err)
	tools := []json.RawMessage{json.RawMessage(`{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}}`)}
	call := trajectory.Message{Role: "assistant", ToolCalls: []trajectory.ToolCall{{Name: "add", Arguments: json.RawMessage(`{"a": 1}`)}}}
	messages := []trajectory.Message{trajectory.Text("user", "1+1?"), call, trajectory.Text("tool", "2"), trajectory.Text("assistant", "two")}
	samples, err := r.Samples(masks.Recorded{Messages: messages, Learned: marked(4, 1, 3), Tools: tools})
	require.NoError(t, err)
	require.Len(t, samples, 1)

	const written = `<function=add>{"a": 1}</function>`
	var want trajectory.Sample
	response := func(ids []int32) []int32 {
		require.NoError(t, want.AppendResponse(ids, make([]float32, len(ids)), make([]int32, len(ids))))
		return ids
	}
	ids, _, err := r.Prompt(messages[:1], tools, true)
	require.NoError(t, err)
	want.AppendObservation(ids)
	sampled := response(append(llama.Encode(written), eom))
	ids, err = r.Observation(masks.Reply{History: messages[:1], Tools: tools, Completion: written, Sampled: sampled, Results: messages[2:3]})
	require.NoError(t, err)
	want.AppendObservation(ids)
	response(append(llama.Encode("two"), eot))
	text := func(s trajectory.Sample) (learned string) {
		for i, on := range s.ResponseMask {
			if on {
				learned += llama.Decode(s.TokenIDs[i:i+1], false)
			}
		}
		return learned
	}
	require.Equal(t, written+"<|eom_id|>two<|eot_id|>", text(*samples[0]))
	require.Equal(t, want.TokenIDs, samples[0].TokenIDs)
	require.Equal(t, want.ResponseMask, samples[0].ResponseMask)
}

// learnedOf is the text of the learned tokens.
func learnedOf(samples []*trajectory.Sample) string {
	var ids []int32
	for _, s := range samples {
		for i, on := range s.ResponseMask {
			if on {
				ids = append(ids, s.TokenIDs[i])
			}
		}
	}
	return marks.Decode(ids, false)
}

// Behind a generation prompt that opens a thought a message is learned as the model would have sampled it: with the end of the thought.
func TestAMessageEndsTheThoughtThatThePromptOpened(t *testing.T) {
	say := trajectory.Text
	reasoned := say("assistant", "2")
	reasoned.Reasoning = "hm"
	call := trajectory.Message{Role: "assistant", ToolCalls: []trajectory.ToolCall{{Name: "add", Arguments: json.RawMessage(`{"a": 1}`)}}}
	const lines, qwen = "\n</think>\n\n", "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
	for name, c := range map[string]struct {
		end, close, reason string // of the thought that is empty, and of one that the message has
		call               string // "": it is refused
	}{
		"Qwen3.5-4B":       {"<|im_end|>", lines, "hm" + lines, lines + qwen},
		"StepFun3.5-Flash": {"<|im_end|>", "\n</think>\n", "hm\n</think>\n", "\n</think>\n" + qwen},
		// Their templates write a message without a thought in another way than their generation prompts begin.
		"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {"<|im_end|>", lines, "hm\n</think>\n", ""},
		"GLM-4.7-Flash":                       {"", "</think>", "hm</think>", ""},
		// Theirs write no thoughts, whatever a message has.
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"", lines, "hm" + lines, ""},
		"llama-cpp-deepseek-r1":                    {"", lines, "hm" + lines, ""},
		"NVIDIA-Nemotron-Nano-v2":                  {"", lines, "hm" + lines, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := masks.NewRenderer(marks, compile(t, jinjatest.Template(t, name), jinja.Options{BOSToken: "<s>", EOSToken: "</s>"}), masks.Options{AssistantMarkup: true})
			require.NoError(t, err)
			_, prompt, err := r.Prompt([]trajectory.Message{say("user", "1+1?")}, nil, true)
			require.NoError(t, err)
			learned := func(m trajectory.Message) (string, error) {
				samples, err := r.Samples(masks.Recorded{Messages: []trajectory.Message{say("user", "1+1?"), m}, Learned: marked(2, 1)})
				if err != nil {
					return "", err
				}
				return strings.TrimSuffix(strings.TrimSuffix(learnedOf(samples), c.end), "<|user|>"), nil
			}
			for _, m := range []struct {
				message trajectory.Message
				want    string
			}{
				{say("assistant", "2"), c.close + "2"},
				{reasoned, c.reason + "2"},
				{say("assistant", "hm</think>2"), "hm</think>2"},
				{say("assistant", prompt[strings.LastIndex(prompt, "<think>"):]+"x\n</think>\n\n2"), "x\n</think>\n\n2"},
				{say("assistant", " <think>x"), "x"},
			} {
				got, err := learned(m.message)
				require.NoError(t, err)
				require.Equal(t, m.want, got)
			}
			got, err := learned(call)
			if c.call == "" {
				require.ErrorContains(t, err, "which does not follow the generation prompt; write them into the content")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.call, got)
		})
	}

	const within = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '<think>add' if m.tool_calls }}</s>{% endfor %}{% if add_generation_prompt %}assistant: <think>{% endif %}"
	r, err := masks.NewRenderer(marks, compile(t, within, jinja.Options{EOSToken: "</s>"}), masks.Options{})
	require.NoError(t, err)
	_, err = r.Samples(masks.Recorded{Messages: []trajectory.Message{say("user", "1+1?"), call}, Learned: marked(2, 1)})
	require.EqualError(t, err, "masks: conversation: message 1: the template writes its tool calls into the thought that the generation prompt opened; write them into the content")
}

// What a template writes behind the content is not the message, also where it is no end of turn that the tokenizer knows.
func TestAMessageBehindAThoughtEndsWithItsContent(t *testing.T) {
	say := trajectory.Text
	reasoned := func(content string) trajectory.Message {
		m := say("assistant", content)
		m.Reasoning = "hm"
		return m
	}
	for name, c := range map[string]struct{ close, reason string }{
		"poolside-Laguna-S-2.1": {"</think>", "hm</think>"},
		"MiniMax-M2":            {"\n</think>\n\n", "hm\n</think>\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := masks.NewRenderer(marks, compile(t, jinjatest.Template(t, name), jinja.Options{BOSToken: "<s>", EOSToken: "</s>"}), masks.Options{AssistantMarkup: true})
			require.NoError(t, err)
			for _, m := range []struct {
				message trajectory.Message
				want    string
			}{
				{say("assistant", "2"), c.close + "2"},
				{say("assistant", "2 \n"), c.close + "2 \n"},
				{say("assistant", ""), c.close},
				{reasoned("2"), c.reason + "2"},
			} {
				samples, err := r.Samples(masks.Recorded{Messages: []trajectory.Message{say("user", "1+1?"), m.message}, Learned: marked(2, 1)})
				require.NoError(t, err)
				require.Equal(t, m.want, learnedOf(samples))
			}
		})
	}
}

// The turns of a conversation go on behind the ends of thoughts as behind what the messages say.
func TestAConversationOfOpenThoughts(t *testing.T) {
	r, err := masks.NewRenderer(marks, compile(t, jinjatest.Template(t, "Qwen3.5-4B"), jinja.Options{EOSToken: "<|im_end|>"}), masks.Options{AssistantMarkup: true})
	require.NoError(t, err)
	say := trajectory.Text
	messages := []trajectory.Message{say("user", "1+1?"), say("assistant", "CALL"), say("tool", "2"), say("assistant", "two")}
	samples, err := r.Samples(masks.Recorded{Messages: messages, Learned: marked(4, 1, 3)})
	require.NoError(t, err)
	require.Len(t, samples, 1)
	require.Equal(t, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nCALL<|im_end|>\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n"+
		"<|im_start|>assistant\n<think>\n\n</think>\n\ntwo<|im_end|>", marks.Decode(samples[0].TokenIDs, false))
	require.Equal(t, "\n</think>\n\nCALL<|im_end|>\n</think>\n\ntwo<|im_end|>", learnedOf(samples))
}

// Qwen3 drops the thinking of earlier turns when a user speaks again: what was said under the old history is learned under
// the old history, and the next answer in a sample of its own.
func TestARewrittenHistoryBeginsANewSample(t *testing.T) {
	tmpl := compile(t, jinjatest.Template(t, "Qwen-Qwen3-0.6B"), jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(marks, tmpl, masks.Options{Now: time.Unix(1_700_000_000, 0).UTC()})
	require.NoError(t, err)
	say := trajectory.Text
	messages := []trajectory.Message{say("user", "1+1?"), say("assistant", "<think>\none\n</think>\n\n2"), say("user", "sure?"), say("assistant", "<think>\ntwo\n</think>\n\nyes")}
	samples, err := r.Samples(masks.Recorded{Messages: messages, Learned: marked(4, 1, 3)})
	require.NoError(t, err)
	require.Len(t, samples, 2)
	require.Equal(t, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\none\n</think>\n\n2<|im_end|>", marks.Decode(samples[0].TokenIDs, false))
	require.Equal(t, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\n<think>\ntwo\n</think>\n\nyes<|im_end|>", marks.Decode(samples[1].TokenIDs, false))
	learned := func(s *trajectory.Sample) (n int) {
		for _, on := range s.ResponseMask {
			if on {
				n++
			}
		}
		return n
	}
	require.Equal(t, len(marks.Encode("<think>\none\n</think>\n\n2<|im_end|>")), learned(samples[0]))
	require.Equal(t, len(marks.Encode("<think>\ntwo\n</think>\n\nyes<|im_end|>")), learned(samples[1]))
}

func TestConversationsThatCannotBeLearned(t *testing.T) {
	r := smol(t)
	say := trajectory.Text
	for name, c := range map[string]struct {
		messages []trajectory.Message
		learned  []bool
		want     string
	}{
		"nothing to learn":   {[]trajectory.Message{say("user", "2*3?"), say("assistant", "6")}, marked(2), "masks: conversation: no message of the assistant is to be learned"},
		"a user's message":   {[]trajectory.Message{say("user", "2*3?"), say("user", "6")}, marked(2, 1), `masks: conversation: message 1: its role is "user"; only what the assistant said can be learned`},
		"it begins":          {[]trajectory.Message{say("assistant", "6")}, marked(1, 0), "masks: conversation: it begins with a message that is to be learned; nothing asks for it"},
		"two in a row":       {[]trajectory.Message{say("user", "2*3?"), say("assistant", "6"), say("assistant", "It is 6")}, marked(3, 1, 2), "masks: conversation: message 1: another message of the assistant follows it; join them, or give one weight 0"},
		"marks do not match": {[]trajectory.Message{say("user", "2*3?"), say("assistant", "6")}, marked(1, 0), "masks: conversation: 2 messages and 1 marks"},
		"an image":           {[]trajectory.Message{say("user", "2*3?"), {Role: "assistant", Content: []trajectory.Part{{Type: "image", Image: "x"}}}}, marked(2, 1), `masks: conversation: message 1: trajectory: assistant message: part 0 is "image", only text is supported here`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Samples(masks.Recorded{Messages: c.messages, Learned: c.learned})
			require.EqualError(t, err, c.want)
		})
	}
	samples, err := r.Samples(masks.Recorded{Messages: []trajectory.Message{say("user", "2*3?"), say("assistant", "")}, Learned: marked(2, 1)})
	require.NoError(t, err)
	require.Equal(t, 1, samples[0].ResponseTokens(), "an empty answer is its end of turn")
	samples, err = r.Samples(masks.Recorded{Prefix: twoTurns, Messages: []trajectory.Message{say("assistant", "6")}, Learned: marked(1, 0)})
	require.NoError(t, err)
	require.Equal(t, []int32{bos, 4, nl, 8, eot, nl, bos, 5, nl, 9, eot, nl, bos, 6, nl, 11, eot}, samples[0].TokenIDs, "what stands before it asks for it")
}
