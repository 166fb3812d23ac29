#!/bin/sh
# The runs that take longer than a test may: three seeds of the main job, its control with shuffled rewards, and the
# two-step job. Prints one row a run; docs/results.md holds the rows with commit and machine.
set -eu
cd "$(dirname "$0")/.."
out=${OUT:-runs/long}
row() { # row NAME
  python3 - "$out/$1" "$1" <<'PY'
import json, sys
run, name = sys.argv[1:]
s = json.load(open(run + "/summary.json"))
steps = [m for m in map(json.loads, open(run + "/metrics.jsonl")) if "reward/mean" in m]
reached = next((m for m in steps if m["reward/mean"] >= 0.9), None)
when = f"step {reached['step'] + 1}, {reached['seconds/elapsed']:.0f} s" if reached else "never"
e = s["eval"]
print(f"| {name} | {s['steps']} | {s['seconds']:.0f} | {s['reward']['first']:.3f} | {s['reward']['last']:.3f} | {when} | {e.get('before', 0):.2f} | {e.get('after', 0):.2f} | {e.get('tool_off', 0):.2f} | {s['mismatch_max']:.1e} |")
PY
}
echo "| run | steps | seconds | first | last | reward 0.9 at | eval before | after | tool off | mismatch |"
echo "|---|---|---|---|---|---|---|---|---|---|"
train() { # train NAME JOB ARGS...
  name=$1 job=$2
  shift 2
  rm -rf "${out:?}/$name"
  bin/agentfly train --output "$out/$name" "$@" "$job" >"$out/$name.log" 2>&1 || { tail -n 3 "$out/$name.log"; exit 1; }
  row "$name"
}
mkdir -p "$out"
for seed in ${SEEDS:-1 2 3}; do train "calculator-$seed" examples/calculator.yaml --seed "$seed"; done
train shuffled examples/calculator.yaml --set control.shuffle_rewards=true
train two_step examples/two_step.yaml
echo "the tiny job on two ranks beside one:"
AGENTFLY_LONG=1 scripts/torchgo test -count=1 -timeout 30m -run TestTwoRanksLearn -v . | grep -E 'ranks_test.go|^(---|ok|FAIL)'
