package vllm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

// checkWeights refuses, before any server is touched, what cannot become the weights or cannot be proven.
func (f *fleet) checkWeights(o Options, w engines.Weights) error {
	switch {
	case o.Frozen:
		return errors.New("the engine was made for servers whose weights never update")
	case w.Path == "" && w.Tensors == nil:
		return errors.New("weights need a path: these servers do not share the trainer's parameters")
	case w.Path == "" && !o.Way.TakesTensors():
		return fmt.Errorf("weights by way of %s need a path", o.Way)
	case w.Tensors == nil && o.Way == WayIPC:
		return errors.New("weights by way of ipc are tensors of the trainer's device")
	case w.Version < 0:
		return errors.New("a version is at least 0")
	}
	if err := w.Probe.Validate(); err != nil {
		return err
	}
	if most := f.context(); len(w.Probe.TokenIDs) >= most {
		return fmt.Errorf("the probe has %d tokens; it must be shorter than the servers' context, %d", len(w.Probe.TokenIDs), most)
	}
	way := o.wayOf(w.Path)
	for _, r := range f.replicas {
		s := r.standing.info()
		switch {
		case !s.Control:
			return fmt.Errorf("%s has no routes to pause and update it; start vLLM with VLLM_SERVER_DEV_MODE=1", r.url)
		case way == WayDisk && !s.Reload:
			return fmt.Errorf("%s cannot reload from disk; start vLLM with VLLM_SERVER_DEV_MODE=1", r.url)
		case way == WayLoRA && !s.LoRA:
			return fmt.Errorf("%s takes no adapters; start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", r.url)
		case way == WayNCCL && !s.Steps:
			return fmt.Errorf("%s has no routes of weight transfer; start vLLM with VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config '{\"backend\": \"nccl\"}'", r.url)
		case (way == WayTransfer || way == WayGloo || way == WayIPC) && !s.Transfer:
			return fmt.Errorf("%s has no weight transfer to AgentFly's extension; start vLLM with VLLM_SERVER_DEV_MODE=1 and the extension (docs/engines.md)", r.url)
		}
	}
	if w.Tensors != nil {
		var names []string
		for _, t := range w.Tensors.List() {
			names = append(names, t.Name)
		}
		return wholeGroups(names)
	}
	if way == WayLoRA {
		return checkAdapter(w.Path)
	}
	return checkFolder(w.Path)
}

func isAdapter(path string) bool {
	_, err := os.Stat(filepath.Join(path, "adapter_config.json"))
	return err == nil
}

func checkAdapter(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: the path must be absolute: a server opens it", path)
	}
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if _, err := os.Stat(filepath.Join(path, name)); err != nil {
			return fmt.Errorf("the adapter: %w", err)
		}
	}
	return nil
}

// checkFolder opens the checkpoint as the trainer would and finds fused groups that are not whole: a server that gets half
// of one computes with the other half of the old weights and says nothing.
func checkFolder(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: the path must be absolute: a server opens it", path)
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if !m.HasWeights() {
		return fmt.Errorf("%s holds no weights", path)
	}
	return wholeGroups(m.Names())
}

// fused are the projections that vLLM keeps in one matrix.
var fused = [][]string{{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}}

// wholeGroups names the first projection that is missing beside others of its group.
func wholeGroups(names []string) error {
	have := map[string]bool{}
	for _, n := range names {
		have[n] = true
	}
	for _, n := range slices.Sorted(slices.Values(names)) {
		for _, group := range fused {
			for _, part := range group {
				before, after, ok := cutPart(n, part)
				if !ok {
					continue
				}
				for _, other := range group {
					if want := before + other + after; !have[want] {
						return fmt.Errorf("the weights have %s but not %s; the server keeps them in one matrix, so the group must come whole", n, want)
					}
				}
			}
		}
	}
	return nil
}

// cutPart splits a parameter's name around one of its parts between dots.
func cutPart(name, part string) (before, after string, ok bool) {
	i := strings.Index("."+name+".", "."+part+".")
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+len(part):], true
}

// wayOf resolves auto.
func (o Options) wayOf(path string) Way {
	if o.Way != WayAuto {
		return o.Way
	}
	if isAdapter(path) {
		return WayLoRA
	}
	return WayDisk
}
