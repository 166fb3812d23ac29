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
        found.setdefault((r["engine"], r["what"], r["sequences"]), []).append(r["value"])
    get = {k: statistics.median(v) for k, v in found.items()}

    def cell(engine, what, n, form="{:.0f}"):
        return form.format(get[engine, what, n]) if (engine, what, n) in get else "not run"

    def ratio(other, what, n):
        a, b = ("agentfly", what, n), (other, what, n)
        return f"{get[a] / get[b]:.2f}" if a in get and b in get else "not run"

    out = [f"`make bench-engine` at commit {commit}: {processor()}, {os.cpu_count()} CPUs, load average {load} before the run. "
           "float32, 2 threads, medians of 3.", "",
           "| tokens/s, 100-token prompts, 32 new tokens | sequences | agentfly | transformers | llama.cpp | to transformers | to llama.cpp |",
           "|---|---|---|---|---|---|---|"]
    for what in ("decode", "prefill"):
        for n in (1, 8, 32):
            out.append(f"| {what} | {n} | {cell('agentfly', what, n)} | {cell('transformers', what, n)} | {cell('llama.cpp', what, n)} "
                       f"| {ratio('transformers', what, n)} | {ratio('llama.cpp', what, n)} |")
    out += ["| bfloat16, any | | not run: the engine computes in float32 | | | | |", "", "| shape of RL | figure |", "|---|---|"]
    def over(a, b, form="{:.2f}"):
        return form.format(get[a] / get[b]) if a in get and b in get else "not run"

    one, group, whole = ("prefill_512_seconds", 1), ("group_512_seconds", 32), ("group_512_64_seconds", 32)
    ours, theirs = "agentfly", "transformers"
    out += [
        f"| first tokens of 32 samples of one 512-token prompt | {cell(ours, *group, '{:.2f} s')}, {cell(ours, 'group_512_rows', 32)} rows computed; "
        f"one prefill {cell(ours, *one, '{:.2f} s')}: {over((ours, *group), (ours, *one))} prefills |",
        f"| 32 samples of one 512-token prompt, 64 new tokens each | {cell(ours, *whole, '{:.1f} s')}, transformers {cell(theirs, *whole, '{:.1f} s')}: "
        f"{over((ours, *whole), (theirs, *whole))} of its time |",
        f"| third turn, history of 1,000 tokens, 20 new ones | {cell(ours, 'third_turn_rows', 1)} rows computed, first token after {cell(ours, 'third_turn_seconds', 1, '{:.2f} s')} |",
        f"| engine against trainer, logprobs of {cell(ours, 'mismatch_tokens', 40)} sampled tokens | at most {cell(ours, 'mismatch_max', 40, '{:.1e}')}, "
        f"on average {cell(ours, 'mismatch_mean', 40, '{:.1e}')}, bias {cell(ours, 'mismatch_bias', 40, '{:.1e}')} |",
    ]
    text = "\n".join(out)
    print(text)
    doc = ROOT / "docs/performance.md"
    before, rest = doc.read_text().split(BEGIN)
    doc.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    table(*sys.argv[1:])
