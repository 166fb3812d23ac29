package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdaptersOfOtherModules(t *testing.T) {
	_, err := targetsOf([]string{"base_model.model.lm_head.lora_A.weight"})
	require.ErrorContains(t, err, "adapters of lm_head are not supported")
}

// What PEFT computes otherwise than as LoRA of one rank is refused by the name of its field.
func TestAdaptersThatAreNotPlain(t *testing.T) {
	const plain = `{
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null, "base_model_name_or_path": null, "bias": "none",
  "corda_config": null, "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
  "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null, "layers_to_transform": null, "loftq_config": {},
  "lora_alpha": 8, "lora_bias": false, "lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
  "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 4,
  "rank_pattern": {}, "revision": null, "target_modules": ["q_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
  "trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false, "use_rslora": false, "velora_config": null
}` // as PEFT 0.21.2 writes it
	read := func(old, set string) error {
		require.Contains(t, plain, old)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, adapterConfigFile), []byte(strings.Replace(plain, old, set, 1)), 0o644))
		config, err := readPEFT(dir)
		require.NoError(t, err)
		_, err = config.adapterConfig()
		return err
	}
	for _, c := range []struct{ old, set, want string }{
		{`"alora_invocation_tokens": null`, `"alora_invocation_tokens": [5, 6]`, "alora_invocation_tokens is"},
		{`"arrow_config": null`, `"arrow_config": {"top_k": 3}`, "arrow_config is"},
		{`"kasa_config": null`, `"kasa_config": {"beta": 0.0001}`, "kasa_config is"},
		{`"layers_to_transform": null`, `"layers_to_transform": 0`, "layers_to_transform is"},
		{`"monteclora_config": null`, `"monteclora_config": {"num_samples": 8}`, "monteclora_config is"},
		{`"trainable_token_indices": null`, `"trainable_token_indices": [1]`, "trainable_token_indices is"},
		{`"use_bdlora": null`, `"use_bdlora": {"nblocks": 2}`, "use_bdlora is"},
		{`"use_dora": false`, `"use_dora": true`, "use_dora is"},
		{`"use_qalora": false`, `"use_qalora": true`, "use_qalora is"},
		{`"velora_config": null`, `"velora_config": {"num_groups": 4}`, "velora_config is"},
	} {
		require.EqualError(t, read(c.old, c.set), adapterConfigFile+": "+c.want+" not supported, LoRA of one rank in every layer is")
	}
	for _, init := range []string{`"pissa"`, `"pissa_niter_4"`, `"olora"`, `"corda"`, `"loftq"`, `"lora_ga"`, `"mica"`, `7`} {
		require.EqualError(t, read(`"init_lora_weights": true`, `"init_lora_weights": `+init),
			adapterConfigFile+": init_lora_weights "+init+", with which PEFT may change the base model's weights, is not supported, LoRA of one rank in every layer is")
	}
	for _, init := range []string{`true`, `false`, `null`, `"gaussian"`, `"eva"`, `"orthogonal"`} {
		require.NoError(t, read(`"init_lora_weights": true`, `"init_lora_weights": `+init), init)
	}
}
