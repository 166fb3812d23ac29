package policy

import (
	"errors"
	"fmt"
	"io"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/tensors"
	"github.com/agentfly/agentfly/modelfile"
)

// Convert writes a model as a Hugging Face folder: `agentfly model import`. The source is what Load takes; the weights are
// dequantised and converted to dtype (F32, F16 or BF16; "" keeps tensors of the 16-bit type that all matrices have, and
// makes the rest F32). Libtorch is not needed. What does not fit config.json is refused as by Load.
func Convert(path, dir string, dtype modelfile.DType) error {
	files, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer files.Close()
	var f folder
	if f.config, f.text, f.kept, err = loadFiles(files); err != nil {
		return err
	}
	if !files.HasWeights() {
		_, err := files.Tensor(embedding) // says which files are missing
		return err
	}
	params := parameterList(f.config)
	if problems := compare(params, files, f.config.TieWordEmbeddings); len(problems) > 0 {
		return misfit(problems)
	}
	if _, ok := files.Info(head); ok && f.config.TieWordEmbeddings {
		if err := sameTensor(files, embedding, head); err != nil {
			return err
		}
	}
	saved, rest := dtype, dtype
	if dtype == "" {
		rest = modelfile.F32
		if saved, err = commonType(files, params); err != nil {
			return err
		}
	}
	return f.save(dir, saved, convertSources(files, params, saved, rest))
}

// commonType is the 16-bit type that all matrices have, F32 otherwise.
func commonType(w weights, params []cgo.ParameterInfo) (modelfile.DType, error) {
	var common modelfile.DType
	for _, p := range params {
		if len(p.Shape) < 2 { // norms and biases are often kept in F32
			continue
		}
		info, _ := w.Info(p.Name) // compare has found it
		if common == "" {
			common = info.DType
		}
		if info.DType != common {
			return modelfile.F32, nil
		}
	}
	switch common {
	case modelfile.F16, modelfile.BF16:
		return common, nil
	case modelfile.F32, modelfile.F64:
		return modelfile.F32, nil
	}
	return "", errors.New("policy: the model has no matrices")
}

// convertSources keeps tensors that are of type same as they are stored, and converts the others to rest.
func convertSources(w weights, params []cgo.ParameterInfo, same, rest modelfile.DType) []modelfile.Source {
	var out []modelfile.Source
	for _, p := range params {
		info, _ := w.Info(p.Name)
		dtype := rest
		if info.DType == same {
			dtype = same
		}
		out = append(out, modelfile.Source{Name: p.Name, DType: dtype, Shape: info.Shape, Write: func(to io.Writer) error {
			t, err := w.Tensor(p.Name)
			if err != nil {
				return err
			}
			if t.DType == dtype {
				_, err = to.Write(t.Data)
				return err
			}
			values, err := t.Float32()
			if err != nil {
				return err
			}
			return tensors.Write(to, values, dtype)
		}})
	}
	return out
}

// parameterList is what cgo.Model.Parameters lists for the model; a test holds the two together.
func parameterList(c *modelfile.Config) []cgo.ParameterInfo {
	hidden, inter, vocab := int64(c.HiddenSize), int64(c.IntermediateSize), int64(c.VocabSize)
	q, kv, dim := int64(c.NumHeads*c.HeadDim), int64(c.NumKVHeads*c.HeadDim), int64(c.HeadDim)
	var out []cgo.ParameterInfo
	add := func(present bool, name string, shape ...int64) {
		if present {
			out = append(out, cgo.ParameterInfo{Name: name, Shape: shape})
		}
	}
	add(true, embedding, vocab, hidden)
	for i := range c.NumLayers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(true, layer+"input_layernorm.weight", hidden)
		for _, m := range []struct {
			name    string
			out, in int64
			bias    bool
		}{
			{"self_attn.q_proj", q, hidden, c.QKVBias},
			{"self_attn.k_proj", kv, hidden, c.QKVBias},
			{"self_attn.v_proj", kv, hidden, c.QKVBias},
			{"self_attn.o_proj", hidden, q, c.OBias},
			{"mlp.gate_proj", inter, hidden, c.MLPBias},
			{"mlp.up_proj", inter, hidden, c.MLPBias},
			{"mlp.down_proj", hidden, inter, c.MLPBias},
		} {
			add(true, layer+m.name+".weight", m.out, m.in)
			add(m.bias, layer+m.name+".bias", m.out)
		}
		add(c.QKNorm, layer+"self_attn.q_norm.weight", dim)
		add(c.QKNorm, layer+"self_attn.k_norm.weight", dim)
		add(true, layer+"post_attention_layernorm.weight", hidden)
	}
	add(true, "model.norm.weight", hidden)
	add(!c.TieWordEmbeddings, head, vocab, hidden)
	return out
}
