#!/usr/bin/env python3
"""Runs one side of a benchmark, and refuses what it measured when the machine had other work meanwhile.

    bench_side.py LINES NAME COMMAND...

COMMAND, which NAME says for people, prints its figures, or writes them to the file that BENCH_SIDE_LINES names, as JSON
lines; they go to the file LINES. A measurement counts when all else on the machine, the hypervisor's steal included, took at
most BENCH_OTHERS CPUs on average (default 0.1). Else it is said and tried again, BENCH_TRIES times (default 3) in all, and
then the exit status is 3. When COMMAND fails, its status is the exit status.
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time


def busy():
    """Seconds of all CPUs that were not idle, since the machine started."""
    user, nice, system, _, _, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own():
    """Seconds of CPU of this process and of those that it waited for."""
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def measure(command, lines):
    """Runs the command; returns the CPUs that all else took, and what it printed."""
    total, mine, start = busy(), own(), time.monotonic()
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "BENCH_SIDE_LINES": lines})
    others = (busy() - total - (own() - mine)) / (time.monotonic() - start)
    if ran.returncode != 0:
        sys.stdout.write(ran.stdout)
        sys.exit(ran.returncode)
    return max(others, 0), ran.stdout


def figures(text):
    found = []
    for line in text.splitlines():
        try:
            found.append(json.dumps(json.loads(line)))
        except ValueError:  # for people
            continue
    return found


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out, name, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    bound, tries = float(os.environ.get("BENCH_OTHERS", 0.1)), int(os.environ.get("BENCH_TRIES", 3))
    for turn in range(1, tries + 1):
        with tempfile.NamedTemporaryFile("r") as lines:
            others, printed = measure(command, lines.name)
            found = figures(printed) + figures(lines.read())
        if others <= bound:
            sys.stdout.write(printed)
            with open(out, "a") as f:
                f.writelines(line + "\n" for line in found)
            return
        print(f"bench: not comparable: while {name} ran, other work took {others:.2f} CPUs, more than {bound:g} (BENCH_OTHERS); try {turn} of {tries}", flush=True)
    print("bench: refused: the machine is not idle; end the other work and run this again", file=sys.stderr)
    sys.exit(3)


if __name__ == "__main__":
    main()
