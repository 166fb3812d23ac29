#!/usr/bin/env python3
"""Write modelfile/testdata/rope.json: config.json files and the rotary frequencies transformers derives from them.

    scripts/goldens/rope.py            # from the repository root

Needs: torch, transformers (see requirements.txt). Each case is the JSON as a model's author would publish it; inv_freq and
attention_factor are read from the model that transformers builds from it.
"""
import json
import pathlib
import tempfile

from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[2] / "modelfile" / "testdata" / "rope.json"
LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
CASES = {
    "default, theta left out": ("llama", {}),
    "default": ("llama", {"rope_theta": 500000.0}),
    "integer theta, odd base": ("qwen2", {"rope_theta": 1000000, "head_dim": 80}),
    "null scaling": ("mistral", {"rope_theta": 1e6, "rope_scaling": None}),
    "linear, old key": ("llama", {"rope_scaling": {"type": "linear", "factor": 2.5}}),
    "linear, new key": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 20000.0}}),
    "llama3": ("llama", {"rope_theta": 500000.0, "rope_scaling": LLAMA3, "max_position_embeddings": 131072, "head_dim": 128}),
    "llama3, new key": ("llama", {"rope_parameters": {**LLAMA3, "factor": 8.0, "rope_theta": 500000.0}, "max_position_embeddings": 131072}),
    "yarn, qwen2": ("qwen2", {"rope_theta": 1000000.0, "rope_scaling": {"type": "yarn", **YARN}}),
    "yarn, qwen3 head 128": ("qwen3", {"rope_theta": 1000000, "rope_scaling": {"rope_type": "yarn", **YARN}, "head_dim": 128}),
    "yarn, attention factor": ("llama", {"rope_scaling": {"rope_type": "yarn", **YARN, "attention_factor": 0.75, "beta_fast": 16, "beta_slow": 2}}),
    "yarn, mscale": ("llama", {"rope_scaling": {"rope_type": "yarn", **YARN, "mscale": 0.707, "mscale_all_dim": 1.0}}),
    "yarn, not truncated": ("llama", {"rope_scaling": {"rope_type": "yarn", **YARN, "truncate": False}}),
    "yarn, original from max": ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0}, "max_position_embeddings": 4096}),
    "yarn, theta in both": ("llama", {"rope_theta": 1.0e4, "rope_parameters": {"rope_type": "yarn", **YARN, "rope_theta": 7.0e5}}),
}

if __name__ == "__main__":
    out = []
    for name, (kind, extra) in CASES.items():
        config = {
            "architectures": [{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[kind] + "ForCausalLM"],
            "model_type": kind, "vocab_size": 8, "hidden_size": 256, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 131072, "bos_token_id": 1, "eos_token_id": 2, **extra,
        }
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        rotary = model.model.rotary_emb
        out.append({"name": name, "config": config, "attention_factor": float(rotary.attention_scaling),
                    "inv_freq": [float(x) for x in rotary.inv_freq]})
    OUT.write_text(json.dumps(out, indent=1) + "\n")
