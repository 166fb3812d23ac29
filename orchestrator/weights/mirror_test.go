package weights

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
)

// tiny is the model of examples/tiny.yaml.
func tiny(t *testing.T) *policy.Policy {
	t.Helper()
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// On a device the engine reads the policy's own model; a copy on the CPU only where the job says so or wants the same bits each time.
func TestWhatTheLocalEngineReads(t *testing.T) {
	p := tiny(t)
	for _, x := range []struct {
		device, note string // a regular expression; empty: none
		sets         []string
		copied       bool
	}{
		{"cpu", "", []string{"deterministic=false"}, false},
		{"cpu", "", []string{"engine.device=cpu"}, false},
		{"cuda:0", "^the local engine samples on cuda:0 too, ", []string{"deterministic=false"}, false},
		{"cuda:0", "^the local engine samples on cuda:0 too, ", []string{"deterministic=false", "trainer.shard=fsdp", "model.dtype=bfloat16", "trainer.tensor_parallel=2"}, false},
		{"cuda:0", `does not \(engine.device: cpu\): it decodes on \d+ CPUs`, []string{"engine.device=cpu", "deterministic=false"}, true},
		{"cuda:0", `does not \(deterministic: true\): it decodes on \d+ CPUs`, nil, true},
	} {
		j, err := job.Load("../../examples/tiny.yaml", x.sets...)
		require.NoError(t, err)
		said := ""
		w := Sync{c: Config{Job: j, Policy: p, Note: func(text string) { said += text }}}
		model, computes, err := w.decoded(x.device)
		require.NoError(t, err)
		require.Regexp(t, x.note, said)
		require.Equal(t, x.note == "", said == "", said)
		require.Equal(t, x.copied, w.mirror != nil, x.sets)
		if x.copied {
			require.Same(t, w.mirror.model, model)
			require.Equal(t, "cpu", computes.Device)
		} else {
			require.Same(t, p.Model, model)
			require.Equal(t, x.device, computes.Device)
		}
		require.NoError(t, w.Close())
	}
	j, err := job.Load("../../examples/tiny.yaml", "deterministic=false", "engine.dtype=bfloat16")
	require.NoError(t, err)
	w := Sync{c: Config{Job: j, Policy: p}}
	_, _, err = w.decoded("cuda:0")
	require.ErrorContains(t, err, "engine.dtype: bfloat16, but on cuda:0 the local engine reads the weights")
	require.Nil(t, w.mirror)
}

// What a job with engine.device: cpu does that trains on a device: the engine reads a copy, which every update of the policy renews behind the
// engine's barrier. An update that fails leaves the copy and the version.
func TestTheEnginesCopyFollowsThePolicy(t *testing.T) {
	p := tiny(t)
	w := Sync{}
	defer func() { require.NoError(t, w.Close()) }()
	j, err := job.Load("../../examples/tiny.yaml", "device=cpu")
	require.NoError(t, err)
	require.NoError(t, w.Open(t.Context(), Config{Job: j, Policy: p}))
	require.Nil(t, w.mirror, "on the CPU the engine reads the policy's own weights")
	require.NoError(t, w.engine.Close())
	w.mirror, err = newMirror(p.Model)
	require.NoError(t, err)
	w.engine, err = local.New(w.mirror.model, local.Options{CacheTokens: 256, MaxSequences: 2, MaxModelLen: 64, Decoder: p.Tokenizer})
	require.NoError(t, err)

	note := w.mirror.note("cuda:0", "engine.device: cpu")
	require.Regexp(t, `^training runs on cuda:0; the local engine does not \(engine.device: cpu\): it decodes on \d+ CPUs, from a float32 copy of the weights of 295 KiB that every update renews\. `, note)
	require.Contains(t, note, "Without that setting it samples on cuda:0", "what to do")
	require.NotContains(t, note, "\n")

	name := p.Model.Parameters()[0].Name
	same := func() bool {
		want, err := p.Model.Parameter(name)
		require.NoError(t, err)
		got, err := w.mirror.model.Parameter(name)
		require.NoError(t, err)
		for i := range want {
			if want[i] != got[i] {
				return false
			}
		}
		return true
	}
	require.True(t, same())
	version := int32(0)
	update := w.Barrier(&version)
	broken := errors.New("no")
	require.ErrorIs(t, update(context.Background(), func(context.Context) error { return broken }), broken)
	require.Zero(t, version)
	require.NoError(t, update(context.Background(), func(context.Context) error { return p.Model.Init(99, 0.1) }))
	require.Equal(t, int32(1), version)
	require.True(t, same())
	require.NoError(t, p.Model.Init(100, 0.1))
	require.False(t, same(), "the comparison can fail")
}
