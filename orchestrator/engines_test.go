package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// What NCCL lacks is said when the job is read, not after the first rollout.
func TestNCCLIsRefusedEarly(t *testing.T) {
	if cgo.CUDADevices() > 0 {
		t.Skip("this machine has a CUDA device, so that nothing is refused")
	}
	why := "libtorch sees no CUDA device here"
	if !cgo.Available() {
		why = "this binary was built without the torch tag; run make build, which fetches libtorch and sets it"
	}
	j, err := job.Load(vllmJob, "engine.weights=nccl", "device=auto")
	require.NoError(t, err)
	require.ErrorContains(t, Validate(t.Context(), j, prebuilt(t)), "engine.weights: nccl: "+why+"; use gloo, transfer or disk")
	j, err = job.Load(vllmJob, "engine.weights=nccl", "device=cpu")
	require.NoError(t, err)
	require.ErrorContains(t, Validate(t.Context(), j, prebuilt(t)), "engine.weights: nccl: the trainer is on the CPU (device: cpu), and NCCL sends from a CUDA device; use gloo, transfer or disk")
}
