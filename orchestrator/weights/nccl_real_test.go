package weights

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// ncclCalls are those that a rank made, of the scripted library's log.
func ncclCalls(t *testing.T, folder, rank string) []string {
	text, err := os.ReadFile(filepath.Join(folder, "calls."+rank))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// Weights over NCCL into a real vLLM: its own engine, communicator and unpacking at the one end, our path at the other. In
// the place of libnccl.so.2 is the scripted library, which moves the bytes in files, and in that of CUDA the host's memory:
// nothing of this ran on a GPU.
func TestRealNCCLTransfer(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test-vllm runs it with libtorch")
	}
	if os.Getenv("AGENTFLY_VLLM") == "" {
		t.Skip("no vLLM: AGENTFLY_VLLM is not set; run make test-vllm")
	}
	if os.Getenv("AGENTFLY_LONG") == "" {
		t.Skip("three minutes: AGENTFLY_LONG=1 make test-vllm runs it")
	}
	folder, err := os.MkdirTemp("", "nccl") // short: it must fit into a unique id
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	library := filepath.Join(folder, "libnccl.so.2")
	out, err := exec.Command("g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library, "../../cgo/testdata/scripted_nccl.cc").CombinedOutput()
	require.NoError(t, err, string(out))
	extension, err := filepath.Abs("../../engines/vllm/testdata")
	require.NoError(t, err)
	t.Setenv("PYTHONPATH", extension)
	t.Setenv("SCRIPTED_NCCL", folder)
	t.Setenv("VLLM_NCCL_SO_PATH", library)

	models := os.Getenv("AGENTFLY_VLLM_MODELS")
	server, err := vllm.Serve(t.Context(), vllm.ServeOptions{
		Command: os.Getenv("AGENTFLY_VLLM"), Model: filepath.Join(models, "a"), MaxModelLen: 1024, CPU: true, Backend: "nccl",
		Folder: t.TempDir(), Args: []string{"--worker-extension-cls", "scripted_cuda.Extension"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	e, err := vllm.New(t.Context(), vllm.Options{
		URLs: []string{server.URL}, APIKey: server.APIKey, Way: vllm.WayNCCL, Collectives: collectives{device: "cpu", nccl: library}, ChunkBytes: 100_000,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	update := func(name string, version int32) error {
		path := filepath.Join(models, name)
		p, err := policy.Load(path, policy.Options{Device: "cpu"})
		require.NoError(t, err)
		defer p.Close()
		probe := engines.Probe{Tolerance: 1e-3}
		for i := range int32(64) {
			probe.TokenIDs = append(probe.TokenIDs, 40+i*7%64)
		}
		probe.Logprobs, _, err = trainer.LogprobsOf(p.Model, probe.TokenIDs, 1)
		require.NoError(t, err)
		return e.Update(t.Context(), engines.Weights{Version: version, Path: path, Probe: &probe})
	}
	require.NoError(t, update("b", 1), "the server began with a; its logprobs are b's now")
	sent, taken := ncclCalls(t, folder, "0"), ncclCalls(t, folder, "1")
	require.Equal(t, []string{"unique id", "init rank 0 of 2 without blocking", "all-reduce 1 float32, sum"}, sent[:3])
	require.Equal(t, []string{"init rank 1 of 2", "all-reduce 1 float32, sum"}, taken[:2])
	require.Equal(t, sent[3:], taken[2:], "the same broadcasts, and the end")
	require.Greater(t, len(sent), 8, "several chunks")
	require.Equal(t, "abort", sent[len(sent)-1])
	t.Logf("chunks: %v", sent[3:len(sent)-1])

	require.NoError(t, update("a", 2), "a second update makes a second group")
	t.Setenv("SCRIPTED_NCCL_FAULT", "late-error 2")
	err = update("b", 3)
	require.ErrorContains(t, err, "vllm: update to version 3: "+server.URL+": load: chunk 1 (")
	require.ErrorContains(t, err, "cgo: nccl: ncclBroadcast: remote process exited or there was a network error")
	require.NotContains(t, err.Error(), "\n")
}
