#!/usr/bin/env python3
"""The other side of make bench-train: the step that TRL's GRPO trainer would take with transformers and PyTorch, in float32 or
bfloat16 (autocast over float32 weights).

    bench_train.py MODEL.gguf SHAPES.json NAME float32|bfloat16      # one JSON line a figure; NAME of a shape, or memory

Micro-batches of 8 trajectories, padded to their longest prompt and completion; logits_to_keep leaves the prompt's logits
out; old = current without gradient; fused AdamW. A shape whose micro-batches are all alike is timed on micro_batches of
them and scaled. memory: the peak of the process's memory over the first two micro-batches of the first shape.
"""
import json
import pathlib
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def pad(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([r + [value] * (longest - len(r)) for r in rows])


def micro_batches(shape):
    """Padded ids, attention, loss mask, advantages; a trajectory's prompt is what precedes its first sampled token."""
    all_of_it = shape["trajectories"]
    for i in range(0, len(all_of_it), 8):
        group = all_of_it[i:i + 8]
        mean = sum(t["reward"] for t in group) / 8
        prompt = group[0]["mask"].index(True)
        ids = pad([t["ids"] for t in group], 2)
        yield (ids, pad([[1] * len(t["ids"]) for t in group], 0), pad([t["mask"] for t in group], False)[:, prompt:],
               torch.tensor([t["reward"] - mean for t in group]), ids.shape[1] - prompt)


def step(model, optimizer, shape, count, dtype):
    """Seconds of a step on the first count micro-batches, and of its optimizer alone."""
    total = sum(map(sum, (t["mask"] for t in shape["trajectories"])))
    start = time.perf_counter()
    for ids, attention, mask, advantage, keep in list(micro_batches(shape))[:count]:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(input_ids=ids, attention_mask=attention, logits_to_keep=keep + 1, use_cache=False).logits[:, :-1]
        logits = logits.float()
        target = ids[:, -keep:]
        chosen = torch.gather(logits, 2, target.unsqueeze(2)).squeeze(2)
        logprob = chosen - torch.stack([row.logsumexp(-1) for row in logits])  # a row at a time, as TRL does to save memory
        ratio = torch.exp(logprob - logprob.detach())
        loss = -torch.min(ratio * advantage[:, None], ratio.clamp(0.8, 1.2) * advantage[:, None])
        ((loss * mask).sum() / total).backward()
    middle = time.perf_counter()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return middle - start, time.perf_counter() - middle


def report(what, dtype, value):
    print(json.dumps({"engine": "transformers", "what": what, "dtype": dtype, "value": value}), flush=True)


def main():
    torch.set_num_threads(2)
    path = pathlib.Path(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    shapes = {s["name"]: s for s in json.loads(pathlib.Path(sys.argv[2]).read_text())}
    name, dtype = sys.argv[3:]
    if name == "memory":
        step(model, optimizer, shapes["prompt_200"], 2, dtype)
        report("peak_memory_mib", dtype, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    step(model, optimizer, {"trajectories": shapes["dense_8x256"]["trajectories"][:2]}, 1, "float32")  # makes gradients and the optimizer's state
    shape = shapes[name]
    count, batches = shape["micro_batches"], len(shape["trajectories"]) // 8
    gradient, optimize = step(model, optimizer, shape, count, dtype)
    report(name + "_seconds", dtype, gradient * batches / count + optimize)
    report(name + "_padded_tokens", dtype, sum(m[0].numel() for m in micro_batches(shape)))


if __name__ == "__main__":
    main()
