package weights

import (
	"fmt"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// mirror is a copy on the CPU of a model that trains on another device, for the local engine, which decodes on the CPU.
type mirror struct {
	from, model *cgo.Model
}

func newMirror(from *cgo.Model) (*mirror, error) {
	model, err := cgo.NewModel(from.Config(), "cpu")
	if err != nil {
		return nil, fmt.Errorf("orchestrator: the engine's copy of the weights: %w", err)
	}
	m := &mirror{from, model}
	if err := m.renew(); err != nil {
		model.Close() // its error would say nothing new
		return nil, err
	}
	return m, nil
}

// renew copies the weights. The engine must not read them meanwhile.
func (m *mirror) renew() error {
	var data []byte
	for _, p := range m.model.Parameters() {
		values, err := m.from.Merged(p.Name)
		if err == nil {
			data, err = modelfile.Encode(data[:0], values, modelfile.F32)
		}
		if err == nil {
			err = m.model.SetParameter(p.Name, cgo.F32, data, p.Shape)
		}
		if err != nil {
			return fmt.Errorf("orchestrator: the engine's copy of the weights: %w", err)
		}
	}
	m.model.Changed()
	return nil
}
