//go:build torch

package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/tensors"
	"github.com/agentfly/agentfly/modelfile"
)

const (
	optimizerFile  = "optimizer.safetensors"
	parametersFile = "parameters.safetensors" // what is trained and no file of the model holds
	trainerFile    = "trainer.json"
)

// trainerState is trainer.json.
type trainerState struct {
	Version int    `json:"version"`        // of this format: 1
	Steps   int64  `json:"steps"`          // optimizer steps taken; the schedule continues there
	Base    string `json:"base,omitempty"` // SHA-256 of the frozen base model's parameters, of a run that trains an adapter
	// Reference is that of the frozen reference policy, of a run with KL and a reference in a model of its own.
	Reference string `json:"reference,omitempty"`
}

// moments are AdamW's states with the suffix that their tensors carry in the file, as torch.optim.AdamW names them.
var moments = []struct {
	suffix string
	moment cgo.Moment
}{{".exp_avg", cgo.ExpAvg}, {".exp_avg_sq", cgo.ExpAvgSq}}

// Save writes optimizer.safetensors (float32, exact) and trainer.json into the folder, which exists; each file appears
// complete or not at all. What is trained beside the base model (adapter, value head) goes to parameters.safetensors. The
// base model's weights are not among them: save those with Policy.SaveHF, as F32 for an exact resume; the frozen base of an
// adapter is only named, by its hash. No step may run meanwhile. Only
// rank 0 of a group saves and loads; what it writes does not depend on the number of ranks.
func (t *Trainer) Save(dir string) error {
	var sources []modelfile.Source
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			sources = append(sources, tensors.Source(p.Name+m.suffix, p, func() ([]float32, error) { return t.state(p.Name, m.moment) }))
		}
	}
	var own []modelfile.Source
	for _, p := range t.own() {
		own = append(own, tensors.Source(p.Name, p, func() ([]float32, error) { return t.model.Parameter(p.Name) }))
	}
	if len(own) > 0 {
		if err := modelfile.WriteSafetensors(filepath.Join(dir, parametersFile), nil, own); err != nil {
			return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
		}
	}
	if err := modelfile.WriteSafetensors(filepath.Join(dir, optimizerFile), nil, sources); err != nil {
		return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
	}
	base, err := t.base()
	if err != nil {
		return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
	}
	reference, err := t.referenceIs()
	if err != nil {
		return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
	}
	if err := modelfile.WriteJSON(filepath.Join(dir, trainerFile), trainerState{Version: 1, Steps: t.Steps(), Base: base, Reference: reference}); err != nil {
		return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
	}
	return nil
}

// Load continues from what Save wrote. The names and shapes of all states are checked first; on an error nothing changed
// unless the file could not be read to its end.
func (t *Trainer) Load(dir string) error {
	if err := t.load(dir); err != nil {
		return fmt.Errorf("trainer: loading the trainer from %s: %w", dir, err)
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
	base, err := t.base()
	if err != nil {
		return err
	}
	if base != state.Base {
		return fmt.Errorf("%s: the run trains on another base model, or trained none before: SHA-256 %q then, %q now; give the run its base model back", trainerFile, state.Base, base)
	}
	reference, err := t.referenceIs()
	if err != nil {
		return err
	}
	if reference != "" && state.Reference != "" && reference != state.Reference { // KL may be new to the run, or gone
		return fmt.Errorf("%s: the reference policy was another model before: SHA-256 %q then, %q now; give the run back the model that it began with", trainerFile, state.Reference, reference)
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
			if err := tensors.Each(file, p.Name, func(values []float32) error { return tensors.Set(t.model, p, values) }); err != nil {
				return err
			}
		}
		if err := t.shareWeights(); err != nil {
			return err
		}
	}
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			if err := tensors.Each(moved, p.Name+m.suffix, func(values []float32) error { return t.setState(p.Name, m.moment, values) }); err != nil {
				return err
			}
		}
	}
	return t.setSteps(state.Steps)
}

// base is the hash of the frozen base model, "" where the base is trained.
func (t *Trainer) base() (string, error) {
	if _, ok := t.model.Adapter(); !ok {
		return "", nil
	}
	return hashOf(t.model, &t.baseHash)
}

// referenceIs is the hash of the reference policy, "" where there is none or it is the frozen base of an adapter.
func (t *Trainer) referenceIs() (string, error) {
	frozen, ok := t.config.Reference.(FrozenModel)
	if !ok || !t.algorithm.NeedsReference() {
		return "", nil
	}
	return hashOf(frozen.Model, &t.referenceHash)
}

// hashOf is the hash of the parameters of a model that nobody trains, computed once.
func hashOf(m *cgo.Model, once *string) (string, error) {
	if *once != "" {
		return *once, nil
	}
	h := sha256.New()
	for _, p := range m.Parameters() {
		values, err := m.Parameter(p.Name)
		if err != nil {
			return "", err
		}
		if err := tensors.Write(h, values, modelfile.F32); err != nil {
			return "", err
		}
	}
	*once = hex.EncodeToString(h.Sum(nil))
	return *once, nil
}

// own is what is trained beside the base model.
func (t *Trainer) own() []cgo.ParameterInfo {
	base := map[string]bool{}
	for _, p := range t.model.Parameters() {
		base[p.Name] = true
	}
	return slices.DeleteFunc(t.model.Trained(), func(p cgo.ParameterInfo) bool { return base[p.Name] })
}

// openExactly opens a file that must hold a tensor of every parameter and suffix, and nothing else.
func openExactly(path string, params []cgo.ParameterInfo, suffixes ...string) (*modelfile.Model, error) {
	file, err := modelfile.OpenSafetensors(path)
	if err != nil {
		return nil, err
	}
	if err := tensors.HoldsExactly(file, filepath.Base(path), params, suffixes...); err != nil {
		file.Close() // its error would say nothing new
		return nil, err
	}
	return file, nil
}
