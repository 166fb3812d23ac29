package weights

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
)

// Ways that take weights from the trainer's memory write no checkpoint, and send the type that all servers compute in.
func TestWeightsFromTheTrainersMemory(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	made := func(types []string, sets ...string) engines.Weights {
		j, err := job.Load("../../examples/tiny_vllm.yaml", sets...)
		require.NoError(t, err)
		s := Sync{c: Config{Job: j, Policy: p}, folder: t.TempDir(), types: types}
		w, err := s.weights(3)
		require.NoError(t, err)
		require.Equal(t, int32(3), w.Version)
		return w
	}
	require.Nil(t, made(nil).Tensors, "disk")
	require.Nil(t, made(nil, "engine.weights=auto").Tensors)
	for _, way := range []string{"transfer", "gloo", "nccl", "ipc"} {
		w := made([]string{"bfloat16", "float32"}, "engine.weights="+way)
		require.Empty(t, w.Path)
		require.Equal(t, "float32", w.Tensors.List()[0].DType, "a server computes in it")
		require.Equal(t, "bfloat16", made([]string{"bfloat16", "bfloat16"}, "engine.weights="+way).Tensors.List()[0].DType)
		require.Equal(t, "float32", made([]string{""}, "engine.weights="+way).Tensors.List()[0].DType, "a server does not tell")
	}

	w := newTensors(p.Model, cgo.F32, false)
	defer func() { require.NoError(t, w.free()) }()
	list := w.List()
	for first := range list {
		end := min(first+2, len(list))
		var want []byte
		for _, info := range list[first:end] {
			values, err := p.Model.Parameter(info.Name)
			require.NoError(t, err)
			data, err := modelfile.Encode(nil, values, modelfile.F32)
			require.NoError(t, err)
			want = append(want, data...)
		}
		require.NoError(t, w.Pack(t.Context(), first, end, func(c engines.Packed) error {
			got := make([]byte, c.Size())
			require.NoError(t, c.Read(got))
			require.Equal(t, want, got)
			return nil
		}))
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(engines.Packed) error { panic("it is not called") }
	require.ErrorIs(t, w.Pack(cancelled, 0, 1, never), context.Canceled)
	p.Model.Changed()
	require.ErrorIs(t, w.Pack(t.Context(), 0, 1, never), errChanged)
}

// A replica that comes back between two updates takes the weights too. It leaves no buffer on the trainer's device, which nobody would give back
// before the next update.
func TestNoBufferStaysBetweenUpdates(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	w := newTensors(p.Model, cgo.F32, false)
	pack := func(use func(engines.Packed) error) error { return w.Pack(t.Context(), 0, len(w.List()), use) }
	read := func(c engines.Packed) error { return c.Read(make([]byte, c.Size())) }
	require.NoError(t, pack(read))
	require.NotNil(t, w.buffer, "an update packs chunk after chunk, for every replica")
	require.NoError(t, w.free())
	require.Nil(t, w.buffer)
	for range 2 {
		require.NoError(t, pack(read))
		require.Nil(t, w.buffer)
	}
	refused := errors.New("the replica is gone")
	require.ErrorIs(t, pack(func(engines.Packed) error { return refused }), refused)
	require.Nil(t, w.buffer)
}
