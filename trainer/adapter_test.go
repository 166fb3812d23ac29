//go:build torch

package trainer

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
)

var loraConfig = cgo.AdapterConfig{Rank: 4, Alpha: 8, Seed: 3}

// adapted is a tiny policy whose adapter was trained for two steps.
func adapted(t *testing.T) (*policy.Policy, *Trainer) {
	t.Helper()
	p := policytest.Make(t, 9)
	require.NoError(t, p.Model.AddAdapter(loraConfig))
	config := tinyConfig()
	config.Schedule = Schedule{LearningRate: 2e-2}
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), config)
	for i := range 2 {
		_, err := tr.Step(context.Background(), someBatch(t, tr, uint64(20+i), 0.05))
		require.NoError(t, err)
	}
	return p, tr
}

func probeLogprobs(t *testing.T, p *policy.Policy) []float32 {
	t.Helper()
	ids := []int32{1, 5, 3, 9, 4, 4, 7, 10, 6, 8, 12, 3, 11, 5, 5, 13, 2}
	logprobs, _, err := LogprobsOf(p.Model, ids, 1)
	require.NoError(t, err)
	return logprobs
}

func farthest(t *testing.T, a, b []float32) float64 {
	t.Helper()
	require.Len(t, a, len(b))
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i])-float64(b[i])))
	}
	return most
}

// The files hold the policy: merged weights for everybody, the adapter for PEFT and vLLM, the base for both.
func TestAdapterFiles(t *testing.T) {
	p, _ := adapted(t)
	dir := t.TempDir()
	if keep := os.Getenv("AGENTFLY_ADAPTER_FILES"); keep != "" { // for scripts/goldens/adapters.py --check
		dir = keep
	}
	require.NoError(t, p.SaveHF(filepath.Join(dir, "model"), modelfile.F32))
	require.NoError(t, p.SaveBase(filepath.Join(dir, "base"), modelfile.F32))
	require.NoError(t, p.SaveAdapter(filepath.Join(dir, "model", "adapter"), "../base"))
	on := probeLogprobs(t, p)
	p.Model.SetAdapter(false)
	off := probeLogprobs(t, p)
	p.Model.SetAdapter(true)
	require.Greater(t, farthest(t, on, off), 1e-3, "training moved the policy")
	text, err := json.Marshal(map[string]any{"ids": []int32{1, 5, 3, 9, 4, 4, 7, 10, 6, 8, 12, 3, 11, 5, 5, 13, 2}, "logprobs": on, "base": off})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "scores.json"), text, 0o644))

	require.LessOrEqual(t, farthest(t, on, probeLogprobs(t, policytest.Load(t, filepath.Join(dir, "model")))), 1e-5)
	base := policytest.Load(t, filepath.Join(dir, "base"))
	require.Equal(t, off, probeLogprobs(t, base))
	require.NoError(t, base.LoadAdapter(filepath.Join(dir, "model", "adapter")))
	require.Equal(t, on, probeLogprobs(t, base), "bit for bit")
	c, ok := base.Model.Adapter()
	require.True(t, ok)
	require.Equal(t, cgo.AdapterConfig{Rank: 4, Alpha: 8, Targets: cgo.AdapterTargets[:]}, c)
	require.EqualError(t, policytest.Make(t, 1).SaveAdapter(dir, ""), "policy: the model has no adapter to save")
	require.ErrorContains(t, base.LoadAdapter(filepath.Join(dir, "model", "adapter")), "the model has an adapter already")
}

func TestAdapterFilesRefused(t *testing.T) {
	p, _ := adapted(t)
	good := filepath.Join(t.TempDir(), "adapter")
	require.NoError(t, p.SaveAdapter(good, ""))
	q := policytest.Make(t, 9)
	before := probeLogprobs(t, q)
	for _, c := range []struct{ old, new, want string }{
		{`"LORA"`, `"IA3"`, `adapter_config.json: peft_type "IA3" is not supported`},
		{`"use_dora": false`, `"use_dora": true`, "use_dora is not supported"},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 3}`, "rank_pattern is not supported"},
		{`"modules_to_save": null`, `"modules_to_save": ["lm_head"]`, "modules_to_save is not supported"},
		{`"bias": "none"`, `"bias": "all"`, `bias "all" is not supported`},
		{`"r": 4`, `"r": 5`, "has shape [4 32], expected [5 32]"},
		{`"r": 4`, `"r": 0`, "rank is 0"},
		{`"lora_alpha": 8`, `"lora_alpha": 0`, "alpha is 0"},
		{`"r": 4`, `"r": `, "adapter_config.json: invalid"},
	} {
		dir := t.TempDir()
		config, err := os.ReadFile(filepath.Join(good, "adapter_config.json"))
		require.NoError(t, err)
		require.Contains(t, string(config), c.old)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(strings.Replace(string(config), c.old, c.new, 1)), 0o644))
		weights, err := os.ReadFile(filepath.Join(good, "adapter_model.safetensors"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), weights, 0o644))
		require.ErrorContains(t, q.LoadAdapter(dir), c.want)
	}
	require.ErrorIs(t, q.LoadAdapter(t.TempDir()), os.ErrNotExist)
	small := policytest.Tiny
	small.NumLayers = 1
	one, err := policy.Scratch(small, "0123456789+=", policytest.Template, 1, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer one.Close()
	require.ErrorContains(t, one.LoadAdapter(good), "it belongs to another model")
	_, ok := q.Model.Adapter()
	require.False(t, ok, "the model is untouched")
	require.Equal(t, before, probeLogprobs(t, q))
}

// A LoRA run continues from its base and the trainer's folder, bit for bit.
func TestAdapterResumeIsBitIdentical(t *testing.T) {
	config := tinyConfig()
	config.Schedule = Schedule{LearningRate: 1e-2, Kind: "cosine", Warmup: 1, Total: 5}
	config.AdamW.WeightDecay = 0.1
	begin := func(seed uint64) (*policy.Policy, *Trainer) {
		p := policytest.Make(t, seed)
		require.NoError(t, p.Model.AddAdapter(loraConfig))
		return p, makeTrainer(t, p, resolveBlock(t, "{}"), config)
	}
	run := func(tr *Trainer, from, to int) {
		for i := from; i < to; i++ {
			b := someBatch(t, tr, uint64(20+i), 0.05)
			b.Step = i
			_, err := tr.Step(context.Background(), b)
			require.NoError(t, err)
		}
	}
	whole, a := begin(9)
	run(a, 0, 4)
	first, b := begin(9)
	run(b, 0, 2)
	dir := t.TempDir()
	require.NoError(t, b.Save(dir))
	second, c := begin(9)
	require.NoError(t, c.Load(dir))
	run(c, 2, 4)
	for _, info := range whole.Model.Trained() {
		x, err := whole.Model.Parameter(info.Name)
		require.NoError(t, err)
		y, err := second.Model.Parameter(info.Name)
		require.NoError(t, err)
		require.Equal(t, x, y, info.Name)
		z, err := first.Model.Parameter(info.Name)
		require.NoError(t, err)
		require.NotEqual(t, x, z, "%s did not move", info.Name)
	}
	require.Equal(t, probeLogprobs(t, whole), probeLogprobs(t, second))
	require.Equal(t, policytest.Parameters(t, whole), policytest.Parameters(t, policytest.Make(t, 9)), "the base is as it was")

	_, foreign := begin(10)
	require.ErrorContains(t, foreign.Load(dir), "the run trains on another base model")
	full := makeTrainer(t, policytest.Make(t, 9), resolveBlock(t, "{}"), config)
	require.ErrorContains(t, full.Load(dir), "the run trained an adapter so far, and model.lora is not set now")
	require.NoError(t, full.Save(dir))
	_, late := begin(9)
	require.ErrorContains(t, late.Load(dir), "the run trained no adapter so far, and model.lora is set now")
}
