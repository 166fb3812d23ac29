#!/bin/bash
# learn_roles.sh [SEED …]: the agents of examples/outside/letters.py learn on a model of random weights. roles: a planner and a solver, of which the
# solver alone is trained. decisive: two calls of which the first decides, with its own credit and with that of the whole trajectory
# (identical). Each once more with shuffled rewards, which must not learn. Prints a row a run. STEPS shortens the runs.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
test $# -gt 0 || set -- 1 2 3
out=${OUT:-runs/learn-roles}
mkdir -p "$out"
service=
trap 'test -z "$service" || kill "$service" 2>/dev/null || true' EXIT
serve() { # serve AGENT
  python3 examples/outside/letters.py "$1" 0 >"$out/$1.service.log" 2>&1 &
  service=$!
  for _ in $(seq 100); do
    grep -q ready "$out/$1.service.log" && break
    sleep 0.1
  done
  port=$(sed -n 's/^ready //p' "$out/$1.service.log")
  test -n "$port" || { echo "learn_roles: the agent $1 does not start; see $out/$1.service.log" >&2; exit 1; }
}
train() { # train RUN JOB SEED ARGS...
  run=$1-$3 job=$2 seed=$3
  shift 3
  rm -rf "${out:?}/$run"
  bin/agentfly train --output "$out/$run" --seed "$seed" --set "agent.url=http://127.0.0.1:$port/" ${STEPS:+--set "trainer.steps=$STEPS"} "$@" \
    "examples/outside/$job.yaml" >"$out/$run.log" 2>&1 || { tail -n 5 "$out/$run.log" >&2; exit 1; }
  python3 - "$out/$run" <<'PY'
import json, sys
s = json.load(open(sys.argv[1] + "/summary.json"))
e = s["eval"]
print(f"| {sys.argv[1].split('/')[-1]} | {s['steps']} | {s['seconds']:.0f} | {s['reward']['first']:.3f} | {s['reward']['last']:.3f} | {e.get('before', 0):.2f} | {e.get('after', 0):.2f} |", flush=True)
PY
}
echo "| run | steps | seconds | reward first | last | held out before | after |"
echo "|---|---|---|---|---|---|---|"
serve roles
for seed in "$@"; do train roles roles "$seed"; done
for seed in "$@"; do train roles-shuffled roles "$seed" --set control.shuffle_rewards=true; done
kill "$service"
wait "$service" 2>/dev/null || true
serve decisive
for seed in "$@"; do train decisive decisive "$seed"; done
for seed in "$@"; do train decisive-identical decisive "$seed" --set algorithm.advantage.mode=identical; done
for seed in "$@"; do train decisive-shuffled decisive "$seed" --set control.shuffle_rewards=true; done
