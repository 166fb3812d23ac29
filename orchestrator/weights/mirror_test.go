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

// What a job does that trains on a device: the engine reads a copy, which every update of the policy renews behind the
// engine's barrier. An update that fails leaves the copy and the version.
func TestTheEnginesCopyFollowsThePolicy(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
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

	note := w.mirror.note("cuda:0")
	require.Regexp(t, `^training runs on cuda:0; the local engine does not: it decodes on \d+ CPUs, from a float32 copy of the weights of 295 KiB that every update renews\. `, note)
	require.Contains(t, note, "engine.kind: vllm", "what to do")
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
