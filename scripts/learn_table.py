#!/usr/bin/env python3
"""Write the results of a learning job and its control as Markdown. usage: learn_table.py NAME CONTROL FOLDER"""
import json
import pathlib
import sys

name, control, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def read(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "commit": (run / "commit").read_text().strip(),
        "summary": json.loads((run / "summary.json").read_text()),
        "steps": [m for m in lines if "reward/mean" in m],
        "evals": {m["eval"]["name"]: m["eval"] for m in lines if "eval" in m},
    }


def mean(values):
    return sum(values) / len(values)


runs = {p.name.removeprefix(name + "-"): read(p) for p in sorted(folder.glob(name + "-*")) if (p / "summary.json").exists()}
if not runs:
    sys.exit(f"learn_table: no run of {name} in {folder} has ended; run scripts/learn.sh {name}")
print(f"# The job {name}\n")
print(f"`scripts/learn.sh {name}` wrote this page; the curves are `curves/{name}-*.jsonl`. The control is `--set {control}`.\n")
chance = folder / (name + ".chance")
if chance.exists():
    print(chance.read_text().strip().capitalize() + ".\n")

print("| | " + " | ".join(runs) + " |")
print("|---|" + "---|" * len(runs))


def row(title, value):
    print(f"| {title} | " + " | ".join(value(r) for r in runs.values()) + " |")


def evaluated(at, key):
    return lambda r: f"{r['evals'][at][key]:.3f}" if at in r["evals"] else ""


row("commit", lambda r: r["commit"])
row("steps", lambda r: str(len(r["steps"])))
row("seconds", lambda r: f"{r['summary']['seconds']:.0f}")
row("mean reward, first and last three steps", lambda r: f"{mean([m['reward/mean'] for m in r['steps'][:3]]):.3f} → {mean([m['reward/mean'] for m in r['steps'][-3:]]):.3f}")
row("held-out reward, greedy, before", evaluated("before", "reward"))
row("held-out reward, greedy, after", evaluated("after", "reward"))
row("rise", lambda r: f"{r['evals']['after']['reward'] - r['evals']['before']['reward']:+.3f}")
row("right answers, before", evaluated("before", "accuracy"))
row("right answers, after", evaluated("after", "accuracy"))
row("right answers after, tools off", evaluated("tool_off", "accuracy"))
row("reward after, tools off", evaluated("tool_off", "reward"))
row("largest difference of engine's and trainer's logprobs", lambda r: f"{r['summary']['mismatch_max']:.1e}")

first = next(iter(runs.values()))
kinds = sorted(first["evals"]["after"].get("sources") or {})
if kinds:
    print("\nHeld-out reward by kind, before → after:\n")
    print("| | " + " | ".join(runs) + " |")
    print("|---|" + "---|" * len(runs))
    for kind in kinds:
        row(kind, lambda r: " → ".join(f"{r['evals'][at]['sources'][kind]['reward']:.2f}" for at in ("before", "after")))

print("\nMean reward of the sampled trajectories by step:\n")
count = max(len(r["steps"]) for r in runs.values())
at = sorted({0, count - 1, *range(4, count, 5)})
print("| step | " + " | ".join(str(i + 1) for i in at) + " |")
print("|---|" + "---|" * len(at))
for title, r in runs.items():
    print(f"| {title} | " + " | ".join(f"{r['steps'][i]['reward/mean']:.2f}" if i < len(r["steps"]) else "" for i in at) + " |")
