package masks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

// The text that Continue returns is what Prompt renders of the messages, and with it the next observation is the same.
func TestContinueKnowsTheNextPrompt(t *testing.T) {
	enc := words{vocab: []string{"<|im_start|>", "<|im_end|>"}, special: 2}
	tmpl := compile(t, "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(enc, tmpl, masks.Options{})
	require.NoError(t, err)
	history := []trajectory.Message{trajectory.Text("system", "Be brief."), trajectory.Text("user", "Why?")}
	_, text, err := r.Prompt(history, nil, true)
	require.NoError(t, err)
	for _, completion := range []string{"So.", " because \n", "<|im_end|>"} {
		p := masks.Reply{History: history, Completion: completion, Results: []trajectory.Message{trajectory.Text("user", "And?")}}
		want, err := r.Observation(p)
		require.NoError(t, err)
		p.Prompt = text
		got, next, err := r.Continue(p)
		require.NoError(t, err)
		require.Equal(t, want, got)
		history = p.Messages()
		_, text, err = r.Prompt(history, nil, true)
		require.NoError(t, err)
		require.Equal(t, text, next)
	}
	p := masks.Reply{History: history, Completion: "So.", Results: history[:1], Prompt: "another conversation"}
	_, _, err = r.Continue(p)
	require.ErrorIs(t, err, masks.ErrRewritten)
}
