#!/bin/sh
# learn_environments.sh JOB…: train examples/JOB.yaml (frozenlake, sokoban, worlds/textworldexpress) for SEEDS (default "1 2 3"), each seed once
# more with shuffled rewards for CONTROLS (default "1"), on one thread, one run after the other, and print the tables of
# docs/results/environments.md. Runs that ended are kept in OUT (default runs/learn) and not made again; BINARY (default bin/agentfly) trains, with
# ARGS behind its own, such as the interpreter of a world: ARGS="--set environment.params.interpreter=$(scripts/env_packages.sh)".
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
out=${OUT:-runs/learn}
binary=${BINARY:-bin/agentfly}
export OMP_NUM_THREADS=1
mkdir -p "$out"
train() { # train JOB RUN ARGS...: seconds of processor time in RUN/cpu
  job=$1
  run=$2
  shift 2
  if test -e "$out/$run/cpu"; then return; fi
  rm -rf "${out:?}/$run"
  (
    "$binary" train --output "$out/$run" "$@" "examples/$job.yaml" >"$out/$run.log" 2>&1 || {
      tail -n 3 "$out/$run.log" >&2
      exit 1
    }
    times >"$out/$run.times"
  )
  git rev-parse --short HEAD >"$out/$run/commit"
  awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "[ms]"); sum += t[1] * 60 + t[2] } printf "%.0f\n", sum }' "$out/$run.times" >"$out/$run/cpu"
}
for job in "$@"; do
  name=$(basename "$job")
  # shellcheck disable=SC2086 # ARGS is a list of words
  for seed in ${SEEDS:-1 2 3}; do train "$job" "$name-seed$seed" --seed "$seed" ${ARGS:-}; done
  # shellcheck disable=SC2086
  for seed in ${CONTROLS:-1}; do train "$job" "$name-seed$seed-shuffled" --seed "$seed" ${ARGS:-} --set control.shuffle_rewards=true; done
done
exec python3 scripts/environments_table.py "$out" docs/results/curves "$@"
