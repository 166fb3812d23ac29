"""Write algorithms/testdata/losses.json.gz: lines of `agentfly inspect loss` with the answers of TRL and of verl.

Packages: torch 2.13.0 and trl 1.16.0 of scripts/goldens/requirements.txt, and verl 0.9.1 without its dependencies:
    pip install --no-deps --target FOLDER verl==0.9.1
    python scripts/goldens/losses.py --verl FOLDER

TRL's GRPOTrainer._compute_loss runs as it is, on a stand-in for the trainer that hands it the logprobs. verl's core_algos.py
runs as it is; the packages around it are not imported, because they need ray and more.
Only cases are written in which the three agree by definition; docs/algorithms.md lists the differences.
"""

import argparse
import gzip
import importlib
import json
import random
import sys
import types
from collections import defaultdict
from pathlib import Path

import torch

OUT = Path(__file__).resolve().parents[2] / "algorithms/testdata/losses.json.gz"


def make_batch(rng, groups):
    """Trajectories of different lengths with observation gaps; ratios on both sides of every clip."""
    out = []
    for g, rewards in enumerate(groups):
        for reward in rewards:
            n = rng.randint(3, 9)
            mask = [rng.randint(0, 1) for _ in range(n)]
            mask[rng.randrange(n)] = 1
            old = [-round(rng.uniform(0.7, 4), 4) for _ in range(n)]
            out.append({
                "group": f"g{g}", "reward": reward, "response_mask": mask, "old": old,
                "current": [round(min(-1e-3, x + rng.gauss(0, 0.4)), 4) for x in old],
                "sampling": [round(min(-1e-3, x + rng.gauss(0, 0.3)), 4) for x in old],
                "reference": [round(min(-1e-3, x + rng.gauss(0, 0.5)), 4) for x in old],
            })
    return out


def matrix(batch, key, pad=0.0):
    width = max(len(t["response_mask"]) for t in batch)
    return torch.tensor([t[key] + [pad] * (width - len(t[key])) for t in batch], dtype=torch.float64)


def ragged(batch, m):
    return [[x if on else 0.0 for x, on in zip(row, t["response_mask"])] for row, t in zip(m.tolist(), batch)]


def answer(batch, advantages, loss, current):
    (gradient,) = torch.autograd.grad(loss, current)
    return {"advantages": ragged(batch, advantages), "loss": loss.item(), "grad_current": ragged(batch, gradient)}


class Quiet:
    """Stands in for the accelerator."""

    num_processes = 1
    sync_gradients = True

    def gather(self, x):
        return x

    def reduce(self, x, reduction=None):
        return x


def trl_case(batch, algorithm):
    from trl.trainer.grpo_trainer import GRPOTrainer

    aggregation = algorithm.get("aggregation", "token-mean")
    loss_type = {"token-mean": "bnpo", "seq-mean-token-mean": "grpo", "seq-mean-token-sum-norm": "dr_grpo", "seq-mean-token-sum": "luspo"}[aggregation]
    current = matrix(batch, "current").requires_grad_()
    mask = matrix(batch, "response_mask").to(torch.int64)
    rewards = defaultdict(list)
    for t in batch:
        rewards[t["group"]].append(t["reward"])
    # scale_rewards="none", which is dr_grpo's estimator
    advantages = torch.tensor([t["reward"] - sum(rewards[t["group"]]) / len(rewards[t["group"]]) for t in batch], dtype=torch.float64)
    correction = algorithm.get("correction", {})
    weight = torch.exp(matrix(batch, "old") - matrix(batch, "sampling"))
    trainer = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (current, torch.zeros_like(current), None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token",
        beta=algorithm.get("kl", {}).get("coefficient", 0.0), loss_type=loss_type,
        epsilon_low=algorithm.get("clip_low", 0.2), epsilon_high=algorithm.get("clip_high", 0.2),
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=algorithm.get("dual_clip") or None, steps_per_generation=1),
        use_vllm=bool(correction), vllm_importance_sampling_correction=True, model=types.SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, max_completion_length=algorithm.get("max_tokens"), accelerator=Quiet(),
        _entropy_bonus_enabled=False, _metrics={"train": defaultdict(list)},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(batch), 1, dtype=torch.int64), "prompt_mask": torch.ones(len(batch), 1, dtype=torch.int64),
        "completion_ids": torch.zeros_like(mask), "completion_mask": torch.ones_like(mask), "tool_mask": mask,
        "advantages": advantages, "old_per_token_logps": matrix(batch, "old"), "ref_per_token_logps": matrix(batch, "reference"),
        "importance_sampling_ratio": torch.clamp(weight, max=correction.get("cap", 2.0)),
    }
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    return answer(batch, advantages[:, None] * mask, loss, current)


def load_verl(folder):
    """core_algos alone: its packages' own __init__ files are passed over."""
    root = Path(folder) / "verl"
    for name in ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo", "verl.workers"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    for name, values in {
        "tensordict": {"TensorDict": dict}, "omegaconf": {"DictConfig": dict},
        "verl.utils.device": {"get_device_name": lambda: "cpu", "get_torch_device": lambda: torch.cpu},
        "verl.trainer.config": {"AlgoConfig": type("AlgoConfig", (), {})},
        "verl.workers.config": {"ActorConfig": type("ActorConfig", (), {})},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module
    groupwise = importlib.import_module("verl.utils.groupwise")
    sys.modules["verl.utils"].as_torch_index = groupwise.as_torch_index
    sys.modules["verl.utils"].group_mean_std = groupwise.group_mean_std
    return importlib.import_module("verl.trainer.ppo.core_algos")


class VerlConfig(dict):
    __getattr__ = dict.get


def verl_case(core, batch, algorithm):
    current = matrix(batch, "current").requires_grad_()
    mask = matrix(batch, "response_mask")
    rewards = torch.zeros_like(mask)
    for i, t in enumerate(batch):
        rewards[i, max(j for j, on in enumerate(t["response_mask"]) if on)] = t["reward"]
    groups = [t["group"] for t in batch]
    name = algorithm["advantage"] if isinstance(algorithm["advantage"], str) else "unscaled"
    if name == "rloo":
        advantages, _ = core.compute_rloo_outcome_advantage(rewards, mask, groups)
    else:
        advantages, _ = core.compute_grpo_outcome_advantage(rewards, mask, groups, norm_adv_by_std_in_grpo=name == "grpo")
    info = {"loss_scale_factor": algorithm["max_tokens"]} if "max_tokens" in algorithm else {}
    config = VerlConfig(clip_ratio=0.2, clip_ratio_low=algorithm.get("clip_low", 0.2), clip_ratio_high=algorithm.get("clip_high", 0.2),
                        clip_ratio_c=algorithm.get("dual_clip", 1e9), global_batch_info=info)
    weight = None
    if "correction" in algorithm:
        weight = torch.clamp(torch.exp(matrix(batch, "old") - matrix(batch, "sampling")), max=algorithm["correction"].get("cap", 2.0))
    aggregation = algorithm.get("aggregation", "token-mean")
    if algorithm.get("loss") == "reinforce":
        loss = core.agg_loss(-advantages * current, mask, aggregation, **info)
    else:
        loss, _ = core.compute_policy_loss_vanilla(matrix(batch, "old"), current, advantages, mask, aggregation, config, weight)
    if "kl" in algorithm:
        kl = core.kl_penalty(current, matrix(batch, "reference"), algorithm["kl"].get("estimator", "k3"))
        loss = loss + algorithm["kl"]["coefficient"] * core.agg_loss(kl, mask, aggregation, **info)
    return answer(batch, advantages, loss, current)


AGGREGATIONS = [{"aggregation": "token-mean"}, {"aggregation": "seq-mean-token-mean"}, {"aggregation": "seq-mean-token-sum"},
                {"aggregation": "seq-mean-token-sum-norm", "max_tokens": 12}]
VARIANTS = [{}, {"clip_high": 0.28}, {"dual_clip": 1.5}, {"kl": {"coefficient": 0.3}}, {"correction": {"kind": "tis_token", "cap": 1.2}}]
ESTIMATORS = ["grpo", "rloo", {"name": "grpo", "normalize_std": False}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verl", required=True, help="folder that holds the package verl")
    core = load_verl(parser.parse_args().verl)
    rng = random.Random(20250101)
    cases = []

    def batch():
        return make_batch(rng, [[1, 0, 0.2], [0, 0], [round(rng.gauss(0, 1), 3) for _ in range(4)]])

    for variant in VARIANTS:
        for aggregation in AGGREGATIONS:
            algorithm = {"advantage": "dr_grpo", "loss": "ppo_clip", **aggregation, **variant}
            b = batch()
            cases.append({"source": "trl", "line": {"algorithm": algorithm, "trajectories": b}, "want": trl_case(b, algorithm)})
            for estimator in ESTIMATORS:
                algorithm = {"advantage": estimator, "loss": "ppo_clip", **aggregation, **variant}
                b = batch()
                cases.append({"source": "verl", "line": {"algorithm": algorithm, "trajectories": b}, "want": verl_case(core, b, algorithm)})
    for aggregation in AGGREGATIONS:
        for extra in ({}, {"kl": {"coefficient": 0.2, "estimator": "k2"}}):
            algorithm = {"advantage": "rloo", "loss": "reinforce", **aggregation, **extra}
            b = batch()
            cases.append({"source": "verl", "line": {"algorithm": algorithm, "trajectories": b}, "want": verl_case(core, b, algorithm)})
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(("[" + ",\n".join(json.dumps(c) for c in cases) + "]\n").encode())
    print(f"{len(cases)} cases in {OUT}")


if __name__ == "__main__":
    main()
