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

	"github.com/agentfly/agentfly/algorithms"
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
	states := shardedState{t.optimizer, t.ranks}
	var sources []modelfile.Source
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			sources = append(sources, tensors.Source(p.Name+m.suffix, p, func() ([]float32, error) { return states.get(p.Name, m.moment) }))
		}
	}
	var own []modelfile.Source
	for _, p := range besideBase(t.model) {
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
	base, err := t.base.of(frozenBase(t.model))
	if err != nil {
		return fmt.Errorf("trainer: saving the trainer to %s: %w", dir, err)
	}
	reference, err := t.reference.of(frozenReference(t.config, t.algorithm))
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
	base, err := t.base.of(frozenBase(t.model))
	if err != nil {
		return err
	}
	switch {
	case base == state.Base:
	case state.Base == "":
		return &SettingError{"model.lora", "the run trained no adapter so far, and model.lora is set now; leave it out, or begin a new run with --output"}
	case base == "":
		return &SettingError{"model.lora", "the run trained an adapter so far, and model.lora is not set now; give it back, or begin a new run with --output"}
	default:
		return &SettingError{"model.path", fmt.Sprintf("the run trains on another base model: SHA-256 %q then, %q now; give the run its base model back", state.Base, base)}
	}
	reference, err := t.reference.of(frozenReference(t.config, t.algorithm))
	if err != nil {
		return err
	}
	if reference != "" && state.Reference != "" && reference != state.Reference { // KL may be new to the run, or gone
		return &SettingError{"model.path", fmt.Sprintf("the reference policy was another model before: SHA-256 %q then, %q now; give the run back the model that it began with", state.Reference, reference)}
	}
	if err := t.sameCritic(filepath.Join(dir, optimizerFile)); err != nil {
		return err
	}
	moved, err := openExactly(filepath.Join(dir, optimizerFile), t.model.Trained(), moments[0].suffix, moments[1].suffix)
	if err != nil {
		return err
	}
	defer moved.Close()
	if own := besideBase(t.model); len(own) > 0 {
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
		if err := shareWeights(t.ranks, t.optimizer); err != nil {
			return err
		}
	}
	states := shardedState{t.optimizer, t.ranks}
	for _, p := range t.model.Trained() {
		for _, m := range moments {
			if err := tensors.Each(moved, p.Name+m.suffix, func(values []float32) error { return states.set(p.Name, m.moment, values) }); err != nil {
				return err
			}
		}
	}
	return states.setSteps(state.Steps)
}

// sameCritic refuses the optimizer's file of a run that trained a critic where this one trains none, or the other way round.
func (t *Trainer) sameCritic(path string) error {
	file, err := modelfile.OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, was := file.Info(valueHead + moments[0].suffix)
	then, now := "a critic", "none"
	switch {
	case was == hasValueHead(t.model):
		return nil
	case !was:
		then, now = "no critic", "one"
	}
	return &SettingError{"algorithm.advantage", fmt.Sprintf("the run trained %s so far, and algorithm.advantage %s has %s; give it back the advantage that it had, or begin a new run with --output", then, t.algorithm.Estimator.Name, now)}
}

// frozenBase is the model whose base is not trained, since an adapter is; nil: its base is.
func frozenBase(m *cgo.Model) *cgo.Model {
	if _, ok := m.Adapter(); !ok {
		return nil
	}
	return m
}

// frozenReference is the model of the reference policy; nil: there is none, or it is the frozen base of an adapter.
func frozenReference(c Config, a *algorithms.Algorithm) *cgo.Model {
	frozen, ok := c.Reference.(FrozenModel)
	if !ok || !a.NeedsReference() {
		return nil
	}
	return frozen.Model
}

// hashOnce is the hash of a model that nobody trains, computed once.
type hashOnce struct{ hash string }

// of is the hash of the model's parameters; "" for nil.
func (h *hashOnce) of(m *cgo.Model) (string, error) {
	if m == nil {
		return "", nil
	}
	if h.hash != "" {
		return h.hash, nil
	}
	sum := sha256.New()
	for _, p := range m.Parameters() {
		values, err := m.Parameter(p.Name)
		if err != nil {
			return "", err
		}
		if err := tensors.Write(sum, values, modelfile.F32); err != nil {
			return "", err
		}
	}
	h.hash = hex.EncodeToString(sum.Sum(nil))
	return h.hash, nil
}

// besideBase is what is trained beside the base model.
func besideBase(m *cgo.Model) []cgo.ParameterInfo {
	base := map[string]bool{}
	for _, p := range m.Parameters() {
		base[p.Name] = true
	}
	return slices.DeleteFunc(m.Trained(), func(p cgo.ParameterInfo) bool { return base[p.Name] })
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
