#!/bin/sh
# The runs that take longer than a test may: five seeds of the main job, which must reach 0.95 of the held-out tasks, its
# control with shuffled rewards, which must not improve, and the two-step job; first, 10,000 random histories of agents over the gateway. Prints one row a run; docs/results/calculator.md holds
# the rows with commit and machine.
#
# KINDS="native avx2" runs the main job and its control also as on a processor without AVX-512, see docs/performance.md.
# ONLY_MAIN=1 leaves the rest out, SEEDS names other seeds.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
out=${OUT:-runs/long}
row() { # row NAME LEAST MOST: of the evaluation after the run
  python3 - "$out/$1" "$@" <<'PY'
import json, sys
run, name = sys.argv[1:3]
least, most = map(float, sys.argv[3:])
s = json.load(open(run + "/summary.json"))
steps = [m for m in map(json.loads, open(run + "/metrics.jsonl")) if "reward/mean" in m]
reached = next((m for m in steps if m["reward/mean"] >= 0.9), None)
when = f"step {reached['step']}, {reached['seconds/elapsed']:.0f} s" if reached else "never"
e = s["eval"]
print(f"| {name} | {s['steps']} | {s['seconds']:.0f} | {s['reward']['first']:.3f} | {s['reward']['last']:.3f} | {when} | {e.get('before', 0):.2f} | {e.get('after', 0):.2f} | {e.get('tool_off', 0):.2f} | {s['mismatch_max']:.1e} |", flush=True)
if not least <= e["after"] <= most:
    sys.exit(f"{name}: {e['after']:.3f} of the held-out tasks after training, expected {least} to {most}")
PY
}
as_kind() { # as_kind KIND COMMAND...
  case $1 in
  native) shift && "$@" ;;
  avx2) shift && env AGENTFLY_CPU=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 "$@" ;;
  *) return 2 ;;
  esac
}
missed=0
for kind in ${KINDS:-native}; do
  as_kind "$kind" true || { echo "KINDS: $kind is unknown; native and avx2 are known" >&2; exit 2; }
done
AGENTFLY_HISTORIES=10000 go test -count=1 -run '^TestRandomHistories$' ./gateway
echo "| run | steps | seconds | first | last | reward 0.9 at | eval before | after | tool off | mismatch |"
echo "|---|---|---|---|---|---|---|---|---|---|"
train() { # train KIND NAME LEAST MOST JOB ARGS...
  kind=$1 name=$2 least=$3 most=$4 job=$5
  shift 5
  rm -rf "${out:?}/$name"
  as_kind "$kind" bin/agentfly train --output "$out/$name" "$@" "$job" >"$out/$name.log" 2>&1 || { tail -n 3 "$out/$name.log"; exit 1; }
  row "$name" "$least" "$most" || missed=1
}
mkdir -p "$out"
for kind in ${KINDS:-native}; do
  for seed in ${SEEDS:-1 2 3 4 5}; do train "$kind" "calculator-$kind-$seed" 0.95 1 examples/calculator.yaml --seed "$seed"; done
  train "$kind" "shuffled-$kind" 0 0.6 examples/calculator.yaml --set control.shuffle_rewards=true
done
if test -z "${ONLY_MAIN:-}"; then
  train native two_step 0.5 1 examples/two_step.yaml
  echo "the tiny job on two ranks beside one:"
  AGENTFLY_LONG=1 scripts/torchgo test -count=1 -timeout 30m -run TestTwoRanksLearn -v ./e2e | grep -E 'ranks_test.go|^(---|ok|FAIL)'
fi
exit $missed
