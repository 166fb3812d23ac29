package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/resources"
)

// loader is an engine as somebody else would write one: it has weights of its own, which it reads from the folder of each update, and proves
// that it computes with them.
type loader struct {
	setup   engines.Setup
	mu      sync.Mutex
	policy  *policy.Policy
	engine  *local.Engine
	updates *[]string
}

func (l *loader) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	l.mu.Lock()
	e := l.engine
	l.mu.Unlock()
	if e == nil {
		return engines.Completion{}, errors.New("loader: no weights came")
	}
	return e.Generate(ctx, r)
}

func (l *loader) Update(ctx context.Context, w engines.Weights) error {
	if err := w.Probe.Validate(); err != nil {
		return fmt.Errorf("loader: %w", err)
	}
	p, err := policy.Load(w.Path, policy.Options{Device: "cpu"})
	if err != nil {
		return err
	}
	e, err := local.New(p.Model, local.Options{CacheTokens: 8192, MaxSequences: 128, MaxModelLen: l.setup.MaxContext, Decoder: p.Tokenizer})
	if err != nil {
		return err
	}
	none := func(context.Context) error { return nil }
	if err := e.Update(ctx, engines.Weights{Version: w.Version, Apply: none}); err != nil {
		return err
	}
	got, err := e.Logprobs(ctx, w.Probe.TokenIDs)
	if err != nil {
		return err
	}
	for i := range got {
		if math.Abs(float64(got[i]-w.Probe.Logprobs[i])) > w.Probe.Tolerance {
			return fmt.Errorf("loader: version %d: logprob %d is %v, the trainer's is %v", w.Version, i, got[i], w.Probe.Logprobs[i])
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policy, l.engine = p, e
	*l.updates = append(*l.updates, filepath.Base(w.Path))
	return nil
}

func (l *loader) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, WeightUpdates: true, BatchInvariant: true, MaxModelLen: l.setup.MaxContext}
}

func (l *loader) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil {
		return nil
	}
	err := errors.Join(l.engine.Close(), l.policy.Close())
	l.engine, l.policy = nil, nil
	return err
}

// with is command with options of the program.
func with(options []agentfly.Option, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = agentfly.Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(""), &o, &e, options...)
	return status, o.String(), e.String()
}

// An engine of a program's own trains the job that names it. This one computes what the local engine computes, so the run has the same
// trajectories, and the same weights.
func TestAnEngineOfAProgramTrains(t *testing.T) {
	needTorch(t)
	dir := t.TempDir()
	var updates []string
	options := []agentfly.Option{agentfly.WithEngineFactory("loader", "loads each version of the weights", func(_ context.Context, s engines.Setup) (engines.Engine, error) {
		return &loader{setup: s, updates: &updates}, resources.Decode(s.Params, &struct{}{})
	})}
	run := func(name string, more ...string) []byte {
		status, out, errs := with(options, append([]string{
			"train", "examples/tiny.yaml", "--output", filepath.Join(dir, name), "--set", "trainer.steps=3", "--set", "device=cpu",
		}, more...)...)
		require.Zero(t, status, "%s%s", out, errs)
		data, err := os.ReadFile(filepath.Join(dir, name, "checkpoints", "last", "model.safetensors"))
		require.NoError(t, err)
		return data
	}
	own := run("loader", "--set", "engine={kind: loader, folder: "+dir+"/weights}")
	require.Equal(t, []string{"version-0", "version-1", "version-2", "version-3"}, updates)
	require.True(t, bytes.Equal(run("local"), own), "the weights after three steps")
	left, err := os.ReadDir(filepath.Join(dir, "weights"))
	require.NoError(t, err)
	require.Empty(t, left, "the checkpoints are removed")

	status, _, errs := with(options, "train", "examples/tiny.yaml", "--output", filepath.Join(dir, "x"), "--set", "engine={kind: loader, params: {speed: 3}}")
	require.Equal(t, 2, status)
	require.Contains(t, errs, `engine: loader: the parameters cannot be read: unknown field "speed"`)
}

// reader samples with its own weights alone.
type reader struct{ *scripted.Engine }

func (reader) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, MaxModelLen: 64}
}

func (reader) Update(context.Context, engines.Weights) error { return errors.New("reader: no updates") }

// An engine that takes no weights evaluates and rolls out; who trains with it reads that it cannot, and no run folder is left.
func TestAnEngineWithoutUpdatesEvaluates(t *testing.T) {
	needTorch(t)
	one := func() []agentfly.Option {
		return []agentfly.Option{agentfly.WithEngine("reader", reader{scripted.New(scripted.Options{Respond: scripted.Model(22), MaxModelLen: 64, Decode: func([]int32) string { return "" }})})}
	}
	status, out, errs := with(one(), "eval", "examples/tiny.yaml", "--set", "deterministic=false", "--set", "engine={kind: reader}", "--set", "data.train=", "--set", "data.eval=tiny/tasks.jsonl", "--set", "eval.tasks=4")
	require.Zero(t, status, errs)
	require.Contains(t, out, `"tasks":4`)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs = with(one(), "train", "examples/tiny.yaml", "--output", dir, "--set", "deterministic=false", "--set", "engine={kind: reader}")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "engine.kind: reader: training needs an engine that takes each step's weights, and this one takes none (no capability WeightUpdates); use it for rollout and eval")
	require.NoDirExists(t, dir)
}
