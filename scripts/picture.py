#!/usr/bin/env python3
"""Draw the rewards of runs of the main job as an SVG, from their metrics.jsonl: the picture of README.md.

usage: picture.py > docs/results/calculator.svg

The curves are the mean reward of a step's trajectories, the dots the share of held-out tasks that are solved before and after. Every
number of the picture is read from docs/results/curves; `go test -run Picture ./docs` draws it again and compares.
"""
import json
import pathlib

CURVES = pathlib.Path(__file__).resolve().parent.parent / "docs" / "results" / "curves"
RUNS = [("seed 1", "calculator-six-seed1-avx512", "#1f6feb"), ("seed 4", "calculator-six-seed4-avx512", "#c2410c")]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 48, 150, 34, 40


def read(name):
    """The mean rewards by step, and the evaluations by name."""
    lines = [json.loads(line) for line in open(CURVES / (name + ".jsonl"))]
    return [m["reward/mean"] for m in lines if "reward/mean" in m], {m["eval"]["name"]: m["eval"] for m in lines if "eval" in m}


runs = [(label, color, *read(name)) for label, name, color in RUNS]
steps = max(len(rewards) for _, _, rewards, _ in runs)
x = lambda step: round(LEFT + (WIDTH - LEFT - RIGHT) * step / steps, 1)
y = lambda value: round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - value), 1)
text = lambda at, line, said, **more: print(
    f'<text x="{at}" y="{line}"' + "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items()) + f">{said}</text>")

print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#24292f">')
print(f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff"/>')
text(LEFT, 20, "SmolLM2-135M-Instruct learns to use a calculator", font_weight="bold")
for value in (0, 0.25, 0.5, 0.75, 1):
    print(f'<path d="M{x(0)} {y(value)}H{x(steps)}" stroke="#d0d7de"/>')
    text(LEFT - 8, y(value) + 4, value, text_anchor="end")
for step in range(0, steps + 1, 5):
    text(x(step), HEIGHT - BOTTOM + 18, step, text_anchor="middle")
text(x(steps / 2), HEIGHT - 6, "step", text_anchor="middle")
side = TOP + 12
for label, color, rewards, evals in runs:
    points = " ".join(f"{x(i + 1)},{y(r)}" for i, r in enumerate(rewards))
    print(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    text(WIDTH - RIGHT + 12, side, f"{label}: mean reward", fill=color)
    for name in ("before", "after"):
        e = evals[name]
        print(f'<circle cx="{x(e["step"])}" cy="{y(e["accuracy"])}" r="4.5" fill="#fff" stroke="{color}" stroke-width="2"/>')
    side += 16
    text(WIDTH - RIGHT + 12, side, f'held out {evals["before"]["accuracy"]:.2f} → {evals["after"]["accuracy"]:.2f}', fill=color)
    side += 24
print("</svg>")
