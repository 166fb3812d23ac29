#!/usr/bin/env python3
"""The training step of transformers on the shapes of gpu_check.sh's table: the same model from random weights, padded, with
libtorch's flash attention (sdpa), float32 parameters computed in bfloat16, and fused AdamW.

usage: gpu_transformers.py MODEL BATCH      as in: gpu_transformers.py 0.5B 8x192+8x104
Prints one line. Every sequence carries its prompt: transformers shares no prefixes.
"""
import os
import re
import sys
import time

SHAPES = {  # hidden, intermediate, layers, heads, keys, vocabulary, tied
    "tiny": (64, 128, 2, 4, 2, 512, True),
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
}


def main():
    import torch
    import transformers
    model_name, batch = sys.argv[1:]
    found = re.fullmatch(r"(\d+)x(\d+)(?:\+(\d+)x(\d+))?", batch)
    if model_name not in SHAPES or not found:
        sys.exit(__doc__)
    roots, prompt, answers, answer = (int(x or 0) for x in found.groups())
    hidden, intermediate, layers, heads, keys, vocab, tied = SHAPES[model_name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.Qwen2Config(vocab_size=vocab, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
                                      num_key_value_heads=keys, tie_word_embeddings=tied, max_position_embeddings=32768, attn_implementation="sdpa")
    torch.manual_seed(1)
    with torch.device(device):
        model = transformers.Qwen2ForCausalLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    sequences, length = (roots * answers, prompt + answer) if answers else (roots, prompt)
    ids = torch.randint(vocab, (sequences, length), device=device)
    skip = prompt if answers else 1
    real = roots * (prompt + answers * answer)  # tokens of the packed batch

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            states = model.model(ids).last_hidden_state[:, skip - 1:-1].flatten(0, 1)
            targets = ids[:, skip:].flatten()
            loss = 0
            for rows, wanted in zip(states.split(2048), targets.split(2048)):  # the logits of all rows take tens of GiB
                loss = loss + torch.nn.functional.cross_entropy(model.lm_head(rows).float(), wanted, reduction="sum")
            loss = loss / len(targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return float(loss)  # waits

    for _ in range(2):
        step()
    times = []
    for _ in range(2 if os.environ.get("QUICK", "0") != "0" else 5):
        begin = time.perf_counter()
        loss = step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    ms = sorted(times)[len(times) // 2] * 1e3
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0
    print(f"{device}: transformers {transformers.__version__}, {sequences}x{length} tokens: {ms:,.1f} ms, {real / ms * 1e3:,.0f} tokens of the packed batch a second, peak {peak:.1f} GiB, loss {loss:.3f}")


if __name__ == "__main__":
    main()
