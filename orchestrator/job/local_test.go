package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The local engine computes where the trainer does and in its type, unless the job says otherwise or wants the same bits each time.
func TestWhereTheLocalEngineComputes(t *testing.T) {
	load := func(sets ...string) *Job {
		j, err := Load("../../examples/tiny.yaml", sets...)
		require.NoError(t, err)
		return j
	}
	for _, x := range []struct {
		device string
		sets   []string
		want   Local
	}{
		{"cuda:1", []string{"deterministic=false"}, Local{Device: "cuda:1"}},
		{"cuda", []string{"deterministic=false", "model.dtype=bfloat16"}, Local{Device: "cuda", BFloat16: true}},
		{"cuda", []string{"deterministic=false", "model.dtype=bfloat16", "engine.dtype=bfloat16"}, Local{Device: "cuda", BFloat16: true}},
		{"cuda", []string{"deterministic=false", "engine.dtype=float32"}, Local{Device: "cuda"}},
		{"cuda", []string{"model.dtype=bfloat16"}, Local{Device: "cpu", Why: "deterministic: true"}},
		{"cuda", []string{"engine.device=cpu", "engine.dtype=bfloat16"}, Local{Device: "cpu", BFloat16: true, Why: "engine.device: cpu"}},
		{"cpu", []string{"deterministic=false", "model.dtype=bfloat16"}, Local{Device: "cpu"}},
		{"cpu", []string{"engine.device=cpu", "engine.dtype=bfloat16"}, Local{Device: "cpu", BFloat16: true}},
	} {
		got, err := load(x.sets...).Local(x.device)
		require.NoError(t, err, "%v", x.sets)
		require.Equal(t, x.want, got, "%s %v", x.device, x.sets)
	}

	_, err := load("deterministic=false", "engine.dtype=bfloat16").Local("cuda:0")
	require.EqualError(t, err, "--set engine.dtype=bfloat16: engine.dtype: bfloat16, but on cuda:0 the local engine reads the weights that the trainer computes with, which are float32 (model.dtype); leave engine.dtype out, set model.dtype: bfloat16, or sample on the CPUs with engine.device: cpu")
	_, err = load("deterministic=false", "engine.dtype=float32", "model.dtype=bfloat16").Local("cuda:0")
	require.ErrorContains(t, err, "float32, but on cuda:0 the local engine reads the weights that the trainer computes with, which are bfloat16 (model.dtype); leave engine.dtype out, or sample on the CPUs with engine.device: cpu")
}

func TestTheEnginesDeviceIsTheLocalOnes(t *testing.T) {
	for kind, sets := range map[string][]string{
		"vllm": {"engine={kind: vllm, urls: [http://a:1], device: cpu}"}, "openai": {"engine={kind: openai, urls: [http://a:1/v1], served_model: m, device: cpu}"},
	} {
		_, err := Load("../../examples/tiny.yaml", append(sets, "deterministic=false")...)
		require.ErrorContains(t, err, "engine.device: only the kind local takes it; leave it out", kind)
	}
	_, err := Load("../../examples/tiny.yaml", "engine={kind: parrot, device: cpu}")
	require.ErrorContains(t, err, "engine.device: only the kind local takes it; an engine of kind")
	_, err = Load("../../examples/tiny.yaml", "engine.device=cuda")
	require.ErrorContains(t, err, "engine.device")
}
