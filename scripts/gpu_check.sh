#!/bin/sh
# Build the C++ side against the torch (2.8 or newer) of this machine, and run the parity tests, a training job and the
# benchmarks on its GPU. Without a CUDA device the tests run on the CPU, and each line says what was skipped.
#
# usage: gpu_check.sh [BUNDLE]     LIBTORCH=DIR  use this libtorch instead of python3's   OUT=DIR  default gpu-check
#                                  QUICK=1       fewer steps and repetitions
#
# BUNDLE is what `make gpu-bundle` made: it needs neither Go nor a network here, but sh, g++, python3, and torch. In a
# checkout without the argument the bundle is made first. Writes OUT/gpu.md, the table of docs/gpu.md, and OUT/*.log.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
bundle=${1:-}
if test -z "$bundle"; then
  if test -f "$here/../commit" && test -d "$here/../bin"; then bundle=$here/..; else bundle=$(MODEL=${MODEL:-1} "$here/scripts/gpu_bundle.sh") || exit 1; fi
fi
bundle=$(cd "$bundle" && pwd) || exit 1
out=${OUT:-gpu-check}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
src=$bundle/src
: >"$out/rows"
status=0

# row CHECK RESULT DETAIL: a bar would begin a column, a line end a row
row() {
  detail=$(printf '%s' "$3" | tr '|\n' '/ ')
  printf '%-44s %-10s %s\n' "$1" "$2" "$detail"
  printf '| %s | %s | %s |\n' "$1" "$2" "$detail" >>"$out/rows"
  test "$2" != FAILED || status=1
}
# first FILE: the first line that names an error, or else the last
first() { grep -m1 -E 'error:|undefined reference|Error:|panic:' "$1" || tail -n 1 "$1"; }
seconds() { date +%s; }

finish() {
  {
    printf 'Commit %s; %s; torch %s; %s; %s.\n\n' "$(cat "$bundle/commit")" "$gpu" "$version" "$(g++ --version 2>/dev/null | head -n 1)" "$(date -u +%Y-%m-%d)"
    printf '| check | result | detail |\n|---|---|---|\n'
    cat "$out/rows"
  } >"$out/gpu.md"
  echo "table: $out/gpu.md"
  exit $status
}

gpu='no NVIDIA driver' version=unknown
if command -v nvidia-smi >/dev/null; then
  if gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null); then
    gpu=$(echo "$gpu" | sort | uniq -c | sed 's/^ *//' | paste -s -d ';' -)
  else
    gpu='nvidia-smi fails' # and has said why on standard output
  fi
fi

# ---- the C++ library ----
export XDG_CACHE_HOME="$out/cache" AGENTFLY_GOTORCH="$bundle/gotorch"
export BUILD_JOBS="${BUILD_JOBS:-$(nproc)}"
mkdir -p "$XDG_CACHE_HOME/agentfly/models/SmolLM2-135M-Instruct"
test ! -d "$bundle/model" || ln -sf "$bundle"/model/*.gguf "$XDG_CACHE_HOME/agentfly/models/SmolLM2-135M-Instruct/"
torch=$(python3 "$src/scripts/fetch.py" where-libtorch 2>"$out/libtorch.log")
if test -z "$torch"; then
  row 'libtorch' FAILED "none found: install torch 2.8 or newer for python3, or set LIBTORCH. $(tail -n 1 "$out/libtorch.log")"
  finish
fi
export LIBTORCH="$torch"
if grep -qa 'torchCheckFailEPKcS2_jRKSs' "$torch/lib/libc10.so"; then # takes a std::string of before GCC 5
  row 'libtorch' FAILED "$torch has the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), PyTorch's own wheels have the new one since 2.7: install such a one, or set LIBTORCH"
  finish
fi
start=$(seconds)
native=$("$src/scripts/build_native.sh" 2>"$out/build.log") || native=''
if test -z "$native" && grep -q AGENTFLY_BUILD_NCCL "$out/build.log"; then # the headers of NCCL are missing: the rest can go on
  row 'NCCL compiles' FAILED "$(grep -m1 'error:' "$out/build.log")"
  export AGENTFLY_BUILD_NCCL=0
  native=$("$src/scripts/build_native.sh" 2>"$out/build.log") || native=''
fi
if test -n "$native"; then
  with='without CUDA'
  test ! -f "$torch/lib/libtorch_cuda.so" || with='with CUDA and NCCL'
  test "${AGENTFLY_BUILD_NCCL:-1}" != 0 || with='with CUDA, without NCCL'
  row 'the C++ library compiles and links' ok "$with, $(($(seconds) - start)) s"
else
  row 'the C++ library compiles and links' FAILED "see build.log: $(first "$out/build.log")"
  finish
fi
export LD_LIBRARY_PATH="$native/lib:$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
agentfly=$bundle/bin/agentfly
devices=''
if "$agentfly" version >"$out/version.log" 2>&1; then
  version=$(sed -n 's/^libtorch *//p' "$out/version.log")
  devices=$(sed -n 's/^cuda *\([0-9][0-9]*\).*/\1/p' "$out/version.log")
fi
if test -z "$devices"; then
  row 'the program starts' FAILED "$(tail -n 1 "$out/version.log")"
  finish
fi
device=cpu
test "$devices" -eq 0 || device=cuda
row 'the program starts' ok "libtorch $version, $devices CUDA device(s): the tests run on $device"

# ---- tests ----
# tests NAME PACKAGE PATTERN: one row; a skipped test is a row of its own with its reason
tests() {
  log="$out/$(echo "$1" | tr -c 'A-Za-z0-9\n' _).log"
  (cd "$src/$2" && AGENTFLY_TEST_DEVICE=$device timeout 1200 "$bundle/bin/$2.test" -test.v -test.run "$3") >"$log" 2>&1
  code=$?
  passed=$(grep -c '^--- PASS' "$log") failed=$(grep -c '^--- FAIL' "$log")
  if test $code -ne 0; then
    row "$1" FAILED "$failed of $((passed + failed)) tests failed (exit status $code), see $(basename "$log"): $(grep -m1 -E 'Error:|panic:|^--- FAIL' "$log" | tr -s ' \t' '  ' | sed 's/^ //')"
  elif test "$passed" -gt 0; then
    worst=$(sed -n 's/.*worst[a-z ]*:* *//p' "$log" | grep -oE '[0-9.]+e[-+][0-9]+' | sort -g | tail -n 1)
    row "$1" ok "$passed test(s) on $device${worst:+, worst difference $worst}"
  elif ! grep -q '^ *--- SKIP' "$log"; then
    row "$1" FAILED "no test of $2 is named $3"
  fi
  awk -f "$src/scripts/skipped.awk" "$log" | sed -n 's/^  [A-Za-z0-9_]*\.go:[0-9]*: //p' | sort -u >"$out/skips"
  while read -r line; do row "$1" skipped "$line"; done <"$out/skips"
}
tests 'goldens: scores' cgo '^TestGoldenScores$'
tests 'goldens: gradients' cgo '^TestGoldenGradients$'
tests 'goldens: ten optimizer steps' cgo '^TestGoldenTenSteps$'
tests 'bfloat16 as close to float32 as transformers and PEFT' cgo '^TestHalfPrecision'
tests 'shared prefixes' cgo 'Tree|Forest|Prefix'
tests 'CUDA against the CPU kernels' cgo '^TestCUDAAgreesWithTheCPU$'
tests 'losses on CUDA tensors' cgo '^TestCUDATensors$'
tests 'the trainer' trainer 'Gradient|Step|Resume|Bandit|Update|Flat|Failing|NonFinite'
tests 'ranks over Gloo: collectives and shards' cgo '^Test(Collectives|ShardedSteps|Rank[A-Z].*)$'
tests 'ranks over Gloo: gradients and steps' trainer '^TestRanks(Give|Take)'
tests 'NCCL: broadcasts of weights' cgo '^TestNCCLOnCUDA$'
tests 'real weights (SmolLM2) against transformers' policy '^TestSmolLM2Logprobs$'

# ---- training jobs ----
# train NAME ARGUMENTS...
train() {
  name=$1
  shift
  run=$(mktemp -d) log="$out/$(echo "$name" | tr -c 'A-Za-z0-9\n' _).log"
  result=''
  if timeout 1500 "$agentfly" train "$src/examples/tiny.yaml" --output "$run/run" "$@" >"$log" 2>&1; then
    result=$(python3 - "$run/run/summary.json" 2>>"$log" <<'P'
import json, sys
s = json.load(open(sys.argv[1]))
print(f"{s['steps']} steps in {s['seconds']:.0f} s, reward {s['reward']['first']:.3f} to {s['reward']['last']:.3f}, engine and trainer {s['mismatch_max']:.1e} apart")
P
    )
  fi
  if test -n "$result"; then
    row "$name" ok "$result"
  else
    row "$name" FAILED "$(tail -n 1 "$log")"
  fi
  rm -rf "$run"
}
steps=90
test "${QUICK:-0}" = 0 || steps=6
train 'training job (examples/tiny.yaml)' --set "device=$device" --set "trainer.steps=$steps"
train 'training job (examples/tiny.yaml), bf16' --set "device=$device" --set "trainer.steps=$steps" --set model.dtype=bfloat16 \
  --set algorithm.correction.kind=tis_token
if test "$device" = cpu; then
  train 'training job, two ranks over Gloo' --set device=cpu --set trainer.steps=6 --ranks 2
  row 'training job, two ranks over NCCL' skipped 'no CUDA device'
elif test "$devices" -ge 2; then
  train 'training job, two ranks over NCCL' --set device=cuda --set "trainer.steps=$steps" --ranks 2
else
  row 'training job, two ranks over NCCL' skipped 'one CUDA device; NCCL wants one for each rank'
fi

# ---- benchmarks ----
# bench NAME BENCHMARK TYPE
bench() {
  log="$out/$2_$3.log"
  repeat=5x
  test "${QUICK:-0}" = 0 || repeat=1x
  (cd "$src/cgo" && AGENTFLY_TEST_DEVICE=$device timeout 1200 "$bundle/bin/cgo.test" -test.v -test.run '^$' -test.bench "^$2\$/^$3\$" -test.benchtime "$repeat") >"$log" 2>&1
  code=$?
  numbers=$(grep -E "^$2/$3(-[0-9]+)?[[:space:]]" "$log" | grep 'ns/op' | tail -n 1 | cut -f 2- | tr -s '\t ' ' ')
  if test $code -eq 0 && test -n "$numbers"; then
    row "$1" ok "$device:$numbers"
  elif grep -q -- '--- SKIP' "$log"; then
    row "$1" skipped "$(sed -n 's/^ *[a-z_]*\.go:[0-9]*: //p' "$log" | head -n 1)"
  else
    row "$1" FAILED "exit status $code, see $(basename "$log"): $(first "$log")"
  fi
}
for type in fp32 bf16; do
  bench "training step, SmolLM2-135M, 2,090 tokens, $type" BenchmarkTrainStep $type
  bench "training, Qwen2.5-0.5B shape, packed 8k, $type" BenchmarkPacked8k $type
done
row 'prefill and decode on the GPU' 'not run' 'the local engine decodes on the CPU; use a vLLM server'
finish
