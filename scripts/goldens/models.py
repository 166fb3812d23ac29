"""Golden values of the policy model for cgo: tiny random models of every family, computed by transformers in float32.

Needs torch, transformers and numpy (scripts/goldens/venv.sh makes such an environment). Writes cgo/testdata/NAME.json.gz:
Hugging Face config, parameters, 200 token ids, their logprobs and entropies, the gradients of a weighted sum of both, and
the parameters after ten AdamW steps with clipping. Arrays are base64 of little-endian float32.

usage: python scripts/goldens/models.py [OUTPUT_FOLDER]
"""

import base64
import gzip
import json
import pathlib
import sys

import numpy
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, AutoModelForCausalLM

TOKENS = 200
BASE = dict(vocab_size=101, hidden_size=20, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
            tie_word_embeddings=False, use_cache=False)


def rope(**scaling):
    return dict(rope_scaling=scaling)


# name: config, temperature
FAMILIES = {
    "llama": (LlamaConfig(**BASE), 1.0),
    "llama_biases": (LlamaConfig(**{**BASE, "attention_bias": True, "mlp_bias": True, "head_dim": 16}), 0.7),
    "llama3_rope": (LlamaConfig(**BASE, **rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                               original_max_position_embeddings=64)), 1.0),
    "linear_rope": (LlamaConfig(**BASE, **rope(rope_type="linear", factor=2.5)), 1.3),
    "smollm": (LlamaConfig(**{**BASE, "hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4,
                              "tie_word_embeddings": True}), 1.0),
    "mistral": (MistralConfig(**{**BASE, "sliding_window": None, "num_key_value_heads": 1}), 1.0),
    "qwen2": (Qwen2Config(**{**BASE, "hidden_size": 24, "head_dim": 6}), 0.9),
    "qwen2_tied": (Qwen2Config(**{**BASE, "hidden_size": 24, "head_dim": 6, "tie_word_embeddings": True}), 1.0),
    "qwen3": (Qwen3Config(**BASE), 1.0),
    "qwen3_yarn": (Qwen3Config(**{**BASE, "tie_word_embeddings": True}, **rope(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=64)), 1.0),
}


def pack(t):
    return base64.b64encode(t.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()).decode()


def pack_all(named):
    return {name: {"shape": list(t.shape), "data": pack(t)} for name, t in named}


def randomise(model, generator):
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight"):
            p.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            p.data = 0.3 * noise
        else:
            p.data = 0.25 * noise


def score(model, ids, temperature):
    logits = model(ids.unsqueeze(0)).logits[0, :-1].float() / temperature
    logp = torch.log_softmax(logits, -1)
    return logp.gather(1, ids[1:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def loss_of(model, ids, temperature):
    """mean over rows of cos(i) * logprob + 0.1 * sin(i) * entropy"""
    logp, entropy = score(model, ids, temperature)
    i = torch.arange(len(logp), dtype=torch.float64)
    return (logp * torch.cos(i).float() + 0.1 * torch.sin(i).float() * entropy).mean()


def our_config(model, c):
    names = dict(model.named_parameters())
    rotary = model.model.rotary_emb
    layer = "model.layers.0."
    return {
        "VocabSize": c.vocab_size, "HiddenSize": c.hidden_size, "IntermediateSize": c.intermediate_size,
        "NumLayers": c.num_hidden_layers, "NumHeads": c.num_attention_heads, "NumKVHeads": c.num_key_value_heads,
        "HeadDim": model.model.layers[0].self_attn.head_dim, "RMSNormEps": c.rms_norm_eps,
        "TieWordEmbeddings": c.tie_word_embeddings, "QKVBias": layer + "self_attn.q_proj.bias" in names,
        "OBias": layer + "self_attn.o_proj.bias" in names, "MLPBias": layer + "mlp.up_proj.bias" in names,
        "QKNorm": layer + "self_attn.q_norm.weight" in names, "InvFreq": rotary.inv_freq.tolist(),
        "AttentionFactor": float(rotary.attention_scaling),
    }


def golden(name, config, temperature):
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    randomise(model, generator)
    if config.tie_word_embeddings:
        model.tie_weights()
    ids = torch.randint(0, config.vocab_size, (TOKENS,), generator=generator)
    out = {"name": name, "hf_config": json.loads(config.to_json_string()), "config": our_config(model, config),
           "ids": ids.tolist(), "temperature": temperature, "parameters": pack_all(model.named_parameters())}
    with torch.no_grad():
        logp, entropy = score(model, ids, temperature)
    out["logprobs"], out["entropy"] = pack(logp), pack(entropy)
    loss = loss_of(model, ids, temperature)
    loss.backward()
    out["loss"] = loss.item()
    out["gradients"] = pack_all((n, p.grad) for n, p in model.named_parameters())
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    out["norms"] = []
    for _ in range(10):
        loss_of(model, ids, temperature).backward()
        out["norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()
        optimizer.zero_grad()
    out["after"] = pack_all(model.named_parameters())
    return out


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "cgo" / "testdata")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (config, temperature) in FAMILIES.items():
        text = json.dumps(golden(name, config, temperature), separators=(",", ":")).encode()
        with open(folder / f"{name}.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
            f.write(text)
        print(name, len(text))


if __name__ == "__main__":
    main()
