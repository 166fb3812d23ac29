"""Golden values of LoRA adapters and of a value head for cgo and policy, computed by PEFT over transformers in float32.

Needs torch, transformers, numpy and peft (scripts/goldens/venv.sh makes such an environment). Writes
cgo/testdata/adapters/NAME.json.gz: config, base parameters, adapter, token ids, logprobs and entropies with the adapter on
and off, the gradients of the adapter, the value head's values and gradient, and adapter and value head after ten AdamW steps
with clipping. Arrays are base64 of little-endian float32; parameters carry the names of PEFT's files.

With --check FOLDER ... it instead loads each folder, which holds `model` and `model/adapter` as AgentFly wrote them and
`scores.json`, with PEFT, and compares logprobs with and without the adapter and after merging.

usage: python scripts/goldens/adapters.py [OUTPUT_FOLDER]
       python scripts/goldens/adapters.py --check FOLDER
"""

import gzip
import json
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from models import BASE, TOKENS, our_config, pack, pack_all, randomise, score

# name: config, temperature, rank, alpha, targets
CASES = {
    "llama_all": (LlamaConfig(**BASE), 1.0, 3, 6.0,
                  ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "qwen2_qv": (Qwen2Config(**{**BASE, "hidden_size": 24, "head_dim": 6, "tie_word_embeddings": True}), 0.9, 4, 8.0,
                 ["q_proj", "v_proj"]),
    "qwen3_kodown": (Qwen3Config(**BASE), 1.0, 2, 1.0, ["k_proj", "o_proj", "up_proj", "down_proj"]),
}


class Critic(torch.nn.Module):
    """The value of a row: a linear map of its hidden state behind the last norm."""

    def __init__(self, hidden_size, generator):
        super().__init__()
        self.weight = torch.nn.Parameter(0.3 * torch.randn((1, hidden_size), generator=generator))
        self.bias = torch.nn.Parameter(torch.tensor([0.25]))

    def forward(self, model, ids):
        hidden = model.get_base_model().model(ids.unsqueeze(0)).last_hidden_state[0, :-1]
        return (hidden.float() @ self.weight.T + self.bias)[:, 0]


def loss_of(model, critic, ids, temperature):
    """mean over rows of cos(i) * logprob + 0.1 * sin(i) * entropy + 0.05 * cos(2 i) * value ** 2"""
    logp, entropy = score(model, ids, temperature)
    i = torch.arange(len(logp), dtype=torch.float64)
    value = critic(model, ids)
    return (logp * torch.cos(i).float() + 0.1 * torch.sin(i).float() * entropy
            + 0.05 * torch.cos(2 * i).float() * value ** 2).mean()


def trained(model, critic):
    """Name in our files -> parameter."""
    out = {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}
    return out | {"value_head.weight": critic.weight, "value_head.bias": critic.bias}


def make(name, config, temperature, rank, alpha, targets, out=None):
    """The model with its adapter, the value head, and the token ids."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    base = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    randomise(base, generator)
    if config.tie_word_embeddings:
        base.tie_weights()
    ids = torch.randint(0, config.vocab_size, (TOKENS,), generator=generator)
    if out is not None:
        out |= {"name": name, "config": our_config(base, config), "ids": ids.tolist(), "temperature": temperature, "rank": rank,
                "alpha": alpha, "targets": targets, "parameters": pack_all(base.named_parameters())}
    model = get_peft_model(base, LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0,
                                            task_type="CAUSAL_LM"))
    critic = Critic(config.hidden_size, generator)
    for n, p in model.named_parameters():
        if p.requires_grad:
            p.data = 0.3 * torch.randn(p.shape, generator=generator)
    return model, critic, ids


def golden(name, config, temperature, rank, alpha, targets):
    out = {}
    model, critic, ids = make(name, config, temperature, rank, alpha, targets, out)
    ours = trained(model, critic)
    assert {n for n in ours if "lora" in n} == set(get_peft_model_state_dict(model)), "PEFT's file has other names"
    out["adapter"] = pack_all(ours.items())
    with torch.no_grad():
        logp, entropy = score(model, ids, temperature)
        out["logprobs"], out["entropy"], out["values"] = pack(logp), pack(entropy), pack(critic(model, ids))
        with model.disable_adapter():
            logp, entropy = score(model, ids, temperature)
            out["base_logprobs"], out["base_entropy"] = pack(logp), pack(entropy)
    loss = loss_of(model, critic, ids, temperature)
    loss.backward()
    out["loss"] = loss.item()
    out["gradients"] = pack_all((n, p.grad) for n, p in ours.items())
    optimizer = torch.optim.AdamW(ours.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    optimizer.zero_grad()
    out["norms"] = []
    for _ in range(10):
        loss_of(model, critic, ids, temperature).backward()
        out["norms"].append(torch.nn.utils.clip_grad_norm_(ours.values(), 0.05).item())
        optimizer.step()
        optimizer.zero_grad()
    out["after"] = pack_all(ours.items())
    merged = model.merge_and_unload()
    out["merged"] = pack_all(merged.named_parameters())
    return out


def check(folder):
    """Exit status 1 when PEFT reads something else from our files than we computed."""
    folder = pathlib.Path(folder)
    scores = json.loads((folder / "scores.json").read_text())
    ids = torch.tensor(scores["ids"])
    plain = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    merged = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    with torch.no_grad():
        off = score(plain, ids, 1.0)[0]
        whole = score(merged, ids, 1.0)[0]
        adapted = PeftModel.from_pretrained(plain, folder / "model" / "adapter")
        on = score(adapted, ids, 1.0)[0]
    worst = {name: (got - torch.tensor(scores[key])).abs().max().item()
             for name, got, key in [("base", off, "base"), ("adapter", on, "logprobs"), ("merged", whole, "logprobs")]}
    moved = (on - off).abs().max().item()
    print(json.dumps(worst | {"adapter_moves": moved}))
    return 0 if max(worst.values()) <= 2e-5 and moved > 1e-3 else 1


def main():
    if sys.argv[1:2] == ["--check"]:
        sys.exit(check(sys.argv[2]))
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                          else pathlib.Path(__file__).parents[2] / "cgo" / "testdata" / "adapters")
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        text = json.dumps(golden(name, *case), separators=(",", ":")).encode()
        with open(folder / f"{name}.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
            f.write(text)
        print(name, len(text))


if __name__ == "__main__":
    main()
