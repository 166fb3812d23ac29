#!/usr/bin/env python3
"""Compare trees with chains at equal budgets, as Markdown. usage: learn_trees.py NAME FOLDER [CSV], where scripts/learn_trees.sh trained; CSV gets the
curves of all runs, a row a step.

The reward after a step is the mean of the last five steps: of all trajectories, and of those that began at the prompt. The second is what the policy
earns; a rule that forks where the policy is unsure has leaves that do worse than it, or better. Intervals are 95 % of t over the seeds. A ratio of tokens
is the chains' to the arm's, by seed, until the reward that the chains of that seed end with was first there; its mean is the geometric one. A seed that
never came there counts with all of its tokens, so that the true ratio is less: the table says so.
"""
import collections
import csv
import json
import math
import pathlib
import sqlite3
import sys

WINDOW = 5  # steps whose mean is the reward of a step
# t of a two-sided 95 % interval, by degrees of freedom
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}

Step = collections.namedtuple("Step", "reward root calls tokens")  # reward of all, and of roots (None: unknown); calls and tokens so far
# each Step by itself, and its share of groups whose rewards are all equal; the means of Steps from the fifth on; held-out rewards, greedy (None: not evaluated)
Run = collections.namedtuple("Run", "single flat steps before after")


def roots(path):
    """Sum and number of the rewards of the trajectories that began at the prompt, by step; {} without a store."""
    out = collections.defaultdict(lambda: [0.0, 0])
    if not path.exists():
        return out
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with db:
        for step, text in db.execute("SELECT step, json FROM trajectories WHERE phase = 'train' AND branch = ''"):
            t = json.loads(text)
            if not t.get("err"):
                out[step][0] += t.get("reward", 0)
                out[step][1] += 1
    db.close()
    return out


def read(folder):
    """The steps of a run, and its held-out rewards."""
    began, single, flat, steps, evals, calls, tokens, last = roots(folder / "store.db"), [], [], [], {}, 0, 0, []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        m = json.loads(line)
        if "eval" in m:
            evals[m["eval"]["name"]] = m["eval"]["reward"]
        if "tokens/sampled" not in m:
            continue
        calls, tokens = calls + m.get("tools/calls", 0), tokens + m["tokens/sampled"]
        last = (last + [(m["reward/mean"], *began[m["step"] - 1])])[-WINDOW:]  # the store counts steps from 0
        flat.append(m["groups/flat"] / m["groups/sampled"])
        reward, total, count = last[-1]
        single.append(Step(reward, total / count if count else None, calls, tokens))
        if len(last) == WINDOW:
            n = sum(r[2] for r in last)
            steps.append(Step(mean([r[0] for r in last]), sum(r[1] for r in last) / n if n else None, calls, tokens))
    if not steps:
        sys.exit(f"learn_trees: {folder} has fewer than {WINDOW} steps; give STEPS={WINDOW} or more")
    return Run(single, flat, steps, evals.get("before"), evals.get("after"))


def mean(values):
    return sum(values) / len(values)


def half(values):
    """Half of the 95 % interval of a mean; None of a single value."""
    if len(values) < 2:
        return None
    m = mean(values)
    return T95.get(len(values) - 1, 1.96) * math.sqrt(sum((v - m) ** 2 for v in values) / (len(values) - 1) / len(values))


def interval(values, digits=3):
    if not values or None in values:
        return ""
    h = half(values)
    return f"{mean(values):.{digits}f}" + ("" if h is None else f" ± {h:.{digits}f}")


def factor(ratios, bound):
    """The geometric mean with its interval; bound says that some are at most what they are."""
    logs = [math.log(r) for r in ratios]
    m, h = mean(logs), half(logs)
    return ("≤ " if bound else "") + f"{math.exp(m):.2f}" + ("" if h is None else f" ({math.exp(m - h):.2f} to {math.exp(m + h):.2f})")


def within(steps, budget, of):
    """The last step that a budget reaches: of calls or tokens."""
    return max((s for s in steps if getattr(s, of) <= budget), key=lambda s: getattr(s, of), default=None)


def tokens_to(steps, goal, of):
    """Tokens until a reward was first there; None: it never was."""
    return next((s.tokens for s in steps if getattr(s, of) >= goal), None)


def at_budget(arms, of, unit):
    """The table of rewards when so many calls, or tokens, were spent."""
    budget = min(getattr(run.steps[-1], of) for seeds in arms.values() for run in seeds.values())
    print(f"After {budget:,.0f} {unit}, which the run that spent least spent:\n")
    print("| arm | seeds | reward | less the chains' of the same seed | reward of those that began at the prompt | steps | tool calls | sampled tokens |")
    print("|---|---|---|---|---|---|---|---|")
    for arm, seeds in arms.items():
        at = {seed: within(run.steps, budget, of) for seed, run in seeds.items()}
        if None in at.values():
            print(f"| {arm} | {len(seeds)} | a seed spent more in its first {WINDOW} steps | | | | | |")
            continue
        chains = {seed: within(run.steps, budget, of) for seed, run in arms["chains"].items()}
        less = [at[seed].reward - chains[seed].reward for seed in at if chains.get(seed)]
        steps = [seeds[seed].steps.index(s) + WINDOW for seed, s in at.items()]
        cells = [interval([s.reward for s in at.values()]), interval(less) if arm != "chains" else "", interval([s.root for s in at.values()])]
        print(f"| {arm} | {len(seeds)} | {' | '.join(cells)} | {mean(steps):.0f} | {mean([s.calls for s in at.values()]):,.0f} | {mean([s.tokens for s in at.values()]):,.0f} |")
    print()


def at_step(arms):
    """The table of the step that all runs came to."""
    n = min(len(run.single) for seeds in arms.values() for run in seeds.values())
    print(f"Step for step, {n} of them, which the shortest run had:\n")
    print("| arm | reward | tool calls a step | sampled tokens a step | groups whose rewards are all equal |")
    print("|---|---|---|---|---|")
    for arm, seeds in arms.items():
        runs = seeds.values()
        ends = [run.steps[n - WINDOW] for run in runs]
        print(f"| {arm} | {interval([s.reward for s in ends])} | {mean([s.calls for s in ends]) / n:,.1f} | {mean([s.tokens for s in ends]) / n:,.0f} | {mean([mean(run.flat[:n]) for run in runs]):.0%} |")
    print()


def to_goal(arms, of, what):
    """The table of tokens until the chains' last reward."""
    print(f"Sampled tokens until the {what} is first what that of the chains of the same seed ends with:\n")
    print("| arm | seeds that came there | tokens of those | chains' tokens over the arm's |")
    print("|---|---|---|---|")
    for arm, seeds in arms.items():
        there, ratios, bound = [], [], False
        both = [seed for seed in seeds if seed in arms["chains"]]
        for seed in both:
            chain, run = arms["chains"][seed].steps, seeds[seed].steps
            goal = getattr(chain[-1], of)
            if goal is None or getattr(run[-1], of) is None:
                break
            tokens = tokens_to(run, goal, of)
            if tokens:
                there.append(tokens)
            bound = bound or not tokens
            ratios.append(tokens_to(chain, goal, of) / (tokens or run[-1].tokens))
        if not ratios or len(ratios) < len(both):
            print(f"| {arm} | no store.db tells | | |")
            continue
        print(f"| {arm} | {len(there)} of {len(both)} | {f'{mean(there):,.0f}' if there else ''} | {factor(ratios, bound) if arm != 'chains' else '1'} |")
    print()


def write_curves(path, arms):
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["arm", "seed", "step", "reward", "reward_from_prompt", "tool_calls", "sampled_tokens"])
        for arm, seeds in arms.items():
            for seed, run in seeds.items():
                for n, s in enumerate(run.single, 1):
                    out.writerow([arm, seed, n, f"{s.reward:.4f}", "" if s.root is None else f"{s.root:.4f}", s.calls, s.tokens])


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    found = collections.defaultdict(dict)
    for run in sorted(folder.glob(f"{name}-*/summary.json")):
        arm, seed = run.parent.name.removeprefix(name + "-").rsplit("-", 1)
        found[arm][seed] = read(run.parent)
    if "chains" not in found:
        sys.exit(f"learn_trees: no run of chains of {name} in {folder} has ended; run scripts/learn_trees.sh")
    arms = {"chains": found.pop("chains"), **found}
    if len(sys.argv) > 3:
        write_curves(sys.argv[3], arms)
    print(f"{name}: means over the seeds with 95 % intervals; a reward is that of the last {WINDOW} steps\n")
    at_budget(arms, "calls", "tool calls")
    at_budget(arms, "tokens", "sampled tokens")
    at_step(arms)
    to_goal(arms, "reward", "reward")
    to_goal(arms, "root", "reward of those that began at the prompt")
    print("Whole runs; held-out rewards are greedy:\n")
    print("| arm | seeds | steps | tool calls | sampled tokens | reward at the end | held-out, before | held-out, after |")
    print("|---|---|---|---|---|---|---|---|")
    for arm, seeds in arms.items():
        ends = [run.steps[-1] for run in seeds.values()]
        numbers = [mean([len(run.steps) + WINDOW - 1 for run in seeds.values()]), mean([s.calls for s in ends]), mean([s.tokens for s in ends])]
        held = [interval([run.before for run in seeds.values()]), interval([run.after for run in seeds.values()])]
        print(f"| {arm} | {len(seeds)} | {' | '.join(f'{n:,.0f}' for n in numbers)} | {interval([s.reward for s in ends])} | {' | '.join(held)} |")


main()
