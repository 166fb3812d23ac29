#!/bin/sh
# Mode async against sync on a job whose tool takes an exponential 2 s (examples/tiny_async.yaml, local engine, three seeds of both
# modes side by side): steps an hour and reward. Prints a table and writes it into docs/async.md. About 25 minutes, in which the
# machine mostly waits.
#
# BENCH_TOOL_SECONDS=2, BENCH_STEPS=90: the tool's mean, the steps of a run
# BENCH_LINES=FILE keeps the figures
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) out=${BENCH_LINES:-$(mktemp)}
trap 'rm -f "$log" "$log.test"' EXIT
scripts/torchgo test -c -o "$log.test" ./orchestrator
load=$(cut -d' ' -f1 /proc/loadavg)
echo "load average before: $load"
(cd orchestrator && OMP_NUM_THREADS=1 AGENTFLY_BENCH_ASYNC=$out "$log.test" -test.v -test.timeout 60m -test.run '^TestAsyncBenchmark$') >"$log" 2>&1 || { cat "$log"; exit 1; }
grep -E 'seed [0-9]: ' "$log" | sed 's/^ *[a-z_]*.go:[0-9]*: //'
python3 scripts/bench_table.py async "$out" "$load" "$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')"
