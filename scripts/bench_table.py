#!/usr/bin/env python3
"""The table of docs/performance.md.

    bench_table.py LINES LOAD COMMIT       # prints the table and writes it between the markers of docs/performance.md
"""
import json
import os
import pathlib
import platform
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- bench-engine -->", "<!-- /bench-engine -->"


def processor():
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()) or [platform.processor()]
    return names[0]


def table(lines, load, commit):
    found = {}
    for line in pathlib.Path(lines).read_text().splitlines():
        r = json.loads(line)
        found.setdefault((r["engine"], r["dtype"], r["what"], r["sequences"]), []).append(r["value"])
    get = {k: statistics.median(v) for k, v in found.items()}

    def cell(engine, what, n, form="{:.0f}", dtype="float32"):
        key = (engine, dtype, what, n)
        return form.format(get[key]) if key in get else "not run"

    def over(a, b, form="{:.2f}", dtype="float32"):
        a, b = (a[0], dtype, *a[1:]), (b[0], dtype, *b[1:])
        return form.format(get[a] / get[b]) if a in get and b in get else "not run"

    out = [f"`make bench-engine` at commit {commit}: {processor()}, {os.cpu_count()} CPUs, load average {load} before the run. "
           "2 threads, medians of 3.", "",
           "| tokens/s, 100-token prompts, 32 new tokens | sequences | agentfly | transformers | llama.cpp | to transformers | to llama.cpp |",
           "|---|---|---|---|---|---|---|"]
    for dtype in ("float32", "bfloat16"):
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
    for dtype in ("float32", "bfloat16"):
        out.append(f"| {dtype} engine against float32 trainer, logprobs of {cell(ours, 'mismatch_tokens', 40, dtype=dtype)} sampled tokens | "
                   + ", ".join(f"{name} {cell(ours, 'mismatch_' + key, 40, '{:.1e}', dtype)}" for name, key in (("at most", "max"), ("on average", "mean"), ("bias", "bias"))) + " |")
    text = "\n".join(out)
    print(text)
    doc = ROOT / "docs/performance.md"
    before, rest = doc.read_text().split(BEGIN)
    doc.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    table(*sys.argv[1:])
