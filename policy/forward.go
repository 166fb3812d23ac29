//go:build torch

package policy

import (
	"errors"
	"slices"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// valueHead is the parameter that tells a model with a critic from one without.
const valueHead = "value_head.weight"

func hasValueHead(m *cgo.Model) bool {
	return slices.ContainsFunc(m.Parameters(), func(p cgo.ParameterInfo) bool { return p.Name == valueHead })
}

// forward runs the model; the caller closes the outputs.
func (t *Trainer) forward(b *cgo.Batch, grad, values bool) (f algorithms.Outputs, err error) {
	if values {
		return f, errors.New("policy: the model has no value head")
	}
	f.Current, f.Entropy, err = t.model.Forward(b, cgo.ForwardOptions{Grad: grad, Checkpoint: grad && t.config.Checkpoint, Entropy: true})
	return f, err
}
