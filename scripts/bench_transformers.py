#!/usr/bin/env python3
"""transformers' generate on SmolLM2-135M in float32 and bfloat16, two threads: one JSON line a figure, as bench_engine_test.go prints.

    scripts/bench_transformers.py MODEL.gguf

Decode is the time for 33 new tokens less the time for one. Needs: torch, transformers, gguf (scripts/goldens/venv.sh).
"""
import json
import pathlib
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM

REPEATS = 3


def seconds(model, ids, new, samples=1):
    start = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=True,
                             temperature=1.0, top_k=0, top_p=1.0, num_return_sequences=samples, pad_token_id=2)
    took = time.perf_counter() - start
    assert out.shape == (ids.shape[0] * samples, ids.shape[1] + new)
    return took


def report(dtype, what, sequences, value):
    print(json.dumps({"engine": "transformers", "dtype": dtype, "what": what, "sequences": sequences, "value": value}), flush=True)


def main():
    torch.set_num_threads(2)
    torch.manual_seed(0)
    path = pathlib.Path(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    def prompts(n, length):
        return torch.randint(1000, 40000, (n, length))

    for dtype in ("float32", "bfloat16"):
        model = model.to(getattr(torch, dtype))
        # without bfloat16 instructions a round takes minutes
        repeats = 1 if seconds(model, prompts(8, 100), 4) > 5 else REPEATS
        for n in (1, 8, 32):
            prefill, decode = [], []
            for _ in range(repeats):
                first = seconds(model, prompts(n, 100), 1)
                prefill.append(n * 100 / first)
                decode.append(n * 32 / (seconds(model, prompts(n, 100), 33) - first))
            report(dtype, "prefill", n, statistics.median(prefill))
            report(dtype, "decode", n, statistics.median(decode))
        if dtype == "float32":
            report(dtype, "prefill_512_seconds", 1, statistics.median(seconds(model, prompts(1, 512), 1) for _ in range(REPEATS)))
            report(dtype, "group_512_64_seconds", 32, seconds(model, prompts(1, 512), 64, samples=32))


if __name__ == "__main__":
    main()
