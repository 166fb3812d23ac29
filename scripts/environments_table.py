#!/usr/bin/env python3
"""Write the results of jobs with an environment as Markdown, and their curves as CSV. usage: environments_table.py RUNS CURVES JOB…

A JOB is a path in examples/ without .yaml; its NAME is the last part.

RUNS has a folder NAME-seedN for each seed of a job NAME and NAME-seedN-shuffled for its control, as scripts/learn.sh makes them. The interval
is that of the mean difference between the held-out tasks after and before the run: 10,000 resamples of the tasks, each task with both of its
results (paired bootstrap).
"""
import csv
import json
import pathlib
import random
import sqlite3
import sys

runs, curves, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
WHOLE = 1 - 1e-6  # the reward of an episode that reached the goal, and of no other


def evaluations(run):
    """The rewards of the held-out tasks by task, before and after."""
    store = sqlite3.connect(f"file:{run / 'store.db'}?mode=ro", uri=True)
    out = {}
    for name in ("before", "after"):
        rows = store.execute("SELECT task_id, json FROM trajectories WHERE phase = ?", ("eval-" + name,))
        out[name] = {task: json.loads(text)["reward"] for task, text in rows}
    store.close()
    if not out["before"] or out["before"].keys() != out["after"].keys():
        sys.exit(f"environments_table: {run}: the evaluations before and after are not of the same tasks; run it to its end with eval.every 0 or more")
    return out


def interval(differences, resamples=10_000):
    """The mean of the differences and its 95% interval over tasks."""
    source, n = random.Random(1), len(differences)
    means = sorted(sum(source.choices(differences, k=n)) / n for _ in range(resamples))
    return sum(differences) / n, means[int(0.025 * resamples)], means[int(0.975 * resamples) - 1]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def read(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    text = (run / "cpu").read_text().split() if (run / "cpu").exists() else ["", ""]
    return {
        "commit": (run / "commit").read_text().strip(),
        "cpu": text[0],
        "summary": json.loads((run / "summary.json").read_text()),
        "steps": [m for m in lines if "reward/mean" in m],
        "tasks": evaluations(run),
    }


def curve(name, run):
    with open(curves / (name + ".csv"), "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["step", "reward", "turns", "entropy", "seconds"])
        for m in run["steps"]:
            row = [m["step"]] + [f"{m[key]:.4g}" for key in ("reward/mean", "turns", "update/entropy", "seconds/step")]
            out.writerow(row)


def table(job):
    name = pathlib.PurePath(job).name
    found = {p.name.removeprefix(name + "-"): read(p) for p in sorted(runs.glob(name + "-seed*")) if (p / "summary.json").exists()}
    if not found:
        sys.exit(f"environments_table: no run of {name} in {runs} has ended; run scripts/learn.sh {name}")
    print(f"## `examples/{job}.yaml`\n")
    print("| run | commit | steps | CPU | training reward | held-out reward | its change | held-out tasks at the goal | change of the share at the goal |")
    print("|---|---|---|---|---|---|---|---|---|")
    for title, r in found.items():
        curve(f"{name}-{title}", r)
        before, after = r["tasks"]["before"], r["tasks"]["after"]
        at = {k: {t: float(v >= WHOLE) for t, v in side.items()} for k, side in r["tasks"].items()}
        change, low, high = interval([at["after"][t] - at["before"][t] for t in before])
        better, least, most = interval([after[t] - before[t] for t in before])
        reward = [m["reward/mean"] for m in r["steps"]]
        cells = [
            title.replace("seed", "seed ").replace("-shuffled", ", shuffled rewards"), r["commit"], str(len(reward)), f"{r['cpu']} s" if r["cpu"] else "",
            f"{mean(reward[:3]):.3f} → {mean(reward[-3:]):.3f}", f"{mean(before.values()):.3f} → {mean(after.values()):.3f}", f"{better:+.2f} [{least:+.2f}, {most:+.2f}]",
            f"{mean(at['before'].values()):.2f} → {mean(at['after'].values()):.2f} of {len(before)}", f"{change:+.2f} [{low:+.2f}, {high:+.2f}]",
        ]
        print("| " + " | ".join(cells) + " |")
    last = max(len(r["steps"]) for r in found.values())
    every = max(1, last // 10)
    ends = sorted({every * i for i in range(1, 11)} | {last})
    print("\nMean reward of the sampled trajectories, over the steps up to the one named:\n")
    print("| run | " + " | ".join(str(e) for e in ends) + " |\n|---|" + "---|" * len(ends))
    for title, r in found.items():
        cells = []
        for start, end in zip([0] + ends, ends):
            part = [m["reward/mean"] for m in r["steps"][start:end]]
            cells.append(f"{mean(part):.2f}" if part else "")
        print(f"| {title} | " + " | ".join(cells) + " |")
    print()


for one in names:
    table(one)
