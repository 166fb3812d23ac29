package orchestrator

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// What a job does that trains on a device: the engine reads a copy, which every update of the policy renews behind the
// engine's barrier. An update that fails leaves the copy and the version.
func TestTheEnginesCopyFollowsThePolicy(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	j, err := job.Load("../examples/tiny.yaml")
	require.NoError(t, err)
	s := newSession(j)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.equip(t.Context(), prebuilt(t)))
	require.NoError(t, s.open(t.Context(), ""))
	require.Nil(t, s.weights.mirror, "on the CPU the engine reads the policy's own weights")
	require.NoError(t, s.weights.engine.Close())
	s.weights.mirror, err = newMirror(s.policy.Model)
	require.NoError(t, err)
	s.weights.engine, err = local.New(s.weights.mirror.model, local.Options{CacheTokens: 256, MaxSequences: 2, MaxModelLen: 64, Decoder: s.policy.Tokenizer})
	require.NoError(t, err)

	name := s.policy.Model.Parameters()[0].Name
	same := func() bool {
		want, err := s.policy.Model.Parameter(name)
		require.NoError(t, err)
		got, err := s.weights.mirror.model.Parameter(name)
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
	update := s.weights.Barrier(&version)
	broken := errors.New("no")
	require.ErrorIs(t, update(context.Background(), func(context.Context) error { return broken }), broken)
	require.Zero(t, version)
	require.NoError(t, update(context.Background(), func(context.Context) error { return s.policy.Model.Init(99, 0.1) }))
	require.Equal(t, int32(1), version)
	require.True(t, same())
	require.NoError(t, s.policy.Model.Init(100, 0.1))
	require.False(t, same(), "the comparison can fail")
}
