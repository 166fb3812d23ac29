#!/bin/sh
# The trainer beside transformers and PyTorch with the padded micro-batches of 8 that TRL builds: whole steps on SmolLM2-135M in
# float32 with two threads, in one run. Prints a table and writes it into docs/performance.md. Wants an idle machine; about 15 minutes.
#
# PYTHON: a python with torch, transformers and gguf (default: scripts/goldens/venv.sh makes one)
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
out=${BENCH_LINES:-$work/lines}
python=${PYTHON:-$(scripts/goldens/venv.sh)/bin/python}
model=$(python3 scripts/fetch.py model)
scripts/torchgo test -c -o "$work/policy.test" ./policy
load=$(cut -d' ' -f1 /proc/loadavg)
echo "load average before: $load"
ours() { (cd policy && OMP_NUM_THREADS=2 AGENTFLY_BENCH_OUT=$out "$work/policy.test" -test.v -test.run '^TestBenchTrain$') >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; grep -E '^ *bench_train' "$work/log" | sed 's/^[^:]*:[0-9]*: //'; }
theirs() { OMP_NUM_THREADS=2 "$python" scripts/bench_train.py "$model" "$@" 2>"$work/log" | tee -a "$out" || { tail -n 20 "$work/log"; exit 1; }; }
AGENTFLY_BENCH_SHAPES=$work/shapes.json ours
AGENTFLY_BENCH_MEMORY=1 ours
theirs "$work/shapes.json"
theirs "$work/shapes.json" memory
python3 scripts/bench_table.py train "$out" "$load" "$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')"
