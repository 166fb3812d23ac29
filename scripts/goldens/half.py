"""Golden values of the policy model in bfloat16: what transformers computes in that type for the models of models.py.

Needs torch, transformers, peft and numpy (scripts/goldens/venv.sh makes such an environment). Writes cgo/testdata/half.json: for
each model the logprobs that transformers gives in bfloat16 (base64 of little-endian float32), and how far its gradient of
models.py's loss lies from the one in float32: |difference| / |float32| over all parameters, and their cosine. For the models
of adapters.py the same of PEFT, with the gradients of adapter and value head.

usage: python scripts/goldens/half.py [OUTPUT_FILE]
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

import adapters
from models import FAMILIES, TOKENS, loss_of, pack, randomise, score

NAMES = ["llama", "llama_biases", "smollm", "qwen2", "qwen3"]


def gradient(model, ids, temperature):
    loss_of(model, ids, temperature).backward()
    flat = torch.cat([p.grad.float().flatten() for p in model.parameters()])
    model.zero_grad()
    return flat


def golden(name):
    config, temperature = FAMILIES[name]
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    randomise(model, generator)
    if config.tie_word_embeddings:
        model.tie_weights()
    ids = torch.randint(0, config.vocab_size, (TOKENS,), generator=generator)
    exact = gradient(model, ids, temperature)
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        logp, _ = score(model, ids, temperature)
    rounded = gradient(model, ids, temperature)
    return {"logprobs": pack(logp), "gradient_error": ((rounded - exact).norm() / exact.norm()).item(),
            "gradient_cosine": torch.nn.functional.cosine_similarity(rounded, exact, dim=0).item()}


def adapter_golden(name):
    case = adapters.CASES[name]
    model, critic, ids = adapters.make(name, *case)
    temperature = case[1]

    def flat_gradient():
        adapters.loss_of(model, critic, ids, temperature).backward()
        flat = torch.cat([p.grad.float().flatten() for p in adapters.trained(model, critic).values()])
        model.zero_grad()
        critic.zero_grad()
        return flat

    exact = flat_gradient()
    model = model.to(torch.bfloat16)  # the value head stays in float32, as ours does
    with torch.no_grad():
        logp, _ = score(model, ids, temperature)
    rounded = flat_gradient()
    return {"logprobs": pack(logp), "gradient_error": ((rounded - exact).norm() / exact.norm()).item(),
            "gradient_cosine": torch.nn.functional.cosine_similarity(rounded, exact, dim=0).item()}


def main():
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "cgo" / "testdata" / "half.json")
    path.write_text(json.dumps({name: golden(name) for name in NAMES} | {name: adapter_golden(name) for name in adapters.CASES}, indent=1) + "\n")


if __name__ == "__main__":
    main()
