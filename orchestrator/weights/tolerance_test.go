package weights

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// The tolerance of bfloat16 is 1.6 times what rounding does to a real model's logprobs of a probe, and float32's would refuse it.
func TestToleranceOfBFloat16(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	const smolLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
	if _, err := modelfile.Resolve(smolLM2); err != nil {
		t.Skipf("SmolLM2 is not on this machine: %v", err)
	}
	most, mostMean := 0.0, 0.0
	exact, err := policy.Load(smolLM2, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer exact.Close()
	rounded, err := policy.Load(smolLM2, policy.Options{Device: "cpu", BFloat16: true})
	require.NoError(t, err)
	defer rounded.Close()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, probeTokens))
		var ids []int32
		for range probeTokens {
			ids = append(ids, int32(r.IntN(exact.Config.VocabSize)))
		}
		want, _, err := trainer.LogprobsOf(exact.Model, ids, 1)
		require.NoError(t, err)
		got, _, err := trainer.LogprobsOf(rounded.Model, ids, 1)
		require.NoError(t, err)
		of, mean := 0.0, 0.0
		for i := range want {
			d := math.Abs(float64(got[i] - want[i]))
			of, mean = max(of, d), mean+d/float64(len(want))
		}
		t.Logf("probe %d: largest %.3f, mean %.3f", seed, of, mean)
		most, mostMean = max(most, of), max(mostMean, mean)
	}
	require.Less(t, 1.6*most, vllm.Tolerance("bfloat16"))
	require.Less(t, 1.4*mostMean, vllm.Tolerance("bfloat16")/vllm.MeanShare)
	require.Greater(t, most, 10*vllm.Tolerance("float32"))
}
