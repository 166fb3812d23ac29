#!/usr/bin/env python3
"""The table of docs/performance.md.

    bench_table.py llama LOG REPEAT              # llama-batched-bench's table as JSON lines
    bench_table.py table LINES LOAD COMMIT       # prints the table and writes it between the markers of docs/performance.md
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


def llama(path, repeat):
    found = False
    # PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s
    for line in pathlib.Path(path).read_text().splitlines():
        cells = [c.strip() for c in line.strip("| ").split("|")]
        if len(cells) == 10 and cells[0] == "100":
            found = True
            for what, cell in (("prefill", cells[5]), ("decode", cells[7])):
                print(json.dumps({"engine": "llama.cpp", "what": what, "sequences": int(cells[2]), "value": float(cell), "repeat": int(repeat)}))
    if not found:
        sys.exit(f"bench: {path} holds no table of llama-batched-bench")


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
    if sys.argv[1:2] == ["llama"] and len(sys.argv) == 4:
        llama(*sys.argv[2:])
    elif sys.argv[1:2] == ["table"] and len(sys.argv) == 5:
        table(*sys.argv[2:])
    else:
        sys.exit(__doc__)
