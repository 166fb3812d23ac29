package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScratchText(t *testing.T) {
	text, vocab, err := scratchText("0123456789+= \n0", "{{ messages }}")
	require.NoError(t, err)
	require.Equal(t, 3+14, vocab)
	require.Equal(t, []int32{1, 4, 13, 5, 14, 16, 6, 15, 2}, text.Tokenizer.Encode("<bos>1+2=\n3 <eos>"))
	require.Equal(t, "<bos>1+2=\n3 <eos>", text.Tokenizer.Decode([]int32{1, 4, 13, 5, 14, 16, 6, 15, 2}, false))
	_, err = text.Template()
	require.NoError(t, err)
	text.ChatTemplate = ""
	_, err = text.Template()
	require.EqualError(t, err, "policy: the model has no chat template; give one with model.chat_template")
	_, _, err = scratchText("aé", "")
	require.EqualError(t, err, `policy: scratch: the alphabet has 'é'; printable ASCII, tab and newline are allowed`)
}

func TestScratchConfig(t *testing.T) {
	good := ScratchConfig{HiddenSize: 32, IntermediateSize: 64, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 64}
	c, err := good.config(17)
	require.NoError(t, err)
	require.Equal(t, 8, c.HeadDim)
	require.Equal(t, []int{2}, c.EOS)
	bad := good
	bad.NumKVHeads = 3
	_, err = bad.config(17)
	require.EqualError(t, err, "policy: scratch: modelfile: config: 4 attention heads are not a multiple of 3 key-value heads")
	_, err = ScratchConfig{}.config(17)
	require.ErrorContains(t, err, "hidden_size is 0, expected a positive integer")
}
