package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// parameters is what loading needs of a cgo.Model.
type parameters interface {
	Parameters() []cgo.ParameterInfo
	SetParameter(name string, dtype cgo.DType, data []byte, shape []int64) error
	Changed()
}

// weights is what loading needs of a modelfile.Model.
type weights interface {
	Names() []string
	Info(name string) (modelfile.TensorInfo, bool)
	Tensor(name string) (modelfile.Tensor, error)
}

var (
	_ parameters = (*cgo.Model)(nil)
	_ weights    = (*modelfile.Model)(nil)
)

const (
	embedding = "model.embed_tokens.weight"
	head      = "lm_head.weight"
)

// modelConfig translates what the files say into what the C++ model is made from.
func modelConfig(c *modelfile.Config) cgo.ModelConfig {
	return cgo.ModelConfig{
		VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers,
		NumHeads: c.NumHeads, NumKVHeads: c.NumKVHeads, HeadDim: c.HeadDim, RMSNormEps: c.RMSNormEps,
		TieWordEmbeddings: c.TieWordEmbeddings, QKVBias: c.QKVBias, OBias: c.OBias, MLPBias: c.MLPBias, QKNorm: c.QKNorm,
		InvFreq: c.Rope.InvFreq(c.HeadDim), AttentionFactor: c.Rope.AttentionScaling(),
	}
}

// Shares are the numbers of ranks that can share the layers of a model, see [cgo.ModelConfig.Shares].
func Shares(c *modelfile.Config) []int { return modelConfig(c).Shares() }

// fill sets every parameter from the tensor of its name. All that does not fit together is found first and told at once:
// parameters without a tensor, tensors without a parameter, other shapes, types that are no weights.
func fill(m parameters, w weights, tied bool) error {
	params := m.Parameters()
	if problems := compare(params, w, tied); len(problems) > 0 {
		return misfit(problems)
	}
	if _, ok := w.Info(head); ok && tied {
		if err := sameTensor(w, embedding, head); err != nil {
			return err
		}
	}
	for _, p := range params {
		t, err := w.Tensor(p.Name)
		if err != nil {
			return fmt.Errorf("policy: %w", err)
		}
		dtype, data, err := parameterData(t)
		if err != nil {
			return fmt.Errorf("policy: %w", err)
		}
		if err := m.SetParameter(p.Name, dtype, data, p.Shape); err != nil {
			return fmt.Errorf("policy: %s: %w", p.Name, err)
		}
	}
	m.Changed()
	return nil
}

// misfit is one error for all problems; it shows the first few.
func misfit(problems []string) error {
	const shown = 4
	text := strings.Join(problems[:min(len(problems), shown)], "; ")
	if len(problems) > shown {
		text += fmt.Sprintf("; and %d more", len(problems)-shown)
	}
	return errors.New("policy: the weights do not fit config.json: " + text)
}

// compare returns one text for each thing that is wrong.
func compare(params []cgo.ParameterInfo, w weights, tied bool) []string {
	var problems []string
	wanted := map[string]bool{}
	for _, p := range params {
		wanted[p.Name] = true
		info, ok := w.Info(p.Name)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s %v is missing", p.Name, p.Shape))
			continue
		}
		shape := make([]int64, len(info.Shape))
		for i, d := range info.Shape {
			shape[i] = int64(d)
		}
		if !slices.Equal(shape, p.Shape) {
			problems = append(problems, fmt.Sprintf("%s has shape %v, expected %v", p.Name, shape, p.Shape))
		}
		if _, _, err := parameterData(modelfile.Tensor{TensorInfo: info}); err != nil && info.DType != modelfile.F64 {
			problems = append(problems, fmt.Sprintf("%s has type %s, expected F32, F16, BF16 or F64", p.Name, info.DType))
		}
	}
	for _, name := range w.Names() {
		ignored := name == head && tied || strings.HasSuffix(name, ".rotary_emb.inv_freq") // a buffer that old versions saved
		if !wanted[name] && !ignored {
			problems = append(problems, fmt.Sprintf("%s is unexpected", name))
		}
	}
	return problems
}

// sameTensor refuses a tied model whose file holds a head of its own: which of the two is meant cannot be known.
func sameTensor(w weights, a, b string) error {
	x, err := w.Tensor(a)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	y, err := w.Tensor(b)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	if x.DType != y.DType || !bytes.Equal(x.Data, y.Data) {
		return fmt.Errorf("policy: tie_word_embeddings is true, but %s differs from %s; set it to false in config.json or remove the head", b, a)
	}
	return nil
}

// parameterData returns the data in a type that the C++ side converts from.
func parameterData(t modelfile.Tensor) (cgo.DType, []byte, error) {
	switch t.DType {
	case modelfile.F32:
		return cgo.F32, t.Data, nil
	case modelfile.F16:
		return cgo.F16, t.Data, nil
	case modelfile.BF16:
		return cgo.BF16, t.Data, nil
	}
	if t.Data == nil {
		return 0, nil, fmt.Errorf("type %s", t.DType)
	}
	values, err := t.Float32() // F64 is rounded; what is no weight is refused
	if err != nil {
		return 0, nil, err
	}
	data, err := modelfile.Encode(make([]byte, 0, 4*len(values)), values, modelfile.F32)
	return cgo.F32, data, err
}
