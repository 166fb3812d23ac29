package weights

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// scriptedCUDA compiles the scripted driver, whose handles are paths of files.
func scriptedCUDA(t *testing.T) (library string) {
	folder, err := os.MkdirTemp("", "ipc") // short: a path must fit into a handle
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	library = filepath.Join(folder, "libcuda.so.1")
	out, err := exec.Command("g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library, "../../cgo/testdata/scripted_cuda_driver.cc").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv("SCRIPTED_CUDA", folder)
	return library
}

// Weights from the trainer's memory into a real vLLM that computes in bfloat16, without a checkpoint: through shared memory, over Gloo, and
// by handles of device memory, in whose place are files (the scripted driver at the one end, scripted_ipc.py at the other). Nothing
// of this ran on a GPU.
func TestRealTensors(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test-vllm runs it with libtorch")
	}
	if os.Getenv("AGENTFLY_VLLM") == "" {
		t.Skip("no vLLM: AGENTFLY_VLLM is not set; run make test-vllm")
	}
	driver := scriptedCUDA(t)
	extension, err := filepath.Abs("../../engines/vllm/testdata")
	require.NoError(t, err)
	models := os.Getenv("AGENTFLY_VLLM_MODELS")
	server, err := vllm.Serve(t.Context(), vllm.ServeOptions{
		Command: os.Getenv("AGENTFLY_VLLM"), Model: filepath.Join(models, "a"), MaxModelLen: 1024, CPU: true, DType: "bfloat16", Folder: t.TempDir(),
		Timeout: 20 * time.Minute, Env: []string{"PYTHONPATH=" + extension}, Args: []string{"--worker-extension-cls", "scripted_ipc.Extension"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	connect := func(way vllm.Way) *vllm.Engine {
		e, err := vllm.New(t.Context(), vllm.Options{
			URLs: []string{server.URL}, APIKey: server.APIKey, Way: way, Run: "tensors", Collectives: collectives{device: "cpu"}, ChunkBytes: 100_000,
		})
		require.NoError(t, err)
		return e
	}
	version := int32(0)
	update := func(e *vllm.Engine, p *policy.Policy, probed *policy.Policy, dtype cgo.DType, ipc bool) error {
		weights := newTensors(p.Model, dtype, ipc)
		weights.driver = driver
		defer func() { require.NoError(t, weights.free()) }()
		probe := engines.Probe{Tolerance: vllm.Tolerance(e.Servers()[0].DType)}
		for i := range int32(64) {
			probe.TokenIDs = append(probe.TokenIDs, 40+i*7%64)
		}
		probe.Logprobs, _, err = trainer.LogprobsOf(probed.Model, probe.TokenIDs, 1)
		require.NoError(t, err)
		version++
		return e.Update(t.Context(), engines.Weights{Version: version, Tensors: weights, Probe: &probe})
	}
	var policies []*policy.Policy
	for _, name := range []string{"a", "b"} {
		p, err := policy.Load(filepath.Join(models, name), policy.Options{Device: "cpu"})
		require.NoError(t, err)
		defer p.Close()
		policies = append(policies, p)
	}
	a, b := policies[0], policies[1]
	for i, way := range []vllm.Way{vllm.WayTransfer, vllm.WayIPC, vllm.WayGloo} {
		e := connect(way)
		require.Equal(t, "bfloat16", e.Servers()[0].DType)
		require.False(t, e.Servers()[0].LoRA, "it was not started for adapters")
		require.NoError(t, update(e, b, b, cgo.BF16, way == vllm.WayIPC), way)
		require.NoError(t, update(e, a, a, cgo.F32, way == vllm.WayIPC), way)
		var far *vllm.ProofError
		require.ErrorAs(t, update(e, a, b, cgo.BF16, way == vllm.WayIPC), &far, "other weights are outside of the tolerance")
		t.Logf("%s: %v", way, far)
		if i == 0 {
			stale := newTensors(a.Model, cgo.BF16, false)
			a.Model.Changed()
			err := e.Update(t.Context(), engines.Weights{Version: 99, Tensors: stale, Probe: &engines.Probe{TokenIDs: []int32{1, 2}, Logprobs: []float32{-1}, Tolerance: 1}})
			require.ErrorIs(t, err, errChanged)
		}
		require.NoError(t, e.Close())
	}
}
