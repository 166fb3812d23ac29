package weights

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// What rounding to bfloat16 does to a real model's logprobs, a proof in bfloat16 takes on every probe, with a margin in the mean; float32's refuses it.
func TestToleranceOfBFloat16(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	const smolLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
	if _, err := modelfile.Resolve(smolLM2); err != nil {
		t.Skipf("SmolLM2 is not on this machine: %v", err)
	}
	exact, err := policy.Load(smolLM2, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer exact.Close()
	rounded, err := policy.Load(smolLM2, policy.Options{Device: "cpu", BFloat16: true})
	require.NoError(t, err)
	defer rounded.Close()
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, probeTokens))
		var ids []int32
		for range probeTokens {
			ids = append(ids, int32(r.IntN(exact.Config.VocabSize)))
		}
		want, _, err := trainer.LogprobsOf(exact.Model, ids, 1)
		require.NoError(t, err)
		got, _, err := trainer.LogprobsOf(rounded.Model, ids, 1)
		require.NoError(t, err)
		var apart []float64
		mean := 0.0
		for i := range want {
			d := math.Abs(float64(got[i] - want[i]))
			apart, mean = append(apart, d), mean+d/float64(len(want))
		}
		slices.Sort(apart)
		t.Logf("probe %d: largest %.3f and %.3f, mean %.3f", seed, apart[len(apart)-1], apart[len(apart)-2], mean)
		probe := fmt.Sprint("probe ", seed)
		require.NoError(t, vllm.Compare(probe, got, want, 1, vllm.Tolerance("bfloat16")))
		require.Less(t, 1.4*mean, vllm.Tolerance("bfloat16")/vllm.MeanShare, probe)
		require.Error(t, vllm.Compare(probe, got, want, 1, vllm.Tolerance("float32")))
	}
}
