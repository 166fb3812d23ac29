package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// Whoever looks at what the first conversation teaches is told that the model does not see all of it.
func TestALookTellsWhatTheTokenizerDoesNotKnow(t *testing.T) {
	text, err := policy.LoadText("../examples/tiny/model")
	require.NoError(t, err)
	ids := text.Tokenizer.Encode("<|user|>1é1")
	x := Examination{Text: &policy.Policy{Text: text, Config: &modelfile.Config{BOS: -1}}, Learn: &trajectory.Sample{TokenIDs: ids, ResponseMask: make([]bool, len(ids))}}
	require.Contains(t, x.Describe(nil), "   0 | <|user|><unk><unk><unk>\nnote: the tokenizer has no tokens for parts of this conversation: ")
}
