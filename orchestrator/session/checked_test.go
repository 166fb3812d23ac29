package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// What the tokenizer does not know of a conversation is told, with what the model reads. The end of a text is known, whatever else it is named.
func TestWhatIsUnknownInConversations(t *testing.T) {
	text, err := policy.LoadText("../../examples/tiny/model")
	require.NoError(t, err)
	end, ok := text.Tokenizer.ID("<|end|>")
	require.True(t, ok)
	p := &policy.Policy{Text: text, Config: &modelfile.Config{BOS: -1, EOS: []int{int(end)}}}
	learned := func(text string) []*trajectory.Trajectory {
		return []*trajectory.Trajectory{{ID: "data.jsonl:1", Samples: []*trajectory.Sample{{TokenIDs: p.Tokenizer.Encode(text)}}}}
	}
	require.Empty(t, UnknownLearned(p, learned("<|user|>1+1<|end|>")))
	require.Equal(t, `the tokenizer has no tokens for parts of data.jsonl:1: the model reads "<|user|><unk><unk><unk><|end|>"; use a model whose tokenizer knows them, or rewrite the conversations`,
		UnknownLearned(p, learned("<|user|>1é1<|end|>")))
	p.SpecialTokens = map[string]string{"unk_token": "<|end|>"}
	require.Empty(t, UnknownLearned(p, learned("<|user|>1+1<|end|>")))
}
