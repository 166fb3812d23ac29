#!/usr/bin/env python3
"""Write modelfile/testdata/gguf: small GGUF files and what they hold according to the reference implementations.

    scripts/goldens/gguf_models.py            # from the repository root

Needs: gguf, numpy, torch, safetensors (see requirements.txt).

quants.gguf        random blocks of every supported type, written as raw bytes
quants.safetensors what gguf.quants.dequantize makes of them, F32
llama.gguf, qwen2.gguf, qwen3.gguf   tiny random models, named and laid out as llama.cpp's converter does, with a vocabulary
*.safetensors      the same models as transformers holds them, from the dequantised blocks
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "modelfile" / "testdata" / "gguf"
rng = np.random.default_rng(20260501)

# where the half-precision scales stand in a block, in bytes
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208]}


def quants():
    writer = gguf.GGUFWriter(OUT / "quants.gguf", "none")
    expected = {}
    for kind in (Q.F32, Q.F16, Q.BF16, *SCALES):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        name = kind.name.lower()
        if kind == Q.F32:
            data = rng.standard_normal((3, 32)).astype(np.float32)
        elif kind == Q.F16:  # every kind of half: infinities, subnormals, both zeros
            data = np.concatenate([rng.integers(0, 0x7C01, 61), [0x8000, 0xFC00, 0x83FF]]).astype(np.uint16).view(np.float16).reshape(2, 32)
        elif kind == Q.BF16:
            data = np.concatenate([rng.integers(0, 0x7F81, 62), [0x8000, 0xFF80]]).astype("<u2").view(np.uint8).reshape(2, 64)
        else:
            rows, columns = 3, 2 * max(block, 32)
            data = rng.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
            for at in SCALES[kind]:
                scale = (rng.standard_normal(len(data)) * 0.1).astype(np.float16)
                scale[:3] = np.array([6e-8, -65504, 0], dtype=np.float16)  # subnormal, largest, zero
                data[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
            data = data.reshape(rows, -1)
        writer.add_tensor(name, data, raw_dtype=None if kind in (Q.F32, Q.F16) else kind)
        expected[name] = np.ascontiguousarray(gguf.quants.dequantize(data, kind), dtype=np.float32)
    finish(writer)
    save_file(expected, OUT / "quants.safetensors")


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permute(w, heads):
    """What llama.cpp's converter does to q and k of the llama architecture."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def model(arch, layers, tied):
    hidden, inter, heads, kv, dim, vocab = 64, 96, 4, 2, 16 if arch != "qwen3" else 24, 16
    writer = gguf.GGUFWriter(OUT / f"{arch}.gguf", arch)
    writer.add_block_count(layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inter)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if arch == "qwen3":
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    if arch == "llama":
        writer.add_rope_dimension_count(dim)
        writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe" if arch == "llama" else "qwen2")
    tokens = [bytes([c]).decode() for c in b"abcdefghijk"] + ["\u0120", "ab", "\u0120a", "<|end|>", "<|pad|>"]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 14 + [3, 3])
    writer.add_token_merges(["a b", "\u0120 a"])
    writer.add_eos_token_id(14)
    writer.add_pad_token_id(15)
    writer.add_add_bos_token(False)
    writer.add_chat_template([{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": "{{ tools }}"}])

    expected = {}

    def add(ours, theirs, shape, kind, heads_permuted=0):
        w = rng.standard_normal(shape).astype(np.float32) * 0.05
        if heads_permuted:
            w = permute(w, heads_permuted)
        data = gguf.quants.quantize(w, kind)
        writer.add_tensor(theirs, data, raw_dtype=None if kind in (Q.F32, Q.F16) else kind)
        value = np.asarray(gguf.quants.dequantize(data, kind), dtype=np.float32).reshape(shape)
        if heads_permuted:  # the inverse, written down independently: [heads, dim/2, 2] -> [heads, 2, dim/2]
            value = value.reshape(heads_permuted, shape[0] // heads_permuted // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
        expected[ours] = np.ascontiguousarray(value)

    add("model.embed_tokens.weight", "token_embd.weight", (vocab, hidden), Q.Q8_0)
    for i in range(layers):
        a, b, llama = f"model.layers.{i}", f"blk.{i}", arch == "llama"
        add(f"{a}.input_layernorm.weight", f"{b}.attn_norm.weight", (hidden,), Q.F32)
        add(f"{a}.self_attn.q_proj.weight", f"{b}.attn_q.weight", (heads * dim, hidden), Q.Q4_0, heads * llama)
        add(f"{a}.self_attn.k_proj.weight", f"{b}.attn_k.weight", (kv * dim, hidden), Q.Q4_1, kv * llama)
        add(f"{a}.self_attn.v_proj.weight", f"{b}.attn_v.weight", (kv * dim, hidden), Q.Q8_0)
        if arch != "qwen3":
            add(f"{a}.self_attn.q_proj.bias", f"{b}.attn_q.bias", (heads * dim,), Q.F32, heads * llama)
            add(f"{a}.self_attn.k_proj.bias", f"{b}.attn_k.bias", (kv * dim,), Q.F32, kv * llama)
            add(f"{a}.self_attn.v_proj.bias", f"{b}.attn_v.bias", (kv * dim,), Q.F32)
        else:
            add(f"{a}.self_attn.q_norm.weight", f"{b}.attn_q_norm.weight", (dim,), Q.F32)
            add(f"{a}.self_attn.k_norm.weight", f"{b}.attn_k_norm.weight", (dim,), Q.F32)
        add(f"{a}.self_attn.o_proj.weight", f"{b}.attn_output.weight", (hidden, heads * dim), Q.F16)
        if llama:
            add(f"{a}.self_attn.o_proj.bias", f"{b}.attn_output.bias", (hidden,), Q.F32)
        add(f"{a}.post_attention_layernorm.weight", f"{b}.ffn_norm.weight", (hidden,), Q.F32)
        add(f"{a}.mlp.gate_proj.weight", f"{b}.ffn_gate.weight", (inter, hidden), Q.Q5_0)
        add(f"{a}.mlp.up_proj.weight", f"{b}.ffn_up.weight", (inter, hidden), Q.BF16)
        add(f"{a}.mlp.down_proj.weight", f"{b}.ffn_down.weight", (hidden, inter), Q.Q5_1)
    add("model.norm.weight", "output_norm.weight", (hidden,), Q.F32)
    if not tied:
        add("lm_head.weight", "output.weight", (vocab, hidden), Q.Q8_0)
    if arch == "llama":  # the divisors that llama.cpp's converter stores for Llama 3.1
        freqs = 1.0 / (500000.0 ** (np.arange(0, dim, 2) / dim))
        wave = 2 * np.pi / freqs
        smooth = (8192 / wave - 1) / (4 - 1)
        factors = np.where(wave < 8192 / 4, 1.0, np.where(wave > 8192, 8.0, 1 / ((1 - smooth) / 8.0 + smooth)))
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    finish(writer)
    save_file(expected, OUT / f"{arch}.safetensors")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    quants()
    model("llama", 2, tied=False)
    model("qwen2", 1, tied=True)
    model("qwen3", 1, tied=True)
