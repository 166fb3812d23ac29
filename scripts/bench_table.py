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
        return f"{get['agentfly', what, n] / get[other, what, n]:.2f}" if (other, what, n) in get else "not run"

    out = [f"`make bench-engine` at commit {commit}: {processor()}, {os.cpu_count()} CPUs, load average {load} before the run. "
           "float32, 2 threads, medians of 3.", "",
           "| tokens/s, 100-token prompts, 32 new tokens | sequences | agentfly | transformers | llama.cpp | to transformers | to llama.cpp |",
           "|---|---|---|---|---|---|---|"]
    for what in ("decode", "prefill"):
        for n in (1, 8, 32):
            out.append(f"| {what} | {n} | {cell('agentfly', what, n)} | {cell('transformers', what, n)} | {cell('llama.cpp', what, n)} "
                       f"| {ratio('transformers', what, n)} | {ratio('llama.cpp', what, n)} |")
    out += ["| bfloat16, any | | not run: the engine computes in float32 | | | | |", "", "| shape of RL | figure |", "|---|---|"]
    one, group = get["agentfly", "prefill_512_seconds", 1], get["agentfly", "group_512_seconds", 32]
    whole, theirs = get["agentfly", "group_512_64_seconds", 32], get["transformers", "group_512_64_seconds", 32]
    out += [
        f"| first tokens of 32 samples of one 512-token prompt | {group:.2f} s, {cell('agentfly', 'group_512_rows', 32)} rows computed; one prefill {one:.2f} s: {group / one:.2f} prefills |",
        f"| 32 samples of one 512-token prompt, 64 new tokens each | {whole:.1f} s, transformers {theirs:.1f} s: {whole / theirs:.2f} of its time |",
        f"| third turn, history of 1,000 tokens, 20 new ones | {cell('agentfly', 'third_turn_rows', 1)} rows computed, first token after {get['agentfly', 'third_turn_seconds', 1] * 1000:.0f} ms |",
        f"| engine against trainer, logprobs of {cell('agentfly', 'mismatch_tokens', 40)} sampled tokens | at most {get['agentfly', 'mismatch_max', 40]:.1e}, on average {get['agentfly', 'mismatch_mean', 40]:.1e}, bias {get['agentfly', 'mismatch_bias', 40]:.1e} |",
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
