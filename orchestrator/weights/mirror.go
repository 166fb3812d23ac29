package weights

import (
	"fmt"
	"runtime"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// mirror is a float32 copy on the CPU of a model that trains on a device, for a local engine that decodes on the CPUs (engine.device: cpu).
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

// note says at the start of a run on device what decodes where, why, what that costs, and what to do about it.
func (m *mirror) note(device, why string) string {
	bytes := 0.0
	for _, p := range m.model.Parameters() {
		bytes += 4 * float64(p.Elements())
	}
	return fmt.Sprintf("training runs on %s; the local engine does not (%s): it decodes on %d CPUs, from a float32 copy of the weights of %s that every update renews. "+
		"Without that setting it samples on %s", device, why, runtime.NumCPU(), size(bytes), device)
}

// size is a number of bytes in the unit that it is read best in.
func size(bytes float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.1f GiB", bytes)
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
