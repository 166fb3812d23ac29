//go:build torch

package trainer

import (
	"slices"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// valueHead is the parameter that tells a model with a critic from one without.
const valueHead = "value_head.weight"

func hasValueHead(m *cgo.Model) bool {
	return slices.ContainsFunc(m.Trained(), func(p cgo.ParameterInfo) bool { return p.Name == valueHead })
}

// forward runs the model with gradient, together with the neighbours; the caller closes the outputs. checkpoint computes activations
// again in backward.
func forward(m *cgo.Model, b *cgo.Batch, together cgo.Neighbours, checkpoint int, values bool) (algorithms.Outputs, error) {
	out, err := m.Forward(b, cgo.ForwardOptions{Grad: true, Checkpoint: checkpoint, Entropy: true, Values: values, Neighbours: together})
	return algorithms.Outputs{Current: out.Logprobs, Entropy: out.Entropy, Values: out.Values}, err
}

// numbers are what a forward says of its rows, [N]; values is nil where they were not asked for.
type numbers struct{ logprobs, entropy, values []float32 }

// read copies the outputs of a forward.
func read(f algorithms.Outputs) (n numbers, err error) {
	if n.logprobs, err = cgo.Read(f.Current); err != nil {
		return n, err
	}
	if n.entropy, err = cgo.Read(f.Entropy); err != nil || f.Values.T == nil {
		return n, err
	}
	n.values, err = cgo.Read(f.Values)
	return n, err
}

func closeOutputs(f algorithms.Outputs) {
	cgo.Outputs{Logprobs: f.Current, Entropy: f.Entropy, Values: f.Values}.Close()
}

// infer runs the model without gradient.
func infer(m *cgo.Model, b *cgo.Batch, together cgo.Neighbours, values bool) (numbers, error) {
	s, err := m.Infer(b, cgo.ForwardOptions{Entropy: true, Values: values, Neighbours: together})
	return numbers{s.Logprobs, s.Entropy, s.Values}, err
}
