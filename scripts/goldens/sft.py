#!/usr/bin/env python3
"""Supervised fine-tuning by transformers: token ids and masks of recorded conversations, their loss, and its gradient.

    scripts/goldens/sft.py        # writes orchestrator/objective/testdata/sft.json

The model is examples/tiny/model, the conversations are those of its example job. A message of the assistant is learned; its
end-of-turn token too, unless it ends with a stop string of the agent's format. The loss is the mean over all learned tokens
of the batch. Needs: torch, transformers (see requirements.txt).
"""
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
STOPS = ("</calculator>", "</answer>")


def lay_out(tokenizer, messages, stops):
    text, ids, mask = "", [], []
    for i, m in enumerate(messages):
        whole = tokenizer.apply_chat_template(messages[: i + 1], tokenize=False)
        if m["role"] != "assistant":
            text = tokenizer.apply_chat_template(messages[: i + 1], tokenize=False, add_generation_prompt=True)
            continue
        assert whole.startswith(text + m["content"])
        before = tokenizer(text, add_special_tokens=False).input_ids
        said = tokenizer(m["content"], add_special_tokens=False).input_ids
        end = tokenizer(whole[len(text + m["content"]) :], add_special_tokens=False).input_ids
        learn_end = not m["content"].endswith(stops)
        mask += [0] * (len(before) - len(mask)) + [1] * len(said)
        ids = before + said
        if learn_end:
            ids, mask = ids + end, mask + [1] * len(end)
    return ids, mask


def case(model, tokenizer, conversations, stops):
    rows = [lay_out(tokenizer, c["messages"], stops) for c in conversations]
    total, count = 0, sum(sum(mask) for _, mask in rows)
    for ids, mask in rows:
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)[:-1]
        picked = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        total = total - (picked * torch.tensor(mask[1:])).sum()
    loss = total / count
    model.zero_grad()
    loss.backward()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
    return {"ids": [i for i, _ in rows], "masks": [m for _, m in rows], "loss": loss.item(), "grad_norm": norm.item()}


def main():
    folder = ROOT / "examples/tiny/model"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    conversations = [json.loads(line) for line in (ROOT / "examples/tiny/conversations.jsonl").read_text().splitlines()]
    out = {"stops": case(model, tokenizer, conversations, STOPS), "none": case(model, tokenizer, conversations, ("\0",))}
    path = ROOT / "orchestrator/objective/testdata/sft.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(conversations)} conversations, loss {out['stops']['loss']:.6f} and {out['none']['loss']:.6f}")


if __name__ == "__main__":
    main()
