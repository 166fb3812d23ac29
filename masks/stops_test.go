package masks_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

const endoftext = 2 // in chatml, the end of a base model

// The eos_token_id of config.json and generation_config.json end a completion beside the template's end of turn.
func TestTheModelsOwnStopsEndACompletion(t *testing.T) {
	tmpl := compile(t, jinjatest.Template(t, "Qwen-Qwen2.5-7B-Instruct"), jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(chatml, tmpl, masks.Options{StopIDs: []int32{eot, endoftext}})
	require.NoError(t, err)
	require.Equal(t, []int32{eot, endoftext}, r.StopIDs())

	// A template that writes no end of turn, and a tokenizer without eos_token: the model's list is enough.
	tmpl = compile(t, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", jinja.Options{})
	r, err = masks.NewRenderer(chatml, tmpl, masks.Options{StopIDs: []int32{endoftext}})
	require.NoError(t, err)
	require.Equal(t, []int32{endoftext}, r.StopIDs())
}

// Where the sampled stop token is not the one that the template closes the turn with, the observation closes it.
func TestAForeignStopTokenLeavesTheClosingToTheObservation(t *testing.T) {
	tmpl := compile(t, jinjatest.Template(t, "HuggingFaceTB-SmolLM2-135M-Instruct"), jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(chatml, tmpl, masks.Options{StopIDs: []int32{endoftext}})
	require.NoError(t, err)
	rest := []int32{nl, bos, 5, nl, 11, eot, nl, bos, 6, nl}
	for name, c := range map[string]struct{ sampled, want []int32 }{
		"closed by the template's token": {[]int32{10, eot}, rest},
		"ended by another stop token":    {[]int32{10, endoftext}, slices.Concat([]int32{eot}, rest)},
		"cut at a stop string":           {[]int32{10}, slices.Concat([]int32{eot}, rest)},
		"nothing but another stop token": {[]int32{endoftext}, slices.Concat([]int32{eot}, rest)},
	} {
		completion := chatml.Decode(c.sampled, true)
		p := masks.Reply{History: twoTurns, Completion: completion, Results: []trajectory.Message{trajectory.Text("user", "6")}, Sampled: c.sampled}
		got, err := r.Observation(p)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// An end of turn that the model's files do not call special closes a turn all the same.
func TestAnEndOfTurnThatIsNotSpecial(t *testing.T) {
	plain := chatml
	plain.special, plain.other = 1, 1 // of <|im_start|> and <|im_end|>
	source := jinjatest.Template(t, "HuggingFaceTB-SmolLM2-135M-Instruct")
	messages := []trajectory.Message{twoTurns[0], twoTurns[1], trajectory.Text("assistant", "It is 6"), trajectory.Text("user", "Thanks"), trajectory.Text("assistant", "Bye")}
	for name, c := range map[string]struct {
		eos  string
		stop []int32
	}{
		"eos_token":    {"<|im_end|>", nil},
		"eos_token_id": {"", []int32{eot}},
	} {
		t.Run(name, func(t *testing.T) {
			type outcome struct {
				observation []int32
				samples     []*trajectory.Sample
			}
			var got []outcome
			for _, enc := range []words{chatml, plain} {
				r, err := masks.NewRenderer(enc, compile(t, source, jinja.Options{EOSToken: c.eos}), masks.Options{StopIDs: c.stop})
				require.NoError(t, err)
				require.Equal(t, []int32{eot}, r.StopIDs())
				ids, err := r.Observation(masks.Reply{History: twoTurns, Completion: "It is 6", Sampled: []int32{12, eot}, Results: messages[3:4]})
				require.NoError(t, err)
				samples, err := r.Samples(masks.Recorded{Messages: messages, Learned: marked(5, 2, 4)})
				require.NoError(t, err)
				got = append(got, outcome{ids, samples})
			}
			require.Equal(t, []int32{nl, bos, 5, nl, 15, eot, nl, bos, 6, nl}, got[0].observation)
			require.Equal(t, got[0], got[1])
		})
	}
}

// GLM closes a turn with the next role's own mark: the other role's mark, though a stop token too, does not close it.
func TestAClosingOfAnotherRole(t *testing.T) {
	tmpl := compile(t, "{% for m in messages %}{{ {'user': '<|user|>', 'assistant': '', 'tool': '<|observation|>'}[m.role] }}{{ m.content }}{% endfor %}", jinja.Options{})
	r, err := masks.NewRenderer(marks, tmpl, masks.Options{})
	require.NoError(t, err)
	user, _ := marks.ID("<|user|>")
	observation, _ := marks.ID("<|observation|>")
	require.ElementsMatch(t, []int32{user, observation}, r.StopIDs())
	for stop, want := range map[int32]string{observation: "6", user: "<|observation|>6"} {
		p := masks.Reply{
			History: []trajectory.Message{trajectory.Text("user", "q")}, Completion: "call",
			Results: []trajectory.Message{trajectory.Text("tool", "6")}, Sampled: append(marks.Encode("call"), stop),
		}
		ids, err := r.Observation(p)
		require.NoError(t, err)
		require.Equal(t, want, marks.Decode(ids, false))
	}
}
