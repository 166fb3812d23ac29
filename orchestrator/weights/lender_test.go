package weights

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
)

// diary is a scripted trainer and engine that write down what they are asked.
type diary struct {
	*scripted.Engine
	lines  []string
	given  []engines.Weights // by Update
	broken error             // of LendMemory
}

func (d *diary) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, WeightUpdates: true, MaxModelLen: 64}
}

func (d *diary) Update(_ context.Context, w engines.Weights) error {
	d.lines, d.given = append(d.lines, "wake"), append(d.given, w)
	return nil
}

func (d *diary) Sleep(context.Context) error {
	d.lines = append(d.lines, "sleep")
	return nil
}

func (d *diary) LendMemory(context.Context) error {
	d.lines = append(d.lines, "lend")
	return d.broken
}

func (d *diary) ReclaimMemory(context.Context) error {
	d.lines = append(d.lines, "reclaim")
	return nil
}

// Trainer and servers share a device: neither takes memory before the other has given it.
func TestMemoryIsLentBeforeTheServersWake(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	j, err := job.Load("../../examples/tiny.yaml", "device=cpu", "deterministic=false", "engine={kind: vllm, urls: [http://a:1], folder: "+t.TempDir()+"}")
	require.NoError(t, err)
	p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	worker := cgo.NewWorker()
	defer worker.Close()
	run := func(sleep int, d *diary) error {
		s := Sync{c: Config{Job: j, Policy: p, Worker: worker}, engine: d, sleep: sleep, Lender: d}
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.makeFolder())
		if err := s.Begin(t.Context(), 0); err != nil {
			return err
		}
		if err := s.Rest(t.Context()); err != nil {
			return err
		}
		return s.Push(t.Context(), 1)
	}
	d := &diary{Engine: scripted.New(scripted.Options{})}
	require.NoError(t, run(1, d))
	require.Equal(t, []string{"lend", "wake", "sleep", "reclaim", "lend", "wake"}, d.lines)
	d = &diary{Engine: scripted.New(scripted.Options{})}
	require.NoError(t, run(0, d))
	require.Equal(t, []string{"wake", "wake"}, d.lines, "the servers have a device of their own")
	d = &diary{Engine: scripted.New(scripted.Options{}), broken: errors.New("no room on the host")}
	require.ErrorIs(t, run(1, d), d.broken)
	require.Equal(t, []string{"lend"}, d.lines, "nobody wakes")
}

// A step that moves nothing wakes the servers with the weights that they have, whose files are not written again.
func TestAStepThatMovesNothingWakesTheServers(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	for way, file := range map[string]string{"disk": "model.safetensors", "lora": "adapter_model.safetensors"} {
		t.Run(way, func(t *testing.T) {
			j, err := job.Load("../../examples/tiny.yaml", "device=cpu", "engine.folder="+t.TempDir(), "engine.kind=vllm", "engine.urls=[http://localhost:1]",
				"engine.served_model=tiny", "engine.weights="+way, "engine.sleep=1", "model.lora.rank=2")
			require.NoError(t, err)
			p, err := policy.Load("../../examples/tiny/model", policy.Options{Device: "cpu"})
			require.NoError(t, err)
			defer p.Close()
			require.NoError(t, p.Model.AddAdapter(cgo.AdapterConfig{Rank: 2, Alpha: 4, Seed: 1}))
			worker := cgo.NewWorker()
			defer worker.Close()
			d := &diary{Engine: scripted.New(scripted.Options{})}
			s := Sync{c: Config{Job: j, Policy: p, Worker: worker}, engine: d, sleep: 1}
			defer func() { require.NoError(t, s.Close()) }()
			require.NoError(t, s.makeFolder())
			require.NoError(t, s.Begin(t.Context(), 0))
			written, err := os.Stat(filepath.Join(d.given[0].Path, file))
			require.NoError(t, err)
			require.NoError(t, s.Rest(t.Context()))
			require.NoError(t, s.Push(t.Context(), 0))
			require.Equal(t, []string{"wake", "sleep", "wake"}, d.lines)
			require.Equal(t, d.given[0], d.given[1])
			now, err := os.Stat(filepath.Join(d.given[1].Path, file))
			require.NoError(t, err)
			require.True(t, os.SameFile(written, now))
		})
	}
}
