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
	optimizerFile  = "optimizer.safetensors"
	parametersFile = "parameters.safetensors" // what is trained and no file of the model holds
	trainerFile    = "trainer.json"
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
// complete or not at all. What is trained beside the base model, as a value head, goes to parameters.safetensors. The base
// model's weights are not among them: save those with Policy.SaveHF, as F32 for an exact resume. No step may run meanwhile.
func (t *Trainer) Save(dir string) error {
	var sources []modelfile.Source
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			sources = append(sources, source(p.Name+m.suffix, p, func() ([]float32, error) { return t.optimizer.State(p.Name, m.moment) }))
		}
	}
	var own []modelfile.Source
	for _, p := range t.own() {
		own = append(own, source(p.Name, p, func() ([]float32, error) { return t.model.Parameter(p.Name) }))
	}
	if len(own) > 0 {
		if err := modelfile.WriteSafetensors(filepath.Join(dir, parametersFile), nil, own); err != nil {
			return fmt.Errorf("policy: saving the trainer to %s: %w", dir, err)
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
	moved, err := openExactly(filepath.Join(dir, optimizerFile), t.model.Trained(), moments[0].suffix, moments[1].suffix)
	if err != nil {
		return err
	}
	defer moved.Close()
	if own := t.own(); len(own) > 0 {
		file, err := openExactly(filepath.Join(dir, parametersFile), own, "")
		if err != nil {
			return err
		}
		defer file.Close()
		defer t.model.Changed()
		for _, p := range own {
			if err := each(file, p.Name, func(values []float32) error { return setFloats(t.model, p, values) }); err != nil {
				return err
			}
		}
	}
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			if err := each(moved, p.Name+m.suffix, func(values []float32) error { return t.optimizer.SetState(p.Name, m.moment, values) }); err != nil {
				return err
			}
		}
	}
	return t.optimizer.SetStepCount(state.Steps)
}

// own is what is trained beside the base model.
func (t *Trainer) own() []cgo.ParameterInfo {
	base := map[string]bool{}
	for _, p := range t.model.Parameters() {
		base[p.Name] = true
	}
	return slices.DeleteFunc(t.model.Trained(), func(p cgo.ParameterInfo) bool { return base[p.Name] })
}

// source writes what get returns, float32 of p's shape.
func source(name string, p cgo.ParameterInfo, get func() ([]float32, error)) modelfile.Source {
	return modelfile.Source{Name: name, DType: modelfile.F32, Shape: ints(p.Shape), Write: func(w io.Writer) error {
		values, err := get()
		if err != nil {
			return err
		}
		return writeValues(w, values, modelfile.F32)
	}}
}

func ints(shape []int64) []int {
	out := make([]int, len(shape))
	for i, d := range shape {
		out[i] = int(d)
	}
	return out
}

// openExactly opens a file that must hold a tensor of every parameter and suffix, and nothing else.
func openExactly(path string, params []cgo.ParameterInfo, suffixes ...string) (_ *modelfile.Model, err error) {
	file, err := modelfile.OpenSafetensors(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close() // the first error says more
		}
	}()
	name := filepath.Base(path)
	for _, p := range params {
		for _, suffix := range suffixes {
			info, ok := file.Info(p.Name + suffix)
			if !ok {
				return nil, fmt.Errorf("%s: %s%s is missing; it belongs to another model", name, p.Name, suffix)
			}
			if !slices.Equal(info.Shape, ints(p.Shape)) {
				return nil, fmt.Errorf("%s: %s%s has shape %v, expected %v; it belongs to another model", name, p.Name, suffix, info.Shape, p.Shape)
			}
		}
	}
	if n := len(file.Names()); n != len(suffixes)*len(params) {
		return nil, fmt.Errorf("%s: it holds %d tensors, expected %d; it belongs to another model", name, n, len(suffixes)*len(params))
	}
	return file, nil
}

// each calls f with the values of one tensor.
func each(file *modelfile.Model, name string, f func(values []float32) error) error {
	tensor, err := file.Tensor(name)
	if err != nil {
		return err
	}
	values, err := tensor.Float32()
	if err != nil {
		return err
	}
	return f(values)
}

// setFloats sets a parameter; Changed must follow.
func setFloats(m parameters, p cgo.ParameterInfo, values []float32) error {
	data, err := modelfile.Encode(make([]byte, 0, 4*len(values)), values, modelfile.F32)
	if err != nil {
		return err
	}
	return m.SetParameter(p.Name, cgo.F32, data, p.Shape)
}
