#!/usr/bin/env python3
"""Hold a checkpoint that AgentFly saved against transformers: same logprobs, token ids and chat template.

    scripts/goldens/check_checkpoint.py FOLDER --agentfly bin/agentfly   # asks the program itself, through `inspect`
    scripts/goldens/check_checkpoint.py FOLDER --probe FILE              # compares with answers recorded in FILE

FOLDER is a Hugging Face folder (checkpoints/last of a run). FILE is JSON: {"tokens": [{"text", "ids"}], "template":
[{"messages", "text"}], "score": [{"ids", "logprobs"}]}; a missing key is not compared. Exits with 1 on a difference.

Needs: torch, transformers (see requirements.txt).
"""
import argparse
import json
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["What is 417 plus 298?", "  two  spaces\n\n\ttabs", "naïve café — “quotes” 🙂👩🏽‍💻", "def f(x):\n    return x**2  # 3.14", "日本語とالعربية", "<|im_start|>user\nhi<|im_end|>\n"]
MESSAGES = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a < b & c"}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "why?\n"}],
]
TOLERANCE = 1e-4  # float32 noise of two implementations on real weights is some 3e-5; a wrong checkpoint is off by far more


def inspect(binary, what, folder, lines):
    done = subprocess.run([binary, "inspect", what, "--model", folder], input="\n".join(map(json.dumps, lines)) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"check_checkpoint: {binary} inspect {what}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--agentfly")
    parser.add_argument("--probe")
    a = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(a.folder)
    model = AutoModelForCausalLM.from_pretrained(a.folder, dtype=torch.float32)
    if a.probe:
        probe = json.load(open(a.probe))
    elif a.agentfly:
        templates = [{"messages": m, "add_generation_prompt": True} for m in MESSAGES]
        ids = [tokenizer(t, add_special_tokens=False).input_ids for t in TEXTS]
        ids.append(torch.randint(0, len(tokenizer), (200,), generator=torch.Generator().manual_seed(1)).tolist())
        probe = {
            "tokens": [{"text": t, **r} for t, r in zip(TEXTS, inspect(a.agentfly, "tokens", a.folder, [{"text": t} for t in TEXTS]))],
            "template": [{**t, **r} for t, r in zip(templates, inspect(a.agentfly, "template", a.folder, templates))] if tokenizer.chat_template else [],
            "score": [{"ids": i, **r} for i, r in zip(ids, inspect(a.agentfly, "score", a.folder, [{"ids": i} for i in ids]))],
        }
        for case, text in zip(probe["tokens"], TEXTS):
            case["text"] = text  # inspect answers with the decoded text
    else:
        parser.error("one of --agentfly and --probe is needed")
    failures = 0
    for case in probe.get("tokens", []):
        want = tokenizer(case["text"], add_special_tokens=False).input_ids
        if want != case["ids"]:
            failures += 1
            print(f"ids of {case['text']!r}: transformers {want}, AgentFly {case['ids']}")
    for case in probe.get("template", []):
        want = tokenizer.apply_chat_template(case["messages"], tokenize=False, add_generation_prompt=True)
        if want != case["text"]:
            failures += 1
            print(f"template of {case['messages']}: transformers {want!r}, AgentFly {case['text']!r}")
    worst = 0.0
    for case in probe.get("score", []):
        ids = torch.tensor([case["ids"]])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1).gather(1, ids[0, 1:, None])[:, 0]
        worst = max(worst, (logprobs - torch.tensor(case["logprobs"], dtype=torch.float64)).abs().max().item())
    if worst > TOLERANCE:
        failures += 1
    counts = {k: len(v) for k, v in probe.items()}
    print(f"{type(model).__name__}, {counts}: largest logprob difference {worst:.2e} (at most {TOLERANCE:g}), {failures} failures")
    sys.exit(1 if failures or not any(counts.values()) else 0)


if __name__ == "__main__":
    main()
