package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/tensors"
	"github.com/agentfly/agentfly/modelfile"
)

// The files of a PEFT adapter.
const (
	adapterConfigFile  = "adapter_config.json"
	adapterWeightsFile = "adapter_model.safetensors"
)

// peftConfig is what we read of adapter_config.json. Fields that would change the numbers and are not understood are
// refused where they are set.
type peftConfig struct {
	PEFTType        string          `json:"peft_type"`
	BaseModel       *string         `json:"base_model_name_or_path"`
	Rank            int             `json:"r"`
	Alpha           float64         `json:"lora_alpha"`
	Bias            string          `json:"bias"`
	RSLoRA          bool            `json:"use_rslora"`
	DoRA            bool            `json:"use_dora"`
	FanInFanOut     bool            `json:"fan_in_fan_out"`
	LoRABias        bool            `json:"lora_bias"`
	ModulesToSave   json.RawMessage `json:"modules_to_save"`
	RankPattern     json.RawMessage `json:"rank_pattern"`
	AlphaPattern    json.RawMessage `json:"alpha_pattern"`
	LayersTransform json.RawMessage `json:"layers_to_transform"`
	LayerReplace    json.RawMessage `json:"layer_replication"`
}

// adapterConfig translates; the targets are in the weights' names, because target_modules may be a pattern.
func (p peftConfig) adapterConfig() (cgo.AdapterConfig, error) {
	set := func(raw json.RawMessage) bool {
		text := string(bytes.TrimSpace(raw))
		return text != "" && text != "null" && text != "{}" && text != "[]"
	}
	for _, c := range []struct {
		bad  bool
		what string
	}{
		{p.PEFTType != "LORA", fmt.Sprintf("peft_type %q", p.PEFTType)},
		{p.Bias != "" && p.Bias != "none", fmt.Sprintf("bias %q", p.Bias)},
		{p.DoRA, "use_dora"},
		{p.FanInFanOut, "fan_in_fan_out"},
		{p.LoRABias, "lora_bias"},
		{set(p.ModulesToSave), "modules_to_save"},
		{set(p.RankPattern), "rank_pattern"},
		{set(p.AlphaPattern), "alpha_pattern"},
		{set(p.LayersTransform), "layers_to_transform"},
		{set(p.LayerReplace), "layer_replication"},
	} {
		if c.bad {
			return cgo.AdapterConfig{}, fmt.Errorf("%s: %s is not supported, LoRA of one rank in every layer is", adapterConfigFile, c.what)
		}
	}
	config := cgo.AdapterConfig{Rank: p.Rank, Alpha: p.Alpha}
	if p.RSLoRA { // alpha/sqrt(r) instead of alpha/r
		config.Alpha *= math.Sqrt(float64(p.Rank))
	}
	return config, nil
}

// readPEFT reads adapter_config.json.
func readPEFT(dir string) (p peftConfig, err error) {
	data, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", adapterConfigFile, err)
	}
	return p, nil
}

// SaveAdapter writes the adapter as PEFT does: adapter_config.json and adapter_model.safetensors, float32. base is what
// PEFT shall load the base model from; "" leaves it open. The folder appears complete or not at all.
func (p *Policy) SaveAdapter(dir, base string) error {
	c, ok := p.Model.Adapter()
	if !ok {
		return errors.New("policy: the model has no adapter to save")
	}
	var alpha any = c.Alpha
	if c.Alpha == math.Trunc(c.Alpha) && c.Alpha < 1<<31 {
		alpha = int(c.Alpha) // as PEFT declares it
	}
	var name any
	if base != "" {
		name = base
	}
	config := map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": name, "r": c.Rank, "lora_alpha": alpha,
		"target_modules": c.Targets, "lora_dropout": 0, "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
		"init_lora_weights": true, "use_rslora": false, "use_dora": false, "modules_to_save": nil, "rank_pattern": map[string]int{},
		"alpha_pattern": map[string]int{}, "layers_to_transform": nil, "layers_pattern": nil, "revision": nil,
	}
	var weights []modelfile.Source
	for _, info := range p.Model.Trained() {
		if isLoRA(info.Name) {
			weights = append(weights, tensors.Source(info.Name, info, func() ([]float32, error) { return p.Model.Parameter(info.Name) }))
		}
	}
	err := modelfile.ReplaceDir(dir, func(tmp string) error {
		if err := modelfile.WriteJSON(filepath.Join(tmp, adapterConfigFile), config); err != nil {
			return err
		}
		return modelfile.WriteSafetensors(filepath.Join(tmp, adapterWeightsFile), map[string]string{"format": "pt"}, weights)
	})
	if err != nil {
		return fmt.Errorf("policy: saving the adapter to %s: %w", dir, err)
	}
	return nil
}

func isLoRA(name string) bool {
	return strings.HasSuffix(name, ".lora_A.weight") || strings.HasSuffix(name, ".lora_B.weight")
}

// LookAdapter says what a PEFT adapter is, without reading its weights.
func LookAdapter(dir string) (c cgo.AdapterConfig, err error) {
	peft, err := readPEFT(dir)
	if err != nil {
		return c, err
	}
	if c, err = peft.adapterConfig(); err != nil {
		return c, err
	}
	files, err := modelfile.OpenSafetensors(filepath.Join(dir, adapterWeightsFile))
	if err != nil {
		return c, err
	}
	defer files.Close()
	for _, target := range cgo.AdapterTargets {
		if slices.ContainsFunc(files.Names(), func(name string) bool { return strings.Contains(name, "."+target+".") }) {
			c.Targets = append(c.Targets, target)
		}
	}
	return c.Resolve()
}

// LoadAdapter reads a PEFT adapter and gives it to the model, which has none yet. Each target must be in every layer.
func (p *Policy) LoadAdapter(dir string) error {
	if err := p.loadAdapter(dir); err != nil {
		return fmt.Errorf("policy: the adapter %s: %w", dir, err)
	}
	return nil
}

func (p *Policy) loadAdapter(dir string) error {
	peft, err := readPEFT(dir)
	if err != nil {
		return err
	}
	config, err := peft.adapterConfig()
	if err != nil {
		return err
	}
	file, err := modelfile.OpenSafetensors(filepath.Join(dir, adapterWeightsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	if config.Targets, err = targetsOf(file.Names()); err != nil {
		return err
	}
	if config, err = config.Resolve(); err != nil {
		return err
	}
	// All that can be wrong is found before the model changes.
	wanted := adapterShapes(p.Model.Parameters(), config)
	if err := tensors.HoldsExactly(file, adapterWeightsFile, wanted, ""); err != nil {
		return err
	}
	staged := &staging{}
	for _, info := range wanted {
		if err := tensors.Each(file, info.Name, func(values []float32) error { return tensors.Set(staged, info, values) }); err != nil {
			return err
		}
	}
	if err := p.Model.AddAdapter(config); err != nil {
		return err
	}
	defer p.Model.Changed()
	for _, s := range staged.tensors {
		if err := p.Model.SetParameter(s.name, s.dtype, s.data, s.shape); err != nil {
			return err
		}
	}
	return nil
}

// targetsOf finds the projections that the names of an adapter's tensors speak of.
func targetsOf(names []string) ([]string, error) {
	var targets []string
	for _, name := range names {
		stem, found := strings.CutSuffix(name, ".lora_A.weight")
		if !found {
			continue
		}
		target := stem[strings.LastIndexByte(stem, '.')+1:]
		if !slices.Contains(cgo.AdapterTargets[:], target) {
			return nil, fmt.Errorf("%s: %s: adapters of %s are not supported", adapterWeightsFile, name, target)
		}
		if !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s: it holds no lora_A.weight", adapterWeightsFile)
	}
	return targets, nil
}

// adapterShapes are the tensors that an adapter of a model with these parameters has.
func adapterShapes(base []cgo.ParameterInfo, c cgo.AdapterConfig) []cgo.ParameterInfo {
	var out []cgo.ParameterInfo
	for _, p := range base {
		stem, found := strings.CutSuffix(p.Name, ".weight")
		if !found || len(p.Shape) != 2 || !slices.Contains(c.Targets, stem[strings.LastIndexByte(stem, '.')+1:]) {
			continue
		}
		stem = "base_model.model." + stem
		out = append(out, cgo.ParameterInfo{Name: stem + ".lora_A.weight", Shape: []int64{int64(c.Rank), p.Shape[1]}},
			cgo.ParameterInfo{Name: stem + ".lora_B.weight", Shape: []int64{p.Shape[0], int64(c.Rank)}})
	}
	return out
}
