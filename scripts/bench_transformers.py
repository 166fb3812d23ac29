#!/usr/bin/env python3
"""transformers' generate on SmolLM2-135M in float32 and bfloat16, two threads: one JSON line a figure, as scripts/bench/engine_test.go prints.

    scripts/bench_transformers.py MODEL.gguf

Decode is the median of 32 decode steps, each timed by itself. BENCH_DTYPES and BENCH_REPEATS make it shorter. Needs: torch, transformers, gguf (scripts/goldens/venv.sh).
"""
import json
import os
import pathlib
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

REPEATS = int(os.environ.get("BENCH_REPEATS", 3))
STEPS = 32


class Clock(StoppingCriteria):
    """Notes when each token is there. It stops nothing."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def decode_steps(model, ids):
    """The seconds of each decode step, the prompt's own left out."""
    clock = Clock()
    seconds(model, ids, STEPS + 1, clock=clock)
    assert len(clock.times) == STEPS + 1
    return [b - a for a, b in zip(clock.times, clock.times[1:])]


def seconds(model, ids, new, samples=1, clock=None):
    start = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=True,
                             temperature=1.0, top_k=0, top_p=1.0, num_return_sequences=samples, pad_token_id=2,
                             stopping_criteria=StoppingCriteriaList([clock] if clock else []))
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

    for dtype in os.environ.get("BENCH_DTYPES", "float32 bfloat16").split():
        model = model.to(getattr(torch, dtype))
        # without bfloat16 instructions a round takes minutes
        repeats = 1 if seconds(model, prompts(8, 100), 4) > 5 else REPEATS
        for n in (1, 8, 32):
            prefill, steps = [], []
            for _ in range(repeats):
                prefill.append(n * 100 / seconds(model, prompts(n, 100), 1))
                steps += decode_steps(model, prompts(n, 100))
            steps.sort()
            report(dtype, "prefill", n, statistics.median(prefill))
            report(dtype, "decode", n, n / steps[len(steps) // 2])
            report(dtype, "decode_spread", n, steps[len(steps) * 9 // 10] / steps[len(steps) // 2])
        if dtype == "float32":
            report(dtype, "prefill_512_seconds", 1, statistics.median(seconds(model, prompts(1, 512), 1) for _ in range(REPEATS)))
            report(dtype, "group_512_64_seconds", 32, seconds(model, prompts(1, 512), 64, samples=32))


if __name__ == "__main__":
    main()
