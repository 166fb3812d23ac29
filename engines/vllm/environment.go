package vllm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// updatable lets a server be updated, and keeps it off the network.
var updatable = []string{
	"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_SERVER_DEV_MODE=1",
}

// onCPU is the environment of a CPU, where the user does not say otherwise: nothing is compiled, which takes longer than it
// saves on small models.
var onCPU = []string{"TORCHDYNAMO_DISABLE=1", "VLLM_CPU_OMP_THREADS_BIND=auto"}

// allocatorSettings are PyTorch's. The trainer's are not the server's: vLLM's sleep mode keeps its memory in a pool, which
// expandable_segments:True does not go with (vllm/device_allocator/cumem.py).
var allocatorSettings = []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}

// ofRanks are set by launchers such as torchrun for the ranks of the trainer; a server that reads them takes itself for one.
var ofRanks = []string{
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
	"MASTER_ADDR", "MASTER_PORT",
}

const visibleDevices = "CUDA_VISIBLE_DEVICES"

// environment is that of a server: what it inherits of the process whose environment is own, what updates need, and on top
// ServeOptions.Env. Of two entries of one name the last one counts.
func environment(own []string, o ServeOptions) ([]string, error) {
	var env []string
	if o.CPU {
		env = slices.Clone(onCPU)
	}
	for _, entry := range own {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.Contains(allocatorSettings, name) && !slices.Contains(ofRanks, name) && !strings.HasPrefix(name, "TORCHELASTIC_") {
			env = append(env, entry)
		}
	}
	env = append(env, updatable...)
	if o.LoRARank > 0 {
		env = append(env, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
	}
	if len(o.Devices) > 0 {
		visible, err := chosen(o.Devices, valueOf(env, visibleDevices))
		if err != nil {
			return nil, err
		}
		env = append(env, visibleDevices+"="+visible)
	}
	for _, entry := range o.Env {
		name, value, _ := strings.Cut(entry, "=")
		if o.Sleep && slices.Contains(allocatorSettings, name) && strings.Contains(strings.ToLower(value), "expandable_segments:true") {
			return nil, fmt.Errorf("%s: vLLM's sleep mode does not work with expandable_segments; leave it out, or set engine.sleep to 0", entry)
		}
		env = append(env, entry)
	}
	// The key is here because arguments are everybody's to read.
	return append(env, "PYTHONPATH="+pythonPath(o.Folder, valueOf(env, "PYTHONPATH")), "VLLM_API_KEY="+o.APIKey), nil
}

// valueOf is the value of a variable, "" for none.
func valueOf(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// chosen are the devices of those that this process sees, "" for all.
func chosen(devices []int, visible string) (string, error) {
	var names, all []string
	if visible != "" {
		all = strings.Split(visible, ",")
	}
	for _, d := range devices {
		name := strconv.Itoa(d)
		if all != nil {
			if d >= len(all) {
				return "", fmt.Errorf("there is no CUDA device %d: %s=%s shows %d", d, visibleDevices, visible, len(all))
			}
			name = strings.TrimSpace(all[d])
		}
		names = append(names, name)
	}
	return strings.Join(names, ","), nil
}

// pythonPath puts a folder before those of a PYTHONPATH. Empty entries, which stand for the working folder, are left out:
// there a file called torch.py would stand in for PyTorch.
func pythonPath(folder, before string) string {
	path := []string{folder}
	for _, p := range filepath.SplitList(before) {
		if p != "" {
			path = append(path, p)
		}
	}
	return strings.Join(path, string(os.PathListSeparator))
}
