package vllm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is set for the trainer is not the server's: the settings of its allocator and what a launcher tells its ranks.
func TestEnvironmentOfAServer(t *testing.T) {
	own := []string{
		"HOME=/h", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF=expandable_segments:True", "RANK=0", "WORLD_SIZE=8",
		"LOCAL_RANK=0", "MASTER_ADDR=h", "MASTER_PORT=1", "TORCHELASTIC_RUN_ID=x", "PYTHONPATH=:/p", "CUDA_VISIBLE_DEVICES=4,GPU-5, 6",
	}
	env, err := environment(own, ServeOptions{Folder: "/f", APIKey: "k"})
	require.NoError(t, err)
	require.Equal(t, "HOME=/h PYTHONPATH=:/p CUDA_VISIBLE_DEVICES=4,GPU-5, 6 "+strings.Join(updatable, " ")+" PYTHONPATH=/f:/p VLLM_API_KEY=k", strings.Join(env, " "))

	set := ServeOptions{
		Folder: "/f", APIKey: "k", CPU: true, LoRARank: 8, Devices: []int{2, 1},
		Env: []string{"PYTHONPATH=/mine", "HOME=/other", "PYTORCH_ALLOC_CONF=expandable_segments:True", "VLLM_API_KEY=guess"},
	}
	env, err = environment(own, set)
	require.NoError(t, err)
	for name, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES": "6,GPU-5", "PYTHONPATH": "/f:/mine", "HOME": "/other", "PYTORCH_ALLOC_CONF": "expandable_segments:True", "RANK": "",
		"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_API_KEY": "k",
	} {
		require.Equal(t, want, valueOf(env, name), name)
	}
	set.Sleep = true
	_, err = environment(own, set)
	require.EqualError(t, err, "PYTORCH_ALLOC_CONF=expandable_segments:True: vLLM's sleep mode does not work with expandable_segments; leave it out, or set engine.sleep to 0")
	_, err = environment(own, ServeOptions{Devices: []int{3}})
	require.EqualError(t, err, "there is no CUDA device 3: CUDA_VISIBLE_DEVICES=4,GPU-5, 6 shows 3")
	env, err = environment(nil, ServeOptions{Devices: []int{3, 0}})
	require.NoError(t, err)
	require.Equal(t, "3,0", valueOf(env, visibleDevices))
}

// Adapters cost a server memory and slower kernels, so it takes them where they are asked for.
func TestAdaptersOfAServer(t *testing.T) {
	o := ServeOptions{Model: "m", DType: "bfloat16", Backend: "agentfly"}
	plain := strings.Join(ServeArgs(o), " ")
	require.NotContains(t, plain, "lora")
	require.Contains(t, plain, "--dtype bfloat16")
	o.LoRARank = 16
	require.Contains(t, strings.Join(ServeArgs(o), " "), "--enable-lora --max-lora-rank 16 --max-loras 2")
}
