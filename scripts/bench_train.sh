#!/bin/sh
# The trainer beside transformers and PyTorch with the padded micro-batches of 8 that TRL builds: whole steps on SmolLM2-135M in
# float32 and bfloat16 (float32 master weights) with two threads. The sides take turns, shape by shape, the dense one three times: a shared host's speed moves by half
# within minutes. Prints a table and writes it into docs/performance.md. Wants an idle machine; about 30 minutes.
#
# SHAPES="prompt_200 dense_8x256": only these shapes, whose figures are printed and not written
# PYTHON: a python with torch, transformers and gguf (default: scripts/goldens/venv.sh makes one)
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
out=${BENCH_LINES:-$work/lines}
python=${PYTHON:-$(scripts/goldens/venv.sh)/bin/python}
model=$(python3 scripts/fetch.py model)
scripts/torchgo test -c -o "$work/trainer.test" ./trainer
load=$(cut -d' ' -f1 /proc/loadavg)
echo "load average before: $load"
ours() { (cd trainer && OMP_NUM_THREADS=2 AGENTFLY_BENCH_ONLY=$1 AGENTFLY_BENCH_DTYPE=$2 AGENTFLY_BENCH_OUT=$out "$work/trainer.test" -test.v -test.run '^TestBenchTrain$') >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; grep -E '^ *bench_train' "$work/log" | sed "s/^[^:]*:[0-9]*: /agentfly $2 /" || true; }
theirs() { OMP_NUM_THREADS=2 "$python" scripts/bench_train.py "$model" "$work/shapes.json" "$1" "$2" >"$work/figures" 2>"$work/log" || { tail -n 20 "$work/log"; exit 1; }; tee -a "$out" <"$work/figures"; }
AGENTFLY_BENCH_SHAPES=$work/shapes.json ours none float32
both() { ours "$1" "$2" && theirs "$1" "$2"; }
shapes=${SHAPES:-dense_8x256 prompt_200 dense_8x256 prompt_1000 dense_8x256 three_turns memory}
for shape in $shapes; do both "$shape" float32; done
if grep -q -e avx512_bf16 -e amx_bf16 /proc/cpuinfo; then
  for shape in $shapes; do both "$shape" bfloat16; done
else # PyTorch's products in bfloat16 take a hundred times as long there
  echo "bfloat16: transformers is not run, this processor has no bfloat16 instructions"
  for shape in ${SHAPES:-dense_8x256 memory}; do ours "$shape" bfloat16; done
fi
test -z "${SHAPES:-}" || exit 0
python3 scripts/bench_table.py train "$out" "$load" "$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')"
