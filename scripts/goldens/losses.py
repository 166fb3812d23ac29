"""Write algorithms/testdata/losses.json.gz: lines of `agentfly inspect loss` with the answers of TRL and of verl.

Packages: torch 2.13.0 and trl 1.16.0 of scripts/goldens/requirements.txt, and verl 0.9.1 without its dependencies:
    pip install --no-deps --target FOLDER verl==0.9.1
    python scripts/goldens/losses.py --verl FOLDER

TRL's GRPOTrainer._compute_loss runs as it is, on a stand-in for the trainer that hands it the logprobs. verl's core_algos.py
runs as it is; the packages around it are not imported, because they need ray and more.
Only cases are written in which the three agree by definition; docs/algorithms.md lists the differences. A case says with
which tolerance its advantages agree: verl's whitening adds 1e-8 to its denominators. Where a loss has the same gradient but
another value ("gradient only"), the value is not compared.
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
                "values": [round(rng.gauss(0.3, 0.5), 4) for _ in old],
                "greedy_reward": [0.25, 0.5, 1.0][g % 3],
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

    loss = algorithm["loss"]
    name = loss if isinstance(loss, str) else loss["name"]
    aggregation = algorithm.get("aggregation", "token-mean")
    loss_type = {"cispo": "cispo", "sapo": "sapo", "gspo": "grpo"}.get(name) or {"token-mean": "bnpo", "seq-mean-token-mean": "grpo", "seq-mean-token-sum-norm": "dr_grpo", "seq-mean-token-sum": "luspo"}[aggregation]
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
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="sequence" if name == "gspo" else "token",
        beta=algorithm.get("kl", {}).get("coefficient", 0.0), loss_type=loss_type,
        epsilon_low=algorithm.get("clip_low", 3e-4 if name == "gspo" else 0.2),
        epsilon_high=algorithm.get("clip_high", 4e-4 if name == "gspo" else 0.2),
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=algorithm.get("dual_clip") or None, steps_per_generation=1,
                                   sapo_temperature_pos=1.0, sapo_temperature_neg=1.05),
        use_vllm=bool(correction), vllm_importance_sampling_correction=True, model=types.SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, max_completion_length=algorithm.get("max_tokens"), accelerator=Quiet(),
        _entropy_bonus_enabled=False, _metrics={"train": defaultdict(list)},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(batch), 1, dtype=torch.int64), "prompt_mask": torch.ones(len(batch), 1, dtype=torch.int64),
        "completion_ids": torch.zeros_like(mask), "completion_mask": torch.ones_like(mask), "tool_mask": mask,
        "advantages": advantages, "old_per_token_logps": matrix(batch, "old"), "ref_per_token_logps": matrix(batch, "reference"),
        "num_items_in_batch": mask.sum(), "importance_sampling_ratio": torch.clamp(weight, max=correction.get("cap", 2.0)),
    }
    loss = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    return answer(batch, advantages[:, None] * mask, loss, current)


class VerlConfig(dict):
    __getattr__ = dict.get


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
        "verl.workers.config": {"ActorConfig": VerlConfig}, "verl.workers.config.actor": {"PolicyLossConfig": dict},
        "verl.protocol": {"DataProto": dict}, "verl.trainer.config.algorithm": {"RolloutCorrectionConfig": dict},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module
    groupwise = importlib.import_module("verl.utils.groupwise")
    sys.modules["verl.utils"].as_torch_index = groupwise.as_torch_index
    sys.modules["verl.utils"].group_mean_std = groupwise.group_mean_std
    return importlib.import_module("verl.trainer.ppo.core_algos"), importlib.import_module("verl.trainer.ppo.rollout_corr_helper")


def verl_advantages(core, batch, algorithm, rewards, mask):
    choice = algorithm["advantage"]
    name, keys = (choice, {}) if isinstance(choice, str) else (choice["name"], choice)
    groups = [t["group"] for t in batch]
    if name == "rloo":
        return core.compute_rloo_outcome_advantage(rewards, mask, groups)[0]
    if name == "opo":
        return core.compute_opo_outcome_advantage(rewards, mask, groups)[0]
    if name == "remax":
        baseline = torch.tensor([t["greedy_reward"] for t in batch], dtype=torch.float64)
        return core.compute_remax_outcome_advantage(rewards, baseline, mask)[0]
    if name == "reinforce_pp" and keys.get("group_baseline"):
        return core.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards, mask, groups)[0]
    if name == "reinforce_pp":
        return core.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=VerlConfig(gamma=keys.get("gamma", 1.0)))[0]
    if name == "gae":
        return core.compute_gae_advantage_return(rewards, matrix(batch, "values"), mask, keys["gamma"], keys["lambda"])[0]
    normalize = name == "grpo" and keys.get("normalize_std", True)
    return core.compute_grpo_outcome_advantage(rewards, mask, groups, norm_adv_by_std_in_grpo=normalize)[0]


def verl_weights(helper, batch, correction, mask):
    """The corrections; verl also takes the tokens of a rejected sequence out of the denominators, which the sheet does not."""
    d = matrix(batch, "old") - matrix(batch, "sampling")
    kind, low, high = correction["kind"], correction.get("low", 0.5), correction.get("high", 5.0)
    if kind == "icepop":
        return helper.compute_rollout_correction_weights(d, mask, "token", f"{low}_{high}")[0]
    if kind == "tis_sequence":
        return helper.compute_rollout_correction_weights(d, mask, "sequence", correction.get("cap", 5.0))[0]
    weights = helper.compute_rollout_correction_weights(d, mask, "token", correction.get("cap", 2.0))[0]
    if kind == "seq_mask":  # verl's bounds are on sampling - old
        kept, _ = helper.compute_rollout_rejection_mask(d, mask, "seq_mean_k1", f"{1 / high}_{1 / low}")
        weights = weights * kept
    return weights


VERL_LOSSES = {"ppo_clip": "vanilla", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "dppo": "dppo_tv"}


def verl_case(core, helper, batch, algorithm):
    current = matrix(batch, "current").requires_grad_()
    mask = matrix(batch, "response_mask")
    rewards = torch.zeros_like(mask)
    for i, t in enumerate(batch):
        rewards[i, max(j for j, on in enumerate(t["response_mask"]) if on)] = t["reward"]
    advantages = verl_advantages(core, batch, algorithm, rewards, mask)
    choice = algorithm.get("loss", "ppo_clip")
    name, keys = (choice, {}) if isinstance(choice, str) else (choice["name"], choice)
    info = {"loss_scale_factor": algorithm["max_tokens"]} if "max_tokens" in algorithm else {}
    low, high = {"gspo": (3e-4, 4e-4), "cispo": (1.0, 0.2), "dppo": (0.2, 0.2)}.get(name, (0.2, 0.2))
    if name == "dppo":
        low = high = keys.get("delta", 0.2)
    config = VerlConfig(clip_ratio=0.2, clip_ratio_low=algorithm.get("clip_low", low), clip_ratio_high=algorithm.get("clip_high", high),
                        clip_ratio_c=algorithm.get("dual_clip", 1e9), global_batch_info=info,
                        tau_pos=keys.get("tau_positive", 1.0), tau_neg=keys.get("tau_negative", 1.05))
    weight = verl_weights(helper, batch, algorithm["correction"], mask) if "correction" in algorithm else None
    aggregation = algorithm.get("aggregation", "token-mean")
    if name == "reinforce":
        loss = core.agg_loss(-advantages * current, mask, aggregation, **info)
    else:
        loss, _ = core.get_policy_loss_fn(VERL_LOSSES[name])(matrix(batch, "old"), current, advantages, mask, aggregation, config, weight)
    if "kl" in algorithm:
        kl = core.kl_penalty(current, matrix(batch, "reference"), algorithm["kl"].get("estimator", "k3"))
        loss = loss + algorithm["kl"]["coefficient"] * core.agg_loss(kl, mask, aggregation, **info)
    return answer(batch, advantages, loss, current)


def verl_value(core, rng):
    """A critic's loss, coefficient 1: verl's compute_value_loss and its gradient."""
    n = rng.randint(2, 9)
    values, returns, mask = [round(rng.gauss(0, 1), 4) for _ in range(n)], [round(rng.gauss(0, 1), 4) for _ in range(n)], [rng.randint(0, 1) for _ in range(n)]
    mask[0] = 1
    now = [round(v + rng.gauss(0, 0.3), 4) for v in values]
    x = torch.tensor([now], dtype=torch.float64, requires_grad=True)
    tensor = lambda v: torch.tensor([v], dtype=torch.float64)  # noqa: E731
    loss, _ = core.compute_value_loss(x, tensor(returns), tensor(values), tensor(mask), 0.2)
    (gradient,) = torch.autograd.grad(loss, x)
    return {"values": now, "old": values, "returns": returns, "mask": mask, "loss": loss.item(), "gradient": gradient[0].tolist()}


AGGREGATIONS = [{"aggregation": "token-mean"}, {"aggregation": "seq-mean-token-mean"}, {"aggregation": "seq-mean-token-sum"},
                {"aggregation": "seq-mean-token-sum-norm", "max_tokens": 12}]
VARIANTS = [{}, {"clip_high": 0.28}, {"dual_clip": 1.5}, {"kl": {"coefficient": 0.3}}, {"correction": {"kind": "tis_token", "cap": 1.2}}]
ESTIMATORS = ["grpo", "rloo", {"name": "grpo", "normalize_std": False}]


WHITENED = [{"name": "reinforce_pp", "gamma": 0.9}, {"name": "reinforce_pp", "group_baseline": True}, {"name": "gae", "gamma": 0.9, "lambda": 0.8}]
CORRECTIONS = [{"kind": "icepop", "low": 0.8, "high": 1.3}, {"kind": "tis_sequence", "cap": 1.5}, {"kind": "seq_mask", "low": 0.9, "high": 1.2, "cap": 1.1}]
# loss, its settings, the one aggregation in which both agree (None: all)
VERL_MORE = [
    ("gspo", {}, "seq-mean-token-mean"), ("gspo", {"clip_low": 0.2, "clip_high": 0.3}, "seq-mean-token-mean"),
    ({"name": "cispo", "bound": "relative"}, {}, None), ({"name": "cispo", "bound": "relative"}, {"clip_high": 0.5}, None),
    ("sapo", {}, "seq-mean-token-mean"), ({"name": "sapo", "tau_positive": 0.5, "tau_negative": 2.0}, {}, "seq-mean-token-mean"),
    ({"name": "dppo", "delta": 0.05}, {}, None),
]
TRL_MORE = [
    ("gspo", {}, "seq-mean-token-mean"), ("gspo", {"clip_low": 0.2, "clip_high": 0.3}, "seq-mean-token-mean"),
    ({"name": "cispo", "bound": "absolute"}, {"clip_high": 1.2}, "token-mean"), ("sapo", {}, "seq-mean-token-mean"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verl", required=True, help="folder that holds the package verl")
    core, helper = load_verl(parser.parse_args().verl)
    rng = random.Random(20250101)
    cases = []

    def batch():
        return make_batch(rng, [[1, 0, 0.2], [0, 0], [round(rng.gauss(0, 1), 3) for _ in range(4)]])

    def add(source, algorithm, tolerance=1e-12, gradient_only=False, change=lambda b: b):
        b = change(batch())
        want = trl_case(b, algorithm) if source == "trl" else verl_case(core, helper, b, algorithm)
        if gradient_only:
            want["loss"] = None
        cases.append({"source": source, "tolerance": tolerance, "line": {"algorithm": algorithm, "trajectories": b}, "want": want})

    for variant in VARIANTS:
        for aggregation in AGGREGATIONS:
            add("trl", {"advantage": "dr_grpo", "loss": "ppo_clip", **aggregation, **variant})
            for estimator in ESTIMATORS:
                add("verl", {"advantage": estimator, "loss": "ppo_clip", **aggregation, **variant})
    for aggregation in AGGREGATIONS:
        for extra in ({}, {"kl": {"coefficient": 0.2, "estimator": "k2"}}):
            add("verl", {"advantage": "rloo", "loss": "reinforce", **aggregation, **extra})
        for estimator in ("opo", "remax"):
            add("verl", {"advantage": estimator, "loss": "ppo_clip", **aggregation})
        for estimator in WHITENED:
            add("verl", {"advantage": estimator, "loss": "ppo_clip", **aggregation}, tolerance=1e-7)
        for correction in CORRECTIONS:
            add("verl", {"advantage": "rloo", "loss": "ppo_clip", "correction": correction, **aggregation})
    for loss, settings, only in VERL_MORE:
        for aggregation in AGGREGATIONS:
            if only in (None, aggregation["aggregation"]):
                dppo = loss != "gspo" and loss != "sapo" and loss["name"] == "dppo"
                # verl compares with old where the sheet compares with sampling, and writes -sg[ratio] * A * current
                same = (lambda b: [{**t, "sampling": t["old"]} for t in b]) if dppo else (lambda b: b)
                add("verl", {"advantage": "grpo", "loss": loss, **aggregation, **settings}, gradient_only=dppo, change=same)
    for loss, settings, only in TRL_MORE:
        add("trl", {"advantage": "dr_grpo", "loss": loss, "aggregation": only, **settings})
    values = [verl_value(core, rng) for _ in range(20)]
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(("[" + ",\n".join(json.dumps(c) for c in cases) + "]\n").encode())
    (OUT.parent / "values.json").write_text("[" + ",\n".join(json.dumps(v) for v in values) + "]\n")
    print(f"{len(cases)} cases in {OUT}, {len(values)} in values.json")


if __name__ == "__main__":
    main()
