package policy

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// fakeModel records what it is given.
type fakeModel struct {
	params  []cgo.ParameterInfo
	set     map[string]string
	changed int
}

func (f *fakeModel) Parameters() []cgo.ParameterInfo { return f.params }
func (f *fakeModel) Changed()                        { f.changed++ }
func (f *fakeModel) SetParameter(name string, dtype cgo.DType, data []byte, shape []int64) error {
	f.set[name] = fmt.Sprint(dtype, shape, data)
	return nil
}

// fakeWeights holds tensors in order.
type fakeWeights []modelfile.Tensor

func (f fakeWeights) Names() (names []string) {
	for _, t := range f {
		names = append(names, t.Name)
	}
	return names
}

func (f fakeWeights) Info(name string) (modelfile.TensorInfo, bool) {
	for _, t := range f {
		if t.Name == name {
			return t.TensorInfo, true
		}
	}
	return modelfile.TensorInfo{}, false
}

func (f fakeWeights) Tensor(name string) (modelfile.Tensor, error) {
	for _, t := range f {
		if t.Name == name {
			return t, nil
		}
	}
	return modelfile.Tensor{}, fmt.Errorf("no %s", name)
}

func tensor(name string, dtype modelfile.DType, data []byte, shape ...int) modelfile.Tensor {
	return modelfile.Tensor{TensorInfo: modelfile.TensorInfo{Name: name, DType: dtype, Shape: shape, File: "x"}, Data: data}
}

func TestFill(t *testing.T) {
	params := []cgo.ParameterInfo{{Name: embedding, Shape: []int64{1, 2}}, {Name: "model.norm.weight", Shape: []int64{1}}}
	f64 := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5))
	good := fakeWeights{
		tensor(embedding, modelfile.BF16, []byte{1, 2, 3, 4}, 1, 2),
		tensor("model.norm.weight", modelfile.F64, f64, 1),
		tensor("model.layers.0.self_attn.rotary_emb.inv_freq", modelfile.F32, []byte{0, 0, 0, 0}, 1),
	}
	m := &fakeModel{params, map[string]string{}, 0}
	require.NoError(t, fill(m, good, true))
	require.Equal(t, map[string]string{embedding: "2 [1 2] [1 2 3 4]", "model.norm.weight": "0 [1] [0 0 192 63]"}, m.set)
	require.Equal(t, 1, m.changed)

	m = &fakeModel{params, map[string]string{}, 0}
	bad := fakeWeights{
		tensor(embedding, modelfile.F32, make([]byte, 8), 2, 1), tensor("model.extra", modelfile.F32, make([]byte, 4), 1),
		tensor(head, modelfile.F32, make([]byte, 8), 1, 2),
	}
	require.EqualError(t, fill(m, bad, false), "policy: the weights do not fit config.json: model.embed_tokens.weight has shape [2 1], expected [1 2]; "+
		"model.norm.weight [1] is missing; model.extra is unexpected; lm_head.weight is unexpected")
	require.Empty(t, m.set) // nothing is set when something is wrong
	bad = append(bad, tensor("a", modelfile.F32, nil, 0), tensor("b", modelfile.F32, nil, 0))
	require.ErrorContains(t, fill(m, bad, false), "lm_head.weight is unexpected; and 2 more")

	integer := fakeWeights{tensor(embedding, "I32", make([]byte, 8), 1, 2), good[1]}
	require.ErrorContains(t, fill(m, integer, false), "model.embed_tokens.weight has type I32, expected F32, F16, BF16 or F64")
	require.Empty(t, m.set)
}

func TestFillTied(t *testing.T) {
	params := []cgo.ParameterInfo{{Name: embedding, Shape: []int64{1, 1}}}
	m := &fakeModel{params, map[string]string{}, 0}
	same := fakeWeights{tensor(embedding, modelfile.F32, []byte{1, 2, 3, 4}, 1, 1), tensor(head, modelfile.F32, []byte{1, 2, 3, 4}, 1, 1)}
	require.NoError(t, fill(m, same, true))
	same[1].Data = []byte{1, 2, 3, 5}
	require.ErrorContains(t, fill(m, same, true), "tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight")
}
