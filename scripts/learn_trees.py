#!/usr/bin/env python3
"""Compare trees with chains at equal budgets, as Markdown. usage: learn_trees.py NAME FOLDER, where scripts/learn_trees.sh trained."""
import collections
import json
import math
import pathlib
import sys

# t of a two-sided 95 % interval, by degrees of freedom
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def read(path):
    """(reward of the mean of five steps, calls so far, sampled tokens so far) after each step."""
    out, calls, tokens, last = [], 0, 0, []
    for line in path.read_text().splitlines():
        m = json.loads(line)
        if "tokens/sampled" not in m:
            continue
        calls, tokens = calls + m.get("tools/calls", 0), tokens + m["tokens/sampled"]
        last = (last + [m["reward/mean"]])[-5:]
        out.append((sum(last) / len(last), calls, tokens))
    return out


def interval(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3g}"
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return f"{mean:.3g} ± {T95.get(len(values) - 1, 1.96) * spread / math.sqrt(len(values)):.2g}"


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    arms = collections.defaultdict(dict)
    for run in sorted(folder.glob(f"{name}-*/summary.json")):
        arm, seed = run.parent.name.removeprefix(name + "-").rsplit("-", 1)
        arms[arm][seed] = read(run.parent / "metrics.jsonl")
    if not arms.get("chains"):
        sys.exit(f"learn_trees: no run of chains of {name} in {folder} has ended; run scripts/learn_trees.sh")
    budget = min(steps[-1][1] for seeds in arms.values() for steps in seeds.values())
    print(f"{name}: rewards (mean of five steps, 95 % intervals over seeds) after {budget:.0f} tool calls, and when the reward that chains of the same seed end with is first there\n")
    print("| arm | seeds | reward at that budget | tokens sampled by then | tokens to the chains' last reward | seeds that came there | chains' tokens over the arm's |")
    print("|---|---|---|---|---|---|---|")
    for arm, seeds in arms.items():
        at = [next(s for s in steps if s[1] >= budget) for steps in seeds.values()]
        there, ratio = [], []
        for seed, steps in seeds.items():
            if seed not in arms["chains"]:
                continue
            chain = arms["chains"][seed]
            goal = chain[-1][0]
            first = next((s for s in steps if s[0] >= goal), None)
            if first:
                there.append(first[2])
                ratio.append(next(s for s in chain if s[0] >= goal)[2] / first[2])
        print(f"| {arm} | {len(seeds)} | {interval([a[0] for a in at])} | {interval([a[2] for a in at])} | {interval(there) if there else ''} | {len(there)} | {interval(ratio) if ratio else ''} |")


main()
