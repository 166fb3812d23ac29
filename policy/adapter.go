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

// peftConfig is what we read of adapter_config.json.
type peftConfig struct {
	PEFTType  string  `json:"peft_type"`
	BaseModel *string `json:"base_model_name_or_path"`
	Rank      int     `json:"r"`
	Alpha     float64 `json:"lora_alpha"`
	Bias      string  `json:"bias"`
	RSLoRA    bool    `json:"use_rslora"`

	fields map[string]json.RawMessage // all of the file's
}

// foreign are the fields with which, where they are set, an adapter is another one than the rest of its file says.
var foreign = []string{
	"use_dora", "fan_in_fan_out", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication",
	"alora_invocation_tokens", "use_qalora", "use_bdlora", "kasa_config", "monteclora_config", "velora_config", "arrow_config", "trainable_token_indices",
}

// plainStarts are the values of init_lora_weights with which PEFT leaves the base model's weights as they are, also when it loads the adapter.
var plainStarts = []string{"", "null", "true", "false", `"gaussian"`, `"eva"`, `"orthogonal"`}

// text is a field as it is written; "": there is none.
func (p peftConfig) text(field string) string { return string(bytes.TrimSpace(p.fields[field])) }

// adapterConfig translates; the targets are in the weights' names, because target_modules may be a pattern.
func (p peftConfig) adapterConfig() (cgo.AdapterConfig, error) {
	start, what := p.text("init_lora_weights"), ""
	switch {
	case p.PEFTType != "LORA":
		what = fmt.Sprintf("peft_type %q", p.PEFTType)
	case p.Bias != "" && p.Bias != "none":
		what = fmt.Sprintf("bias %q", p.Bias)
	case !slices.Contains(plainStarts, start):
		what = "init_lora_weights " + start + ", with which PEFT may change the base model's weights,"
	default:
		for _, field := range foreign {
			if !slices.Contains([]string{"", "null", "false", "{}", "[]"}, p.text(field)) {
				what = field
			}
		}
	}
	if what != "" {
		return cgo.AdapterConfig{}, fmt.Errorf("%s: %s is not supported, LoRA of one rank in every layer is", adapterConfigFile, what)
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
	if err = json.Unmarshal(data, &p); err == nil {
		err = json.Unmarshal(data, &p.fields)
	}
	if err != nil {
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

// AdapterChecksum tells a PEFT adapter from others: by its tensors, and by what they are multiplied with.
func AdapterChecksum(dir string) (sum string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("policy: the adapter %s: %w", dir, err)
		}
	}()
	c, err := LookAdapter(dir)
	if err != nil {
		return "", err
	}
	file, err := modelfile.OpenSafetensors(filepath.Join(dir, adapterWeightsFile))
	if err != nil {
		return "", err
	}
	defer file.Close()
	if sum, err = file.Checksum(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, rank %d, alpha %g", sum, c.Rank, c.Alpha), nil
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
