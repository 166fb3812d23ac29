//go:build torch

package policy

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

const (
	optimizerFile = "optimizer.safetensors"
	trainerFile   = "trainer.json"
)

// trainerState is trainer.json.
type trainerState struct {
	Version int   `json:"version"` // of this format: 1
	Steps   int64 `json:"steps"`   // optimizer steps taken; the schedule continues there
}

// moments are AdamW's states with the suffix that their tensors carry in the file, as torch.optim.AdamW names them.
var moments = []struct {
	suffix string
	moment cgo.Moment
}{{".exp_avg", cgo.ExpAvg}, {".exp_avg_sq", cgo.ExpAvgSq}}

// Save writes optimizer.safetensors (float32, exact) and trainer.json into the folder, which exists; each file appears
// complete or not at all. The weights are not among them: save those with Policy.SaveHF, as F32 for an exact resume.
// No step may run meanwhile. Only rank 0 of a group saves and loads; what it writes does not depend on their number.
func (t *Trainer) Save(dir string) error {
	var sources []modelfile.Source
	for _, p := range t.model.Parameters() {
		shape := make([]int, len(p.Shape))
		for i, d := range p.Shape {
			shape[i] = int(d)
		}
		for _, m := range moments {
			sources = append(sources, modelfile.Source{Name: p.Name + m.suffix, DType: modelfile.F32, Shape: shape, Write: func(w io.Writer) error {
				values, err := t.state(p.Name, m.moment)
				if err != nil {
					return err
				}
				return writeValues(w, values, modelfile.F32)
			}})
		}
	}
	if err := modelfile.WriteSafetensors(filepath.Join(dir, optimizerFile), nil, sources); err != nil {
		return fmt.Errorf("policy: saving the trainer to %s: %w", dir, err)
	}
	if err := modelfile.WriteJSON(filepath.Join(dir, trainerFile), trainerState{Version: 1, Steps: t.Steps()}); err != nil {
		return fmt.Errorf("policy: saving the trainer to %s: %w", dir, err)
	}
	return nil
}

// Load continues from what Save wrote. The names and shapes of all states are checked first; on an error nothing changed
// unless the file could not be read to its end.
func (t *Trainer) Load(dir string) error {
	if err := t.load(dir); err != nil {
		return fmt.Errorf("policy: loading the trainer from %s: %w", dir, err)
	}
	return nil
}

func (t *Trainer) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, trainerFile))
	if err != nil {
		return err
	}
	var state trainerState
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("%s: %w", trainerFile, err)
	}
	if state.Version != 1 || state.Steps < 0 {
		return fmt.Errorf("%s: version %d with %d steps; this program reads version 1", trainerFile, state.Version, state.Steps)
	}
	file, err := modelfile.OpenSafetensors(filepath.Join(dir, optimizerFile))
	if err != nil {
		return err
	}
	defer file.Close()
	params := t.model.Parameters()
	for _, p := range params {
		for _, m := range moments {
			info, ok := file.Info(p.Name + m.suffix)
			if !ok {
				return fmt.Errorf("%s: %s%s is missing; it belongs to another model", optimizerFile, p.Name, m.suffix)
			}
			if int64(info.Elements()) != p.Elements() || !slices.EqualFunc(info.Shape, p.Shape, func(a int, b int64) bool { return int64(a) == b }) {
				return fmt.Errorf("%s: %s%s has shape %v, expected %v; it belongs to another model", optimizerFile, p.Name, m.suffix, info.Shape, p.Shape)
			}
		}
	}
	if n := len(file.Names()); n != len(moments)*len(params) {
		return fmt.Errorf("%s: it holds %d states, expected %d; it belongs to another model", optimizerFile, n, len(moments)*len(params))
	}
	for _, p := range params {
		for _, m := range moments {
			tensor, err := file.Tensor(p.Name + m.suffix)
			if err != nil {
				return err
			}
			values, err := tensor.Float32()
			if err != nil {
				return err
			}
			if err := t.setState(p.Name, m.moment, values); err != nil {
				return err
			}
		}
	}
	return t.setSteps(state.Steps)
}
