package policy

import (
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// Parameters are those of a model with this configuration, as the C++ model lists them: with them weights are held against
// config.json, and memory is planned, without libtorch and without reading a weight.
func Parameters(c *modelfile.Config) (out []cgo.ParameterInfo) {
	add := func(name string, shape ...int) {
		p := cgo.ParameterInfo{Name: name}
		for _, n := range shape {
			p.Shape = append(p.Shape, int64(n))
		}
		out = append(out, p)
	}
	linear := func(name string, bias bool, to, from int) {
		add(name+".weight", to, from)
		if bias {
			add(name+".bias", to)
		}
	}
	hidden, heads, keys := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	add(embedding, c.VocabSize, hidden)
	for i := range c.NumLayers {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"input_layernorm.weight", hidden)
		linear(at+"self_attn.q_proj", c.QKVBias, heads, hidden)
		linear(at+"self_attn.k_proj", c.QKVBias, keys, hidden)
		linear(at+"self_attn.v_proj", c.QKVBias, keys, hidden)
		linear(at+"self_attn.o_proj", c.OBias, hidden, heads)
		if c.QKNorm {
			add(at+"self_attn.q_norm.weight", c.HeadDim)
			add(at+"self_attn.k_norm.weight", c.HeadDim)
		}
		add(at+"post_attention_layernorm.weight", hidden)
		linear(at+"mlp.gate_proj", c.MLPBias, c.IntermediateSize, hidden)
		linear(at+"mlp.up_proj", c.MLPBias, c.IntermediateSize, hidden)
		linear(at+"mlp.down_proj", c.MLPBias, hidden, c.IntermediateSize)
	}
	add("model.norm.weight", hidden)
	if !c.TieWordEmbeddings {
		add(head, c.VocabSize, hidden)
	}
	return out
}

// checkShapes refuses weights that do not fit config.json, by what their files say of them.
func checkShapes(c *modelfile.Config, files *modelfile.Model) error {
	if c.NumLayers > 10_000 || slices.Contains([]int{c.HiddenSize, c.NumHeads, c.HeadDim}, 0) { // no model: loading it says so
		return nil
	}
	if problems := compare(Parameters(c), files, c.TieWordEmbeddings); len(problems) > 0 {
		return fmt.Errorf("%w (in %s)", misfit(problems), files.Path)
	}
	return nil
}
