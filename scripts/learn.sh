#!/bin/sh
# learn.sh masksearch | code: train the job for SEEDS (default 1) and its control, and write docs/results/NAME.md and the curves in
# docs/results/curves. A run of masksearch or code takes about ten minutes on two idle cores.
# ONLY=seeds or ONLY=control runs a part; what ran before is taken from runs/learn.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
name=${1:-}
out=${OUT:-runs/learn}
case $name in
masksearch)
  control="control.tools_off=true"
  go run ./examples/generate/masksearch -wordnet "$(python3 scripts/fetch.py wordnet)"
  ;;
code) control="control.shuffle_rewards=true" ;;
*)
  sed -n '2,4s/^# //p' "$0"
  exit 2
  ;;
esac
train() { # train RUN ARGS...
  run=$1
  shift
  rm -rf "${out:?}/$run"
  bin/agentfly train --output "$out/$run" "$@" "examples/$name.yaml" >"$out/$run.log" 2>&1 || {
    tail -n 3 "$out/$run.log"
    exit 1
  }
  git rev-parse --short HEAD >"$out/$run/commit"
  cp "$out/$run/metrics.jsonl" "docs/results/curves/$run.jsonl"
}
mkdir -p "$out"
if test "${ONLY:-seeds}" = seeds; then
  for seed in ${SEEDS:-1}; do train "$name-seed$seed" --seed "$seed"; done
fi
if test "${ONLY:-control}" = control; then train "$name-control" --set "$control"; fi
if test "$name" = masksearch; then go run ./examples/generate/masksearch -chance >"$out/$name.chance"; fi
python3 scripts/learn_table.py "$name" "$control" "$out" >"docs/results/$name.md"
cat "docs/results/$name.md"
