#!/bin/sh
# What a GPU machine shows of AgentFly, in five stages of less than ten minutes each. The machine needs sh, python3 with
# torch (2.8 or newer), and for another torch than the bundle's g++; neither Go nor a network.
#
# usage: gpu_check.sh STAGE [BUNDLE]
#   1  the machine: versions, rates, flash attention and fused operators against their definitions
#   2  the library: goldens, gradients, ten steps, shared prefixes, bfloat16, losses, the local engine, NCCL
#   3  training steps: models x batches, with the time of each stage, launches, MFU, peak memory; transformers beside them
#   4  own kernels under compute-sanitizer and ncu; 7B until it fits
#   5  jobs: tiny in float32 and bfloat16, a resume's bits, memory given back, CUDA IPC, the main job
#   all  one after the other
#
# OUT=DIR         gpu-check       gets stage-N.md, the table, written anew after every row, and stage-N.tar.gz, the logs
# BUDGET=SECONDS  540             of a stage: a part gets what is left at most, and what does not fit is "not run"
# CACHE=DIR       /tmp/agentfly-gpu-check  unpacked bundle, compiled objects, runs
# LIBTORCH=DIR    python3's       another libtorch
# AT_ONCE=N       half of the CPUs  tests of stage 2 at a time
# ONLY=PATTERN    of the parts whose names match it (grep -E)
# MAIN_SECONDS    480             of the main job in stage 5
# QUICK=1         fewer steps and repetitions, smaller sizes
#
# BUNDLE is the folder that `make gpu-bundle` made; the copy of this script in it finds it by itself, and in a checkout it
# is made first. Without a CUDA device tests run on the CPU, and each row says what was skipped.
set -u
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")" && pwd)
stage=${1:-} bundle=${2:-}
case $stage in
1 | 2 | 3 | 4 | 5 | all) ;;
*) sed -n '5,20p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
esac
out=${OUT:-gpu-check}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
cache=${CACHE:-${TMPDIR:-/tmp}/agentfly-gpu-check}
mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || exit 1

if test "$stage" = all; then # the stages' tables become one, and the files that go back stay few
  status=0
  for stage in 1 2 3 4 5; do
    OUT="$out" sh "$0" "$stage" ${bundle:+"$bundle"} || status=1
    test ! -f "$out/stage-$stage.md" || { cat "$out/stage-$stage.md"; echo; } >>"$out/gpu.md.part"
    rm -f "$out/stage-$stage.md"
    test ! -f "$out/gpu.md.part" || cp "$out/gpu.md.part" "$out/gpu.md"
  done
  rm -f "$out/gpu.md.part"
  echo "table: $out/gpu.md"
  exit $status
fi

seconds() { date +%s; }
budget=${BUDGET:-540}
deadline=$(($(seconds) + budget))
logs=$cache/logs-$stage
rm -rf "$logs" && mkdir -p "$logs" || exit 1
rows=$logs/rows.md
: >"$rows"
gpu='no NVIDIA driver' version=unknown commit=unknown
QUICK=${QUICK:-0}
begun=0 collected=0 # tests that run beside each other
export QUICK

# table: what is known so far, and the logs in one archive; a log of more than 2 MB keeps its end
table() {
  {
    printf 'Stage %s. Commit %s; %s; torch %s; %s.\n\n' "$stage" "$commit" "$gpu" "$version" "$(date -u +%Y-%m-%d)"
    printf '| check | result | detail |\n|---|---|---|\n'
    cat "$rows"
    if test -s "$logs/steps.jsonl"; then
      printf '\nms a step and ms a stage; MFU against %s TFLOP/s; launches and the share of the step in which the device works.\n\n' "${AGENTFLY_PEAK_TFLOPS:-989}"
      python3 "$src/scripts/gpu_rows.py" steps "$logs/steps.jsonl"
    fi
  } >"$logs/table.new"
  cp "$logs/table.new" "$out/stage-$stage.md.new" && mv "$out/stage-$stage.md.new" "$out/stage-$stage.md"
  test "$begun" -gt "$collected" || find "$logs" -type f -size +2000k | while read -r long; do
    tail -c 2000000 "$long" >"$long.end" && mv "$long.end" "$long"
  done
  tar -C "$cache" -czf "$out/stage-$stage.tar.gz.new" "logs-$stage" 2>/dev/null
  test $? -gt 1 || mv "$out/stage-$stage.tar.gz.new" "$out/stage-$stage.tar.gz" # 1: a log grew meanwhile
}
# row CHECK RESULT DETAIL: a bar would begin a column, a line end a row
row() {
  detail=$(printf '%s' "$3" | tr '|\n' '/ ')
  printf '%-52s %-8s %s\n' "$1" "$2" "$detail"
  printf '| %s | %s | %s |\n' "$1" "$2" "$detail" >>"$rows"
  table
}
finish() {
  test -z "${ONLY:-}" || test -f "$logs/wanted" || row "ONLY=$ONLY" FAILED "no part of stage $stage has such a name, or it is no pattern of grep -E"
  echo "table: $out/stage-$stage.md"
  ! grep -q '^| [^|]* | FAILED |' "$rows" || exit 1
  exit 0
}
child='' # the program of a part
# shellcheck disable=SC2317 # the trap calls it
stopped() {
  # shellcheck disable=SC2046,SC2086 # the list is meant to split
  kill $child $(cat "$logs"/beside-*.process 2>/dev/null) 2>/dev/null
  while test "$collected" -lt "$begun"; do collect; done
  row "stage $stage" FAILED "ended by a signal"
  exit 1
}
trap stopped HUP INT TERM
log_of() { echo "$logs/$(printf '%s' "$1" | tr -c 'A-Za-z0-9' _).log"; }
# first FILE: the first line that names an error, or else the last
first() {
  line=$(grep -m1 -E 'error:|undefined reference|Error:|panic:|FAILED' "$1" || tail -n 1 "$1")
  printf '%s' "$line" | tr -s ' \t' '  ' | sed 's/^ //' | cut -c 1-400
}
# time_left NAME: how many seconds the stage has, in $left. It fails, with a row, where nothing can begin any more.
time_left() {
  left=$((deadline - $(seconds)))
  test "$left" -lt 5 || return 0
  row "$1" 'not run' "the $budget s of the stage are used up"
  return 1
}
wanted() {
  test -z "${ONLY:-}" || { printf '%s\n' "$1" | grep -Eq -- "$ONLY" && : >"$logs/wanted"; }
}
# part NAME SECONDS COMMAND...: runs it for so long at most, with its log in $log and its exit status in $code. It fails,
# with a row, where nothing is left of the stage's time or the part used up its own. It sets most, whole, left and name too.
part() {
  name=$1 most=$2 whole=$2
  shift 2
  log=$(log_of "$name") code=0
  wanted "$name" || { : >"$log" && return 1; }
  time_left "$name" || return 1
  test "$most" -le "$left" || most=$left
  timeout -k 5 "$most" "$@" >"$log" 2>&1 &
  child=$! # in the background, so that a signal finds it
  wait "$child" || code=$?
  child=''
  case $code in
  124 | 137)
    if test "$most" -lt "$whole"; then
      row "$name" 'not run' "stopped: of the $whole s that it may take $most were left of the stage"
    else
      row "$name" FAILED "stopped after $most s: $(tail -n 1 "$log" | cut -c 1-300)"
    fi
    return 1
    ;;
  esac
  return 0
}

if command -v nvidia-smi >/dev/null; then
  if gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null); then
    gpu=$(echo "$gpu" | sort | uniq -c | sed 's/^ *//' | paste -s -d ';' -)
  else
    gpu='nvidia-smi fails' # and has said why on standard output
  fi
fi

# ---- the bundle ----
src=$here/.. # until the bundle is known
if test -z "$bundle"; then
  if test -f "$here/bundle.tar.gz"; then
    bundle=$here
  elif test -f "$here/../../commit" && test -d "$here/../../bin"; then
    bundle=$here/../..
  else
    bundle=$cache/bundle
    sh "$here/gpu_bundle.sh" "$bundle" >"$logs/bundle.log" 2>&1 || { row 'bundle' FAILED "$(first "$logs/bundle.log")"; finish; }
  fi
fi
bundle=$(cd "$bundle" && pwd) || exit 1
parts=$bundle # of the model
if test -f "$bundle/bundle.tar.gz"; then
  unpacked=$cache/bundle-$(cksum <"$bundle/bundle.tar.gz" | cut -d ' ' -f 1)
  if ! test -d "$unpacked"; then
    rm -rf "$unpacked.new" && mkdir -p "$unpacked.new"
    tar -C "$unpacked.new" -xzf "$bundle/bundle.tar.gz" || { row 'bundle' FAILED 'bundle.tar.gz is not whole: make it anew'; finish; }
    mv "$unpacked.new" "$unpacked"
  fi
  bundle=$unpacked
fi
commit=$(cat "$bundle/commit")
src=$bundle/src
model=$cache/agentfly/models/SmolLM2-135M-Instruct
if ! ls "$model"/*.gguf >/dev/null 2>&1 && test -f "$bundle/model.name"; then # its parts may come one by one, with several commands
  whole=$(cut -d ' ' -f 2 "$bundle/model.name")
  if test "$(cat "$parts"/model.part-* 2>/dev/null | wc -c)" -eq "$whole"; then
    mkdir -p "$model"
    cat "$parts"/model.part-* >"$model/$(cut -d ' ' -f 1 "$bundle/model.name")"
  fi
fi

# ---- stage 1: the machine ----
probes() { # probes SECONDS [NAME...]: a row for each line that the program prints, as soon as it is there
  most=$1
  shift
  for name in "$@"; do # those that are wanted, behind the others
    ! wanted "$name" || set -- "$@" "$name"
    shift
  done
  test $# -gt 0 || return 0
  time_left probes || return 0
  test "$most" -le "$left" || most=$left
  tab=$(printf '\t')
  { timeout -k 5 "$most" python3 "$src/scripts/gpu_probes.py" "$@" 2>"$logs/probes.log" || echo "$? probes" >"$logs/probes.code"; } |
    while IFS=$tab read -r name result detail; do row "$name" "$result" "$detail"; done
  test ! -f "$logs/probes.code" || row 'probes' FAILED "ended with status $(cut -d ' ' -f 1 "$logs/probes.code"), 124 is after $most s: $(tail -n 1 "$logs/probes.log" | cut -c 1-300)"
  rm -f "$logs/probes.code"
}
stage_1() {
  probes 480 software tools machine device 'memory rate' 'host to device and back' 'launches' 'products, bfloat16' 'products, gradients of weights' \
    'flash attention of a forest against an explicit mask' 'flash attention, speed' 'fused operators against their definitions' 'fused operators, speed' Triton
  library
}

# ---- the library: the bundle's where it was compiled against this torch, else compiled here ----
starts() { # starts LIBRARY-FOLDER: runs the program with it, which tells torch's version and the devices
  export LD_LIBRARY_PATH="$1:$torch/lib:$cache/lib${given_path:+:$given_path}"
  LD_BIND_NOW=1 timeout 120 "$agentfly" version >"$logs/version.log" 2>&1 || return 1
  version=$(sed -n 's/^libtorch *//p' "$logs/version.log")
  devices=$(sed -n 's/^cuda *\([0-9][0-9]*\).*/\1/p' "$logs/version.log")
  test -n "$devices"
}
library() {
  agentfly=$bundle/bin/agentfly given_path=${LD_LIBRARY_PATH:-}
  export XDG_CACHE_HOME="$cache" AGENTFLY_GOTORCH="$bundle/gotorch"
  test ! -f "$bundle/kernels.fatbin" || export AGENTFLY_KERNELS="$bundle/kernels.fatbin" # bundles of before have none
  export BUILD_JOBS="${BUILD_JOBS:-$(nproc)}"
  torch=$(python3 "$src/scripts/fetch.py" where-libtorch 2>"$logs/libtorch.log")
  if test -z "$torch"; then
    row 'libtorch' FAILED "none found: install torch 2.8 or newer for python3, or set LIBTORCH. $(tail -n 1 "$logs/libtorch.log")"
    finish
  fi
  export LIBTORCH="$torch"
  if grep -qa 'torchCheckFailEPKcS2_jRKSs' "$torch/lib/libc10.so"; then # takes a std::string of before GCC 5
    row 'libtorch' FAILED "$torch has the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), PyTorch's own wheels have the new one since 2.7: install such a one, or set LIBTORCH"
    finish
  fi
  native='' compiled=''
  made_for=$(cat "$bundle/lib/torch-version" 2>/dev/null)
  here_is=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py" 2>/dev/null)
  if test -n "$made_for" && test "$made_for" = "$here_is"; then
    gomp=$(cat "$bundle/lib/libgomp-name" 2>/dev/null) # another wheel of the same torch names its copy by another hash
    if test -n "$gomp" && ! test -e "$torch/lib/$gomp"; then
      mkdir -p "$cache/lib" && ln -sf "$(find "$torch/lib" -name 'libgomp*.so*' | sort | head -n 1)" "$cache/lib/$gomp"
    fi
    if starts "$bundle/lib"; then
      native=$bundle/lib
      row 'the C++ library' ok "the bundle's, compiled against torch $made_for"
    else
      row "the bundle's C++ library" FAILED "compiled against torch $made_for, as is here: $(tail -n 1 "$logs/version.log" | cut -c 1-300)"
    fi
  fi
  if test -z "$native"; then
    name='the C++ library compiles and links'
    begin=$(seconds)
    time_left "$name" || finish
    compiled=$(timeout -k 5 "$left" "$src/scripts/build_native.sh" 2>"$logs/build.log") || compiled=''
    if test -z "$compiled" && grep -q AGENTFLY_BUILD_NCCL "$logs/build.log"; then # the headers of NCCL are missing: the rest can go on
      row 'NCCL compiles' FAILED "$(grep -m1 'error:' "$logs/build.log")"
      export AGENTFLY_BUILD_NCCL=0
      time_left "$name" || finish
      compiled=$(timeout -k 5 "$left" "$src/scripts/build_native.sh" 2>"$logs/build.log") || compiled=''
    fi
    if test -z "$compiled"; then
      row "$name" FAILED "see build.log: $(first "$logs/build.log")"
      finish
    fi
    with='without CUDA'
    test ! -f "$torch/lib/libtorch_cuda.so" || with='with CUDA and NCCL'
    test "${AGENTFLY_BUILD_NCCL:-1}" != 0 || with='with CUDA, without NCCL'
    row "$name" ok "$with, $(($(seconds) - begin)) s"
    native=$compiled/lib
  fi
  devices=''
  if ! starts "$native"; then
    row 'the program starts' FAILED "$(tail -n 1 "$logs/version.log")"
    finish
  fi
  device=cpu
  test "$devices" -eq 0 || device=cuda
  row 'the program starts' ok "libtorch $version, $devices CUDA device(s): the tests run on $device"
  export AGENTFLY_TEST_DEVICE=$device
}
has_device() { # has_device NAME: or a row that says that it needs one, of a part that is wanted
  wanted "$1" || return 1
  test "$device" = cuda && return 0
  row "$1" skipped 'no CUDA device'
  return 1
}

# ---- tests ----
# count_passed FILE: how many tests passed. One with subtests did where one of them did: go lets it pass too where all are skipped.
count_passed() {
  awk '
    /^ *--- (PASS|FAIL|SKIP): / {
      result[$3] = $2
      for (above = $3; sub(/\/[^\/]*$/, "", above);) parent[above]
    }
    END {
      for (name in result) if (result[name] == "PASS:" && !(name in parent)) { top = name; sub(/\/.*/, "", top); ran[top] }
      for (top in ran) n += result[top] == "PASS:"
      print n + 0
    }' "$1"
}
# tests NAME PACKAGE PATTERN [SECONDS [WITHOUT]]: one row; a skipped test is a row of its own with its reason
tests() {
  name=$1 package=$2 pattern=$3
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" "${4:-120}" sh -c 'cd "$1" && exec "$2" -test.v -test.run "$3" -test.skip "$4"' sh "$src/$package" "$bundle/bin/$package.test" "$pattern" "${5:-^$}" || return 0
  passed=$(count_passed "$log") failed=$(grep -c '^--- FAIL' "$log")
  worst=$(sed -n 's/.*worst[a-z ]*:* *//p' "$log" | grep -oE '[0-9.]+e[-+][0-9]+' | sort -g | tail -n 1)
  if test "$code" -ne 0; then
    row "$name" FAILED "$failed of $((passed + failed)) tests failed (exit status $code), see $(basename "$log"): $(grep -m1 -E 'Error:|panic:|^--- FAIL' "$log" | tr -s ' \t' '  ' | sed 's/^ //')"
  elif test "$passed" -gt 0; then
    row "$name" ok "$passed test(s) on $device${worst:+, worst difference $worst}"
  elif ! grep -q '^ *--- SKIP' "$log"; then
    row "$name" FAILED "no test of $package is named $pattern"
  fi
  awk -f "$src/scripts/skipped.awk" "$log" | sed -n 's/^  [A-Za-z0-9_]*\.go:[0-9]*: //p' | sort -u >"$log.skips"
  while read -r line; do row "$name" skipped "$line"; done <"$log.skips"
  rm -f "$log.skips"
}
# beside NAME PACKAGE PATTERN [SECONDS [WITHOUT]]: tests, next to at most at_once - 1 others; rows come in the order of the calls
beside() {
  wanted "$1" || return 0
  test $((begun - collected)) -lt "$at_once" || collect
  begun=$((begun + 1))
  echo "$1" >"$logs/beside-$begun.name"
  : >"$logs/beside-$begun.rows"
  (
    trap 'kill $child 2>/dev/null; exit 1' TERM
    row() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$logs/beside-$begun.rows"; }
    tests "$@"
  ) &
  echo $! >"$logs/beside-$begun.process"
}
collect() { # the oldest
  wait "$(cat "$logs/beside-$((collected + 1)).process")"
  collected=$((collected + 1))
  tab=$(printf '\t')
  test -s "$logs/beside-$collected.rows" || row "$(cat "$logs/beside-$collected.name")" FAILED 'it ended without a result'
  while IFS=$tab read -r check result detail; do row "$check" "$result" "$detail"; done <"$logs/beside-$collected.rows"
  rm -f "$logs/beside-$collected".*
}
stage_2() {
  library
  at_once=${AT_ONCE:-$(($(nproc) / 2))}
  test "$at_once" -ge 1 || at_once=1
  threads=${OMP_NUM_THREADS:-}
  export OMP_NUM_THREADS=$((($(nproc) + at_once - 1) / at_once))
  beside 'goldens: scores' cgo '^TestGoldenScores$'
  beside 'goldens: gradients' cgo '^TestGoldenGradients$'
  beside 'goldens: ten optimizer steps' cgo '^TestGoldenTenSteps$'
  beside 'CUDA against the CPU kernels' cgo '^TestCUDAAgreesWithTheCPU$'
  beside 'flash attention on forests' cgo '^TestFlashOnCUDA$'
  beside 'shared prefixes' cgo 'Tree|Forest|Prefix'
  beside 'bfloat16 as close to float32 as transformers and PEFT' cgo '^TestHalfPrecision'
  beside 'losses on CUDA tensors' cgo '^TestCUDATensors$'
  beside 'memory and optimizer' cgo '^Test(ReleaseKeepsTheBits|ReleasedOptimizer|OffloadKeepsTheBits|FusedAdamW|GradientsBehindZeros)$'
  beside 'the local engine' cgo '^TestDecoder' 180
  beside 'the trainer' trainer 'Gradient|Step|Resume|Bandit|Update|Flat|Failing|NonFinite' 180 '^TestRanks'
  beside 'NCCL: broadcasts of weights' cgo '^TestNCCLOnCUDA$' 90
  beside 'CUDA IPC: another process reads packed weights' cgo '^TestStagingOnCUDA$' 90
  beside 'ranks over Gloo: collectives and shards' cgo '^Test(Collectives|ShardedSteps|Rank[A-Z].*)$' 180
  beside 'ranks over Gloo: gradients and steps' trainer '^TestRanks(Give|Take)' 180
  beside 'real weights (SmolLM2) against transformers' policy '^TestSmolLM2Logprobs$'
  while test "$collected" -lt "$begun"; do collect; done
  export OMP_NUM_THREADS="$threads"
  test -n "$threads" || unset OMP_NUM_THREADS
}

# ---- training steps ----
# measure NAME SECONDS SETUP [ATTENTION]: a row; its JSON line is part of the wide table
measure() {
  name=$1 setup=$3 attention=${4:-}
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" "$2" sh -c 'cd "$1" && AGENTFLY_ATTENTION="$2" AGENTFLY_STEP="$3" AGENTFLY_STEP_OUT="$4" exec "$5" -test.v -test.run "^TestTrainingStep\$"' \
    sh "$src/cgo" "$attention" "$setup" "$logs/one.jsonl" "$bundle/bin/cgo.test" || return 1
  if test "$code" -eq 0 && test -s "$logs/one.jsonl"; then
    cat "$logs/one.jsonl" >>"$logs/steps.jsonl"
    row "$name" ok "$(python3 "$src/scripts/gpu_rows.py" step "$logs/one.jsonl" 2>&1)"
    rm -f "$logs/one.jsonl"
    return 0
  fi
  rm -f "$logs/one.jsonl"
  if grep -q 'out of memory' "$log"; then
    row "$name" FAILED "out of memory: $(grep -m1 -o 'Tried to allocate [^.]*\.[^.]*\.' "$log")"
  else
    row "$name" FAILED "exit status $code, see $(basename "$log"): $(grep -m1 -A3 'Error:' "$log" | tr -s ' \t\n' '   ' | sed 's/^ *//' | cut -c 1-400)"
  fi
  return 1
}
peer() { # peer MODEL BATCH: the same step by transformers
  part "transformers, $1, $2" 90 python3 "$src/scripts/gpu_transformers.py" "$1" "$2" || return 0
  if test "$code" -eq 0; then
    row "transformers, $1, $2" ok "$(tail -n 1 "$log")"
  elif grep -q "No module named 'transformers'" "$log"; then
    row "transformers, $1, $2" skipped 'transformers is not installed'
  else
    row "transformers, $1, $2" FAILED "$(tail -n 1 "$log" | cut -c 1-300)"
  fi
}
# sampling MODEL: steps of the local engine's cache, single tokens of several sequences and prompts
sampling() {
  name="decode and prefill, $1"
  has_device "$name" || return 0
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" 60 sh -c 'cd "$1" && AGENTFLY_BENCH_MODEL="$2" exec "$3" -test.run "^\$" -test.bench "^Benchmark(Decode|Prefill)\$" -test.benchtime 20x' \
    sh "$src/cgo" "$1" "$bundle/bin/cgo.test" || return 0
  rates=$(awk '/^Benchmark/ { for (i = 2; i < NF; i++) if ($(i + 1) == "tokens/s") printf "%s%s %.0f", (n++ ? ", " : ""), substr($1, 10), $i }' "$log")
  if test "$code" -eq 0 && test -n "$rates"; then
    row "$name" ok "tokens/s: $rates"
  else
    row "$name" FAILED "exit status $code, see $(basename "$log"): $(first "$log")"
  fi
}
forest=8x192+8x104 # 72 segments, 8,192 tokens
stage_3() {
  library
  if test "$device" = cpu; then
    measure 'training step, tiny, on the CPU' 120 'tiny 2x64 fp32 steps=3'
    measure 'training step, tiny, on the CPU, bf16' 120 'tiny 2x16+3x8 bf16 checkpoint steps=3'
    peer tiny 2x16+3x8
  fi
  attention='' # libtorch's flash attention, the default in bfloat16
  for size in 0.5B 1.5B 3B; do
    for batch in 8x1024 1x8192 $forest; do
      name="training step, $size, $batch, bf16"
      has_device "$name" || continue
      measure "$name" 80 "$size $batch bf16" "$attention" && continue
      if test -z "$attention" && test "$size $batch" = '0.5B 8x1024' && measure "$name, attention a segment at a time" 80 "$size $batch bf16" segments; then
        attention=segments # flash does not run here: the others do without it
      elif grep -q 'out of memory' "$log"; then
        measure "$name, layers computed again" 80 "$size $batch bf16 checkpoint" "$attention"
      fi
    done
  done
  for size in 0.5B 1.5B 3B; do # a step of several micro-batches, as jobs make them
    name="training step, $size, 8 micro-batches of 8x1024, bf16"
    ! has_device "$name" || measure "$name" 80 "$size 8x1024 bf16 micro=8 steps=3" "$attention"
  done
  for size in 135M 0.5B 1.5B; do sampling "$size"; done
  test "$device" = cuda || { ! wanted transformers || row 'transformers' skipped 'no CUDA device'; return; }
  peer 0.5B 8x1024
  peer 0.5B $forest
  test -n "$attention" || measure 'training step, 0.5B, 8x1024, bf16, attention a segment at a time' 60 '0.5B 8x1024 bf16' segments
  measure 'training step, 0.5B, 8x1024, fp32' 60 '0.5B 8x1024 fp32 steps=3'
  peer 1.5B 8x1024
  peer 3B 8x1024
}

# ---- own kernels, tools, 7B ----
found() { # found PROGRAM: its path, on PATH or where CUDA puts it
  command -v "$1" || find /usr/local/cuda*/bin /opt/nvidia/nsight-compute -maxdepth 2 -name "$1" -perm -u+x 2>/dev/null | head -n 1
}
has_tool() { # has_tool NAME PROGRAM: its path, in $tool, or a row that says what is missing
  has_device "$1" || return 1
  tool=$(found "$2")
  test -z "$tool" || return 0
  row "$1" skipped "$2 is not installed"
  return 1
}
sanitizer() { # sanitizer TOOL: memcheck or racecheck
  name="compute-sanitizer, $1"
  has_tool "$name" compute-sanitizer || return 0
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" 100 sh -c 'cd "$1" && shift && exec "$@"' sh "$src/cgo" "$tool" --tool "$1" --error-exitcode 9 --print-limit 20 \
    "$bundle/bin/cgo.test" -test.v -test.run "^Test(KernelsOnCUDA|Paged.*|CUDATensors|HalfPrecisionRepeats)\$" || return 0
  summary=$(grep -m1 -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | sed 's/^=* *//')
  if grep -q 'Device not supported' "$log"; then
    row "$name" skipped 'the device is not supported here (a sandbox without debugging)'
  elif test "$code" -eq 0 && test -n "$summary"; then
    row "$name" ok "$summary, $(count_passed "$log") test(s)"
  else
    row "$name" FAILED "exit status $code: ${summary:-$(first "$log")}"
  fi
}
counters() { # ncu over the kernels of a step
  name='ncu: kernels of a step, 0.5B'
  has_tool "$name" ncu || return 0
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" 120 sh -c 'cd "$1" && AGENTFLY_STEP="0.5B 8x1024 bf16 steps=1" AGENTFLY_STEP_OUT="$2" exec "$3" --clock-control none --launch-skip 400 --launch-count 150 \
    --section SpeedOfLight --csv --page raw --metrics gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed \
    "$4" -test.v -test.run "^TestTrainingStep\$"' sh "$src/cgo" "$logs/ncu.jsonl" "$tool" "$bundle/bin/cgo.test" || return 0
  kernels=$(grep -c '^"[0-9]' "$log")
  if test "$kernels" -gt 0; then
    row "$name" ok "counters of $kernels kernels, see $(basename "$log")"
  else
    row "$name" FAILED "exit status $code: $(grep -m1 '==ERROR==' "$log" || first "$log")"
  fi
}
own_kernels='^TestKernel|^TestPaged'
stage_4() {
  library
  tests 'own kernels against ATen' cgo "$own_kernels" 120
  sanitizer memcheck
  sanitizer racecheck
  counters
  for setup in '7B 8x1024 bf16 checkpoint steps=2' '7B 8x1024 bf16 checkpoint=22 steps=2' '7B 3x1024 bf16 micro=11 steps=2' '7B 1x2048 bf16 checkpoint steps=2' '7B 8x1024 bf16 adapter=16 steps=3' '7B 8x1024 bf16 checkpoint adapter=16 steps=3' '7B 1x2048 bf16 checkpoint adapter=16 steps=2'; do
    name="training step, ${setup% steps=*}"
    has_device "$name" || continue
    case "$setup:${fits:-}" in *checkpoint=*:*full*) ;; *checkpoint=* | *adapter*:*lora* | *2048\ bf16\ checkpoint\ steps*:*full*) continue ;; esac
    if measure "$name" 150 "$setup"; then
      case $setup in *adapter*) fits="${fits:-} lora" ;; *) fits="${fits:-} full" ;; esac
    fi
  done
}

# ---- jobs ----
# sampled LOG: where the local engine of a job sampled, as a note of the job says beside a trainer on a device; nothing on a CPU
sampled() {
  sed -n -e 's/.*the local engine samples on \([^ ]*\) too.*/; sampled on \1/p' \
    -e 's/.*the local engine does not (\([^)]*\)): it decodes on \([0-9]*\) CPUs.*/; sampled on \2 CPUs (\1)/p' "$1" | head -n 1
}
train() { # train NAME SECONDS JOB ARGUMENTS...: a row of what the job came to
  name=$1 most=$2 job=$3 cut=0
  shift 3
  folder=$(mktemp -d "$cache/run.XXXXXX")
  part "$name" "$most" "$agentfly" train "$src/examples/$job" --output "$folder/run" "$@" || cut=1
  result=$(python3 "$src/scripts/gpu_rows.py" job "$folder/run" 2>"$logs/rows.err")
  if test "$cut" = 1; then # it has a row already
    test -z "$result" || row "$name, as far as it came" ok "$result$(sampled "$log")"
  elif test "$code" -ne 0; then
    row "$name" FAILED "$(tail -n 1 "$log")"
  elif test -n "$result"; then
    row "$name" ok "$result$(sampled "$log")"
  else
    row "$name" FAILED "$(tail -n 1 "$logs/rows.err")"
  fi
  rm -rf "$folder"
}
resumed() { # resumed NAME ARGUMENTS...: eight steps at once, and five and a resume to eight
  name=$1
  shift
  straight=$(mktemp -d "$cache/run.XXXXXX") halves=$(mktemp -d "$cache/run.XXXXXX")
  # shellcheck disable=SC2016 # the inner shell's own
  part "$name" 120 sh -c '
    agentfly=$1 job=$2 whole=$3 halves=$4; shift 4
    "$agentfly" train "$job" --output "$whole/run" --set trainer.steps=8 "$@" &&
      "$agentfly" train "$job" --output "$halves/run" --set trainer.steps=5 "$@" &&
      "$agentfly" train "$job" --output "$halves/run" --resume --set trainer.steps=8 "$@"' sh "$agentfly" "$src/examples/tiny.yaml" "$straight" "$halves" "$@" || { rm -rf "$straight" "$halves"; return 0; }
  if test "$code" -ne 0; then
    row "$name" FAILED "$(tail -n 1 "$log")"
  elif same=$(python3 "$src/scripts/gpu_rows.py" same "$straight/run" "$halves/run" 2>&1); then
    row "$name" ok "$same$(sampled "$log")"
  else
    row "$name" FAILED "$(echo "$same" | tail -n 1)"
  fi
  rm -rf "$straight" "$halves"
}
left_out() { ! wanted "$1" || row "$@"; }
stage_5() {
  library
  steps=90
  test "$QUICK" = 0 || steps=6
  # with deterministic: true, as the file has it, the engine samples on the CPUs
  train 'training job (examples/tiny.yaml)' 150 tiny.yaml --set "device=$device" --set "trainer.steps=$steps" --set deterministic=false
  train 'training job (examples/tiny.yaml), bf16' 150 tiny.yaml --set "device=$device" --set "trainer.steps=$steps" --set deterministic=false --set model.dtype=bfloat16 --set algorithm.correction.kind=tis_token
  name='training job (examples/tiny.yaml), engine.device: cpu'
  ! has_device "$name" || train "$name" 150 tiny.yaml --set device=cuda --set "trainer.steps=$steps" --set engine.device=cpu
  resumed 'the same bits after a resume' --set "device=$device"
  resumed 'the same bits after a resume, bf16' --set "device=$device" --set model.dtype=bfloat16 --set algorithm.correction.kind=tis_token
  probes 120 'memory given back and taken again' 'CUDA IPC between two processes'
  if test "$device" = cpu; then
    train 'training job, two ranks over Gloo' 120 tiny.yaml --set device=cpu --set trainer.steps=6 --ranks 2
    left_out 'training job, two ranks over NCCL' skipped 'no CUDA device'
  elif test "$devices" -ge 2; then
    train 'training job, two ranks over NCCL' 120 tiny.yaml --set device=cuda --set "trainer.steps=$steps" --set deterministic=false --ranks 2
  else
    left_out 'training job, two ranks over NCCL' skipped 'one CUDA device; NCCL wants one for each rank'
  fi
  main='main job (SmolLM2, examples/calculator.yaml)'
  if ! ls "$model"/*.gguf >/dev/null 2>&1; then
    left_out "$main" skipped "the model is not here: take all parts of it along ($(find "$parts" -maxdepth 1 -name 'model.part-*' | wc -l) of $(cut -d ' ' -f 3 "$bundle/model.name" 2>/dev/null || echo 0) are)"
    return
  fi
  set -- "${MAIN_SECONDS:-480}" calculator.yaml --set device=cuda --set checkpoint.every=0 --set eval.tool_off=false
  ! has_device "$main, bf16" || train "$main, bf16" "$@" --set model.dtype=bfloat16 --set algorithm.correction.kind=tis_token
  ! has_device "$main" || train "$main" "$@"
}
case $stage in
1) stage_1 ;;
2) stage_2 ;;
3) stage_3 ;;
4) stage_4 ;;
5) stage_5 ;;
esac
finish
