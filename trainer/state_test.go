//go:build torch

package trainer

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/tensors"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
)

func TestResumeIsBitIdentical(t *testing.T) {
	config := tinyConfig()
	config.Schedule = Schedule{LearningRate: 1e-2, Kind: "cosine", Warmup: 1, Total: 5}
	config.AdamW.WeightDecay = 0.1
	run := func(p *policy.Policy, tr *Trainer, from, to int) {
		for i := from; i < to; i++ {
			b := someBatch(t, tr, uint64(20+i), 0.05)
			b.Step = i
			_, err := tr.Step(context.Background(), b)
			require.NoError(t, err)
		}
	}
	whole := policytest.Make(t, 9)
	a := makeTrainer(t, whole, resolveBlock(t, "{}"), config)
	run(whole, a, 0, 4)

	first := policytest.Make(t, 9)
	b := makeTrainer(t, first, resolveBlock(t, "{}"), config)
	run(first, b, 0, 2)
	dir := t.TempDir()
	require.NoError(t, first.SaveHF(filepath.Join(dir, "model"), "F32"))
	require.NoError(t, b.Save(dir))

	second := policytest.Load(t, filepath.Join(dir, "model"))
	c := makeTrainer(t, second, resolveBlock(t, "{}"), config)
	require.NoError(t, c.Load(dir))
	require.Equal(t, int64(2), c.Steps())
	require.Equal(t, stateOf(t, b), stateOf(t, c))
	run(second, c, 2, 4)
	require.Equal(t, policytest.Parameters(t, whole), policytest.Parameters(t, second))
	require.Equal(t, stateOf(t, a), stateOf(t, c))

	// Without the optimizer's state the result differs, so the comparison can fail.
	forgetful := policytest.Load(t, filepath.Join(dir, "model"))
	d := makeTrainer(t, forgetful, resolveBlock(t, "{}"), config)
	run(forgetful, d, 2, 4)
	require.NotEqual(t, policytest.Parameters(t, whole), policytest.Parameters(t, forgetful))
}

// A checkpoint of before the rate fell with the steps of the run holds the optimizer steps alone, fewer where steps had nothing to learn.
// The rate goes on at the step of the run, and Adam's correction at the optimizer's.
func TestTheRateGoesOnAtTheStepOfTheRun(t *testing.T) {
	config := tinyConfig()
	config.Schedule = Schedule{LearningRate: 1e-2, Kind: "linear", Total: 8}
	first := policytest.Make(t, 9)
	a := makeTrainer(t, first, resolveBlock(t, "{}"), config)
	for i := range 2 {
		b := someBatch(t, a, uint64(20+i), 0.05)
		b.Step = i
		_, err := a.Step(context.Background(), b)
		require.NoError(t, err)
	}
	dir := t.TempDir()
	require.NoError(t, first.SaveHF(filepath.Join(dir, "model"), "F32"))
	require.NoError(t, a.Save(dir))

	second := policytest.Load(t, filepath.Join(dir, "model"))
	c := makeTrainer(t, second, resolveBlock(t, "{}"), config)
	require.NoError(t, c.Load(dir))
	for i, step := range []int{5, 6} { // the run had done five steps, three of them flat
		b := someBatch(t, c, uint64(30+i), 0.05)
		b.Step = step
		m, err := c.Step(context.Background(), b)
		require.NoError(t, err)
		require.InDelta(t, 1e-2*float64(8-step)/8, m.LearningRate, 1e-12)
		require.Equal(t, int64(3+i), c.Steps())
	}
}

// The value head is in no Hugging Face file; the trainer's folder holds it.
func TestValueHeadIsSaved(t *testing.T) {
	make := func() (*policy.Policy, *Trainer) {
		p := policytest.Make(t, 9)
		require.NoError(t, p.Model.AddValueHead())
		return p, makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	}
	p, a := make()
	weight := make32(48, func(i int) float32 { return float32(i) / 7 })[:p.Config.HiddenSize]
	info := cgo.ParameterInfo{Name: "value_head.weight", Shape: []int64{1, int64(len(weight))}}
	require.NoError(t, tensors.Set(p.Model, info, weight))
	p.Model.Changed()
	require.NoError(t, a.optimizer.SetState("value_head.bias", cgo.ExpAvg, []float32{0.125}))
	dir := t.TempDir()
	require.NoError(t, a.Save(dir))
	q, b := make()
	require.NoError(t, b.Load(dir))
	got, err := q.Model.Parameter("value_head.weight")
	require.NoError(t, err)
	require.Equal(t, weight, got)
	state, err := b.optimizer.State("value_head.bias", cgo.ExpAvg)
	require.NoError(t, err)
	require.Equal(t, []float32{0.125}, state)

	plain := makeTrainer(t, policytest.Make(t, 9), resolveBlock(t, "{}"), tinyConfig())
	require.ErrorContains(t, plain.Load(dir), "the run trained a critic so far")
	require.NoError(t, os.Remove(filepath.Join(dir, parametersFile)))
	require.ErrorIs(t, b.Load(dir), os.ErrNotExist)
}

// A path that names another model by now, such as the newest checkpoint of a run that goes on, is no reference to resume with.
func TestTheReferenceIsTheOneOfTheRun(t *testing.T) {
	with := func(block string, seed uint64) *Trainer {
		c := tinyConfig()
		c.Reference = FrozenModel{policytest.Make(t, seed).Model}
		return makeTrainer(t, policytest.Make(t, 9), resolveBlock(t, block), c)
	}
	dir := t.TempDir()
	require.NoError(t, with("kl: {coefficient: 0.1}", 1).Save(dir))
	require.NoError(t, with("kl: {coefficient: 0.2}", 1).Load(dir))
	require.NoError(t, with("{}", 2).Load(dir), "without KL nobody reads it")
	require.ErrorContains(t, with("kl: {coefficient: 0.1}", 2).Load(dir), "the reference policy was another model before: SHA-256 ")
	plain := t.TempDir()
	require.NoError(t, with("{}", 2).Save(plain))
	require.NoError(t, with("kl: {coefficient: 0.1}", 1).Load(plain), "a run may take KL up later")
}

// A run that takes a critic up, or gives it up, is told of the setting, not of a file that another model wrote.
func TestLoadRefusesAnotherCritic(t *testing.T) {
	with := func(block string) *Trainer {
		p, a := policytest.Make(t, 9), resolveBlock(t, block)
		if a.HasCritic() {
			require.NoError(t, p.Model.AddValueHead())
		}
		return makeTrainer(t, p, a, tinyConfig())
	}
	plain, critic := t.TempDir(), t.TempDir()
	require.NoError(t, with("{}").Save(plain))
	require.NoError(t, with("{advantage: gae}").Save(critic))
	require.NoError(t, with("{advantage: rloo}").Load(plain))
	require.EqualError(t, with("{advantage: gae}").Load(plain), "trainer: loading the trainer from "+plain+": the run trained no critic so far, and algorithm.advantage gae has one; give it back the advantage that it had, or begin a new run with --output")
	require.EqualError(t, with("{advantage: rloo}").Load(critic), "trainer: loading the trainer from "+critic+": the run trained a critic so far, and algorithm.advantage rloo has none; give it back the advantage that it had, or begin a new run with --output")
}

func TestLoadRefusesForeignState(t *testing.T) {
	p := policytest.Make(t, 10)
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	dir := t.TempDir()
	require.ErrorIs(t, tr.Load(dir), os.ErrNotExist)
	require.NoError(t, tr.Save(dir))
	other := policytest.Tiny
	other.IntermediateSize = 64
	q, err := policy.Scratch(other, "0123456789+=", policytest.Template, 1, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer q.Close()
	wrong := makeTrainer(t, q, tr.algorithm, tinyConfig())
	require.ErrorContains(t, wrong.Load(dir), "has shape [48 32], expected [64 32]; it belongs to another model")
	require.NoError(t, os.WriteFile(filepath.Join(dir, trainerFile), []byte(`{"version": 2}`), 0o644))
	require.ErrorContains(t, tr.Load(dir), "this program reads version 1")
	require.NoError(t, os.WriteFile(filepath.Join(dir, trainerFile), []byte(`{"version": 1, "steps": 3}`), 0o644))
	require.NoError(t, os.Truncate(filepath.Join(dir, optimizerFile), 100))
	require.ErrorContains(t, tr.Load(dir), "the file is damaged or not safetensors")
	require.Equal(t, int64(0), tr.Steps())
}
