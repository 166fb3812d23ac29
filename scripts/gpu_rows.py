#!/usr/bin/env python3
"""What a program of gpu_check.sh left, as text for its table.

usage: gpu_rows.py step FILE      the last training step of a file of JSON lines (TestTrainingStep of cgo), in one line
       gpu_rows.py steps FILE     all of them, as a table in Markdown
       gpu_rows.py kernels FILE   the kernels that took most time in each, as a table in Markdown
       gpu_rows.py job RUN        a training job's run folder, in one line: reward, time to a mean reward of 0.9, mismatch, rate of sampling
       gpu_rows.py same RUN RUN   says that the last checkpoints of two runs are the same bits, or fails
"""
import hashlib
import json
import pathlib
import sys

STAGES = ("embedding", "elementwise", "linear", "attention", "head", "optimizer", "other")


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]


def stage(row, name):
    part = (row.get("stages") or {}).get(name)
    return None if part is None else part["forward_ms"] + part["backward_ms"]


def number(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def kept(row):
    """Of the layers: their inputs, of so many, or all."""
    n = row["checkpoint"]
    return f"inputs of {n}" if n else "all"


def batches(row):
    """The micro-batches of a step."""
    n = row.get("micro", 1)
    return row["batch"] if n == 1 else f"{n} of {row['batch']}"


def failures(row):
    return "".join(f"; {what} FAILED: {why.splitlines()[0]}" for what, why in (row.get("failed") or {}).items())


def step(path):
    row = lines(path)[-1]
    stages = ", ".join(f"{name} {number(stage(row, name))}" for name in STAGES) if row.get("stages") else "no stages"
    gpu = f", {row['launches']:,} launches, device busy {100 * row['busy']:.0f}%" if row["launches"] else ""
    return (f"{row['device']}: {number(row['ms'])} ms, {row['tokens_s']:,.0f} tokens/s, MFU {100 * row['mfu']:.1f}%{gpu}, peak {number(row['peak_gib'])} GiB; "
            f"ms a stage when each waits ({number(row['profiled_ms'])} in all): {stages}{failures(row)}")


def steps(path):
    head = ["model", "batch", "type", "attention", "kept", "ms", "tokens/s", "MFU", *STAGES, "launches", "busy", "peak GiB", "loss"]
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in lines(path):
        model = row["model"] + (f", LoRA {row['adapter']}" if row["adapter"] else "")
        cells = [model, f"{batches(row)} ({row['segments']})", row["dtype"], row["attention"] or "default", kept(row),
                 number(row["ms"]), f"{row['tokens_s']:,.0f}", f"{100 * row['mfu']:.1f}%", *(number(stage(row, s)) for s in STAGES),
                 f"{row['launches']:,}" if row["launches"] else "-", f"{100 * row['busy']:.0f}%" if row["launches"] else "-",
                 number(row["peak_gib"]), f"{row['loss_first']:.3f} → {row['loss_last']:.3f}"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def kernels(path):
    out = ["| model | batch | kernel | calls | ms |", "|---|---|---|---|---|"]
    for row in lines(path):
        for k in ((row.get("trace") or {}).get("Busiest") or [])[:12]:
            name = k["Name"].replace("|", "/")
            out.append(f"| {row['model']} | {row['batch']} | {name[:120]} | {k['Calls']} | {1e3 * k['Seconds']:.2f} |")
    return "\n".join(out)


def job(run):
    run = pathlib.Path(run)
    parts, reached = [], None
    summary = run / "summary.json"
    steps = [m for m in lines(run / "metrics.jsonl") if "reward/mean" in m] if (run / "metrics.jsonl").exists() else []
    elapsed = 0.0
    for i, m in enumerate(steps):
        elapsed = m.get("seconds/elapsed", elapsed + m.get("seconds/step", 0))
        if reached is None and m["reward/mean"] >= 0.9:
            reached = (i + 1, elapsed)
    if summary.exists():
        s = json.loads(summary.read_text())
        parts.append(f"{s['steps']} steps in {s['seconds']:.0f} s, reward {s['reward']['first']:.3f} to {s['reward']['last']:.3f}, engine and trainer {s['mismatch_max']:.1e} apart")
    elif steps:
        parts.append(f"cut after step {len(steps)} ({elapsed:.0f} s), reward {steps[0]['reward/mean']:.3f} to {steps[-1]['reward/mean']:.3f}")
    else:
        sys.exit("gpu_rows: the job has left neither summary.json nor a step in metrics.jsonl")
    if steps:
        parts.append(f"0.9 reached at step {reached[0]} ({reached[1]:.0f} s)" if reached else "0.9 not reached")
        for name in ("sample", "train", "sync"):
            values = [m[f"seconds/{name}"] for m in steps if f"seconds/{name}" in m]
            if values:
                parts.append(f"{name} {sum(values) / len(values):.2f} s a step")
        rates = [m["tokens/sample_per_second"] for m in steps if "tokens/sample_per_second" in m]
        if rates:
            parts.append(f"{sum(rates) / len(rates):,.0f} tokens/s sampled")
    return "; ".join(parts)


def same(a, b):
    digests = []
    for run in (a, b):
        files = sorted((pathlib.Path(run) / "checkpoints" / "last").glob("*.safetensors"))
        if not files:
            sys.exit(f"gpu_rows: {run} has no checkpoint")
        digests.append([(f.name, hashlib.sha256(f.read_bytes()).hexdigest()[:12]) for f in files])
    if digests[0] != digests[1]:
        other = ", ".join(x[0] for x, y in zip(*digests) if x != y) or "the files' names"
        sys.exit(f"gpu_rows: other bits after a resume: {other}")
    return f"{len(digests[0])} file(s), sha256 of {digests[0][0][0]} {digests[0][0][1]}"


def main():
    verbs = {"step": step, "steps": steps, "kernels": kernels, "job": job, "same": same}
    if len(sys.argv) < 3 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    print(verbs[sys.argv[1]](*sys.argv[2:]))


if __name__ == "__main__":
    main()
