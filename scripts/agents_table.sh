#!/bin/sh
# The table of kinds of agents in docs/results/agents.md: each job examples/agents_KIND.yaml, and the same with shuffled rewards. A cell is the
# mean reward of the first three steps and of the last three; the curve goes to CURVES where that is set. tool_call is examples/tiny.yaml;
# custom_go is examples/custom/agent.yaml, which bin/custom runs (CUSTOM is another one).
#   scripts/agents_table.sh [BINARY [KIND...]]     SEED (1) is what is run. A run takes less than a minute.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$here/bin/agentfly}
test $# -gt 0 && shift
test $# -gt 0 || set -- tool_call react code search_r1 action custom custom_go
seed=${SEED:-1}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mean of the first and last three steps of a curve
ends() {
  sed -n 's/.*"reward\/mean":\([-0-9.e]*\).*/\1/p' "$1" |
    awk '{ r[NR] = $1 } END { printf "%.2f → %.2f", (r[1] + r[2] + r[3]) / 3, (r[NR] + r[NR-1] + r[NR-2]) / 3 }'
}

echo "| kind | reward, first and last three steps | control with shuffled rewards | seconds |"
echo "|---|---|---|---|"
for kind; do
  line="| \`$kind\` |" program=$binary job=$here/examples/agents_$kind.yaml
  case $kind in
  tool_call) job=$here/examples/tiny.yaml ;;
  custom_go) program=${CUSTOM:-$here/bin/custom} job=$here/examples/custom/agent.yaml ;;
  esac
  for shuffle in false true; do
    run=$work/$kind-$shuffle
    if "$program" train --output "$run" --seed "$seed" --set "control.shuffle_rewards=$shuffle" "$job" >"$work/out" 2>&1; then
      line="$line $(ends "$run/metrics.jsonl") |"
    else
      tail -1 "$work/out" >&2
      line="$line failed |"
    fi
    if test -n "${CURVES:-}" && test -f "$run/metrics.jsonl"; then
      name=agents_$kind-seed$seed
      test "$shuffle" = true && name=agents_$kind-shuffled
      cp "$run/metrics.jsonl" "$CURVES/$name.jsonl"
    fi
  done
  seconds=$(sed -n 's/.*"seconds": *\([0-9]*\).*/\1/p' "$work/$kind-false/summary.json" 2>/dev/null | head -1)
  echo "$line ${seconds:-?} |"
done
