#!/usr/bin/env python3
"""The tables of docs/performance.md and docs/async.md.

    bench_table.py engine|train|async|rollout LINES LOAD COMMIT    # prints the table and writes it between its markers

BENCH_DRY=1: only prints. Rounds of engine whose figures lie more than a factor of BENCH_SPREAD (default 1.25) apart are refused: exit status 3.
"""
import json
import os
import pathlib
import platform
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DTYPES = ("float32", "bfloat16")


def processor():
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()) or [platform.processor()]
    return names[0]


def machine(target, load, commit):
    return f"`make {target}` at commit {commit}: {processor()}, {os.cpu_count()} CPUs, load average {load} before the run. 2 threads"


def read(lines, *keys):
    """The medians, by engine and keys; of llama.cpp with and without flash attention, the faster."""
    found = {}
    for line in pathlib.Path(lines).read_text().splitlines():
        r = json.loads(line)
        found.setdefault(tuple(r[k] for k in ("engine", *keys)), {}).setdefault(r.get("flash"), []).append(r["value"])
    return {k: max(statistics.median(v) for v in by.values()) for k, by in found.items()}


def apart(lines, bound):
    """The figures of the engines whose rounds do not agree, for people."""
    rounds = {}
    for line in pathlib.Path(lines).read_text().splitlines():
        r = json.loads(line)
        if r["what"] in ("decode", "prefill"):
            rounds.setdefault((r["engine"], r["dtype"], r.get("flash", ""), r["what"], r["sequences"]), []).append(r["value"])
    return [f"{' '.join(str(k) for k in key if k != '')} sequences: rounds from {min(values):.0f} to {max(values):.0f} tokens/s"
            for key, values in rounds.items() if max(values) > bound * min(values)]


def train(lines, load, commit):
    get = read(lines, "dtype", "what")
    out = [machine("bench-train", load, commit) + "; the sides take turns, the dense batch three times (medians).", "",
           "| a step on SmolLM2-135M | trajectories/s | transformers | ratio | tokens computed | padded tokens |", "|---|---|---|---|---|---|"]
    for dtype in DTYPES:
        for what, text, n in (("prompt_200", "8 groups of 8, 200-token prompts, 30 to 150 sampled", 64), ("prompt_1000", "the same with 1,000-token prompts", 64),
                              ("three_turns", "three turns of 15 to 75, observations of 150 between", 64), ("dense_8x256", "8 x 256, nothing shared, nothing masked", 8)):
            if ("agentfly", dtype, what + "_seconds") not in get:
                continue
            a, computed = get["agentfly", dtype, what + "_seconds"], get["agentfly", dtype, what + "_packed_tokens"]
            if ("transformers", dtype, what + "_seconds") not in get:
                out.append(f"| {dtype}: {text} | {n / a:.3f} | not run | | {computed:.0f} in {a:.1f} s | |")
                continue
            b, padded = get["transformers", dtype, what + "_seconds"], get["transformers", dtype, what + "_padded_tokens"]
            out.append(f"| {dtype}: {text} | {n / a:.3f} | {n / b:.3f} | {b / a:.2f} | {computed:.0f} in {a:.1f} s | {padded:.0f} in {b:.1f} s |")
    out += ["", "Peak memory of the process over a step of the first shape, micro-batches of 8 padded trajectories' tokens on both sides:"]
    for dtype in DTYPES:
        if ("agentfly", dtype, "peak_memory_mib") in get:
            a, b = get["agentfly", dtype, "peak_memory_mib"], get.get(("transformers", dtype, "peak_memory_mib"))
            out.append(f"{dtype} {a:.0f} MiB, " + (f"transformers {b:.0f} MiB: {a / b:.2f} of it." if b else "transformers not run."))
    return out


def engine(lines, load, commit):
    get = read(lines, "dtype", "what", "sequences")

    def cell(engine, what, n, form="{:.0f}", dtype="float32"):
        key = (engine, dtype, what, n)
        return form.format(get[key]) if key in get else "not run"

    def over(a, b, form="{:.2f}", dtype="float32"):
        a, b = (a[0], dtype, *a[1:]), (b[0], dtype, *b[1:])
        return form.format(get[a] / get[b]) if a in get and b in get else "not run"

    out = [machine("bench-engine", load, commit) + ", medians of the rounds; agentfly and llama.cpp take turns. Decode is the median decode step.", "",
           "| tokens/s, 100-token prompts, 32 new tokens | sequences | agentfly | transformers | llama.cpp | to transformers | to llama.cpp |",
           "|---|---|---|---|---|---|---|"]
    for dtype in DTYPES:
        for what in ("decode", "prefill"):
            for n in (1, 8, 32):
                out.append(f"| {what}, {dtype} | {n} " + "".join(f"| {cell(e, what, n, dtype=dtype)} " for e in ("agentfly", "transformers", "llama.cpp"))
                           + "".join(f"| {over(('agentfly', what, n), (e, what, n), dtype=dtype)} " for e in ("transformers", "llama.cpp")) + "|")
    out += ["", "| shape of RL, float32 | figure |", "|---|---|"]

    one, group, whole = ("prefill_512_seconds", 1), ("group_512_seconds", 32), ("group_512_64_seconds", 32)
    ours, theirs = "agentfly", "transformers"
    out += [
        f"| first tokens of 32 samples of one 512-token prompt | {cell(ours, *group, '{:.2f} s')}, {cell(ours, 'group_512_rows', 32)} rows computed; "
        f"one prefill {cell(ours, *one, '{:.2f} s')}: {over((ours, *group), (ours, *one))} prefills |",
        f"| 32 samples of one 512-token prompt, 64 new tokens each | {cell(ours, *whole, '{:.1f} s')}, transformers {cell(theirs, *whole, '{:.1f} s')}: "
        f"{over((ours, *whole), (theirs, *whole))} of its time |",
        f"| third turn, history of 1,000 tokens, 20 new ones | {cell(ours, 'third_turn_rows', 1)} rows computed, first token after {cell(ours, 'third_turn_seconds', 1, '{:.2f} s')} |",
    ]
    for dtype in DTYPES:
        out.append(f"| {dtype} engine against float32 trainer, logprobs of {cell(ours, 'mismatch_tokens', 40, dtype=dtype)} sampled tokens | "
                   + ", ".join(f"{name} {cell(ours, 'mismatch_' + key, 40, '{:.1e}', dtype)}" for name, key in (("at most", "max"), ("on average", "mean"), ("bias", "bias"))) + " |")
    out.append("| the same in bfloat16 on both sides | "
               + ", ".join(f"{name} {cell(ours, 'mismatch_half_' + key, 40, '{:.1e}', 'bfloat16')}" for name, key in (("at most", "max"), ("on average", "mean"), ("bias", "bias"))) + " |")
    return out


def rollout(lines, load, commit):
    rows = {(r["client"], r["concurrent"]): r for r in map(json.loads, pathlib.Path(lines).read_text().splitlines())}
    out = [machine("bench-rollout", load, commit).removesuffix(". 2 threads") + ".", "",
           "| live trajectories | client | turns/s | CPU s per 1,000 turns, client | server | KiB of a trajectory beyond its tokens | p99 of a completion, s |",
           "|---|---|---|---|---|---|---|"]
    counts = sorted({n for _, n in rows})
    names = {"agentfly": "agentfly, all recorded", "aiohttp": "bare aiohttp loop", "aiohttp-1024": "the same with 1,024 connections", "openai": "AsyncOpenAI", "verifiers": "verifiers"}
    for n in counts:
        for client, name in names.items():
            if r := rows.get((client, n)):
                cpu = [f"{r[side + '_cpu'] * 1000 / r['turns_per_second']:.2f}" if r["turns_per_second"] else "no turn ended" for side in ("client", "server")]
                tokens = rows.get(("agentfly", n), {}).get("token_kib", 0)
                p99 = "none ended" if r["p99_seconds"] is None else f"{r['p99_seconds']:.2f}"
                out.append(f"| {n:,} | {name} | {r['turns_per_second']:,.0f} | {cpu[0]} | {cpu[1]} | {r['kib_per_trajectory'] - tokens:.1f} | {p99} |")
    ours = {n: rows["agentfly", n]["turns_per_second"] for n in counts if ("agentfly", n) in rows}
    for client, name in names.items():
        ratios = [f"{ours[n] / rows[client, n]['turns_per_second']:.1f} at {n:,}" for n in ours if client != "agentfly" and rows.get((client, n), {}).get("turns_per_second")]
        if ratios:
            out += ["", f"agentfly's turns/s over those of {name}: " + ", ".join(ratios) + "."]
    return out


def asynchronous(lines, load, commit):
    runs = {}
    for line in pathlib.Path(lines).read_text().splitlines():
        r = json.loads(line)
        runs[r["mode"], r["seed"]] = r
    seeds = sorted({seed for _, seed in runs})
    some = runs["async", seeds[0]]
    out = [machine("bench-async", load, commit).replace("2 threads", f"examples/tiny_async.yaml with 4 groups of 32, {some['steps']} steps, "
                                                         f"a calculator that takes an exponential {some['tool_seconds']:g} s, max_staleness {some['max_staleness']}; all six runs side by side."), "",
           "| seed | steps an hour: sync | async | ratio | reward, mean of all steps: sync | async | of the last ten: sync | async | largest staleness | trajectories over an update | failed |",
           "|---|---|---|---|---|---|---|---|---|---|---|"]
    rate = lambda r: r["steps"] / r["seconds"] * 3600
    last = lambda r: statistics.mean(r["rewards"][-10:])
    every = lambda r: statistics.mean(r["rewards"])
    rows = [(runs["sync", k], runs["async", k]) for k in seeds]
    for k, (a, b) in zip(seeds, rows):
        out.append(f"| {k} | {rate(a):.0f} | {rate(b):.0f} | {rate(b) / rate(a):.2f} | {every(a):.3f} | {every(b):.3f} | {last(a):.3f} | {last(b):.3f} "
                   f"| {b['stale']} | {b['mixed']} of {b['trained']} | {a['failed'] + b['failed']} |")
    mean = lambda f, i: statistics.mean(f(r[i]) for r in rows)
    out.append(f"| mean | {mean(rate, 0):.0f} | {mean(rate, 1):.0f} | {mean(rate, 1) / mean(rate, 0):.2f} | {mean(every, 0):.3f} | {mean(every, 1):.3f} "
               f"| {mean(last, 0):.3f} | {mean(last, 1):.3f} | | | |")
    return out


def write_between(doc, mark, text):
    """Puts text between <!-- mark --> and <!-- /mark --> of a page."""
    doc, begin, end = ROOT / doc, f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, rest = doc.read_text().split(begin)
    doc.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    tables = {"engine": engine, "train": train, "async": asynchronous, "rollout": rollout}
    if len(sys.argv) != 5 or sys.argv[1] not in tables:
        sys.exit(__doc__)
    text = "\n".join(tables[sys.argv[1]](*sys.argv[2:]))
    print(text)
    bound = float(os.environ.get("BENCH_SPREAD", 1.25))
    if sys.argv[1] == "engine" and (wrong := apart(sys.argv[2], bound)):
        print(f"bench: refused: rounds lie more than a factor of {bound:g} apart (BENCH_SPREAD), so the sides were not comparable; nothing is written:", file=sys.stderr)
        print("\n".join("  " + w for w in wrong), file=sys.stderr)
        sys.exit(3)
    if os.environ.get("BENCH_DRY"):
        sys.exit(0)
    write_between("docs/async.md" if sys.argv[1] == "async" else "docs/performance.md", f"bench-{sys.argv[1]}", text)
