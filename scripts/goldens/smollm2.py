#!/usr/bin/env python3
"""Logprobs and entropies of SmolLM2-135M-Instruct by transformers in float32 and float64, on three texts of 200 tokens.

    scripts/goldens/smollm2.py        # writes policy/testdata/smollm2.json.gz

The model is the packaged GGUF (scripts/fetch.py model), which transformers dequantizes to the same 272 tensors.
Needs: torch, transformers, gguf (see requirements.txt).
"""
import gzip
import json
import pathlib
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 200


def texts():
    yield "prose", (ROOT / "scripts/goldens/smollm2_prose.txt").read_text()
    yield "code", pathlib.Path(__file__).read_text()
    conversation = []
    for line in (ROOT / "examples/calculator/worked.jsonl").read_text().splitlines():
        for m in json.loads(line)["messages"]:
            conversation.append(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n")
    yield "conversation", "".join(conversation)


def score(model, ids):
    with torch.no_grad():
        # In float64: torch's float32 log_softmax over 49,152 logits is itself 2e-5 off, always to the same side.
        logprobs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)[:-1]
    picked = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return picked.tolist(), (-(logprobs.exp() * logprobs).sum(-1)).tolist()


def main():
    path = pathlib.Path(subprocess.run([sys.executable, ROOT / "scripts/fetch.py", "model"], check=True, capture_output=True, text=True).stdout.strip())
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    exact = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval().double()
    cases = []
    for name, text in texts():
        ids = tokenizer(text, add_special_tokens=False).input_ids[:TOKENS]
        assert len(ids) == TOKENS, f"{name} has {len(ids)} tokens"
        picked, entropy = score(model, ids)
        cases.append({"name": name, "ids": ids, "logprobs": picked, "entropy": entropy, "exact": score(exact, ids)[0]})
    out = ROOT / "policy/testdata/smollm2.json.gz"
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(gzip.compress(json.dumps(cases).encode(), mtime=0))
    print(f"{out.relative_to(ROOT)}: {len(cases)} texts of {TOKENS} tokens")


if __name__ == "__main__":
    main()
