#!/bin/bash
# learn_gateway.sh [openai-agents|langgraph|smolagents …]: SmolLM2 learns the calculator tasks through agents of these libraries, unmodified, and through
# the first of them with shuffled rewards, which must not learn. Prints a row a run. STEPS shortens the runs, SEED names another seed,
# CONTROL=0 leaves the control out.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost OPENAI_AGENTS_DISABLE_TRACING=1 LANGSMITH_TRACING=false
test $# -gt 0 || set -- openai-agents langgraph smolagents
folder=$(scripts/gateway_packages.sh all)
out=${OUT:-runs/learn-gateway}
mkdir -p "$out"
service=
trap 'test -z "$service" || kill "$service" 2>/dev/null || true' EXIT
serve() { # serve LIBRARY PORT
  python=$folder/bin/python
  test "$1" != smolagents || python=$folder/all/bin/python
  "$python" examples/outside/service.py "$1" "$2" >"$out/$1.service.log" 2>&1 &
  service=$!
  for _ in $(seq 100); do
    grep -q ready "$out/$1.service.log" && return
    sleep 0.1
  done
  echo "learn_gateway: the agents of $1 do not start; see $out/$1.service.log" >&2
  exit 1
}
train() { # train RUN LIBRARY ARGS...
  run=$1 library=$2
  shift 2
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  serve "$library" "$port"
  test "$library" != smolagents || set -- --set rollout.max_new_tokens=40 --set agent.max_turns=1 "$@" # one piece of code, which is longer than a call
  rm -rf "${out:?}/$run"
  bin/agentfly train --output "$out/$run" --seed "${SEED:-1}" --set "agent.url=http://127.0.0.1:$port/" ${STEPS:+--set "trainer.steps=$STEPS"} "$@" \
    examples/outside/calculator.yaml >"$out/$run.log" 2>&1 || { tail -n 5 "$out/$run.log" >&2; exit 1; }
  kill "$service"
  wait "$service" 2>/dev/null || true
  service=
  python3 - "$out/$run" <<'PY'
import json, sys
s = json.load(open(sys.argv[1] + "/summary.json"))
e = s["eval"]
print(f"| {sys.argv[1].split('/')[-1]} | {s['steps']} | {s['seconds']:.0f} | {s['reward']['first']:.3f} | {s['reward']['last']:.3f} | {e.get('before', 0):.2f} | {e.get('after', 0):.2f} |", flush=True)
PY
}
echo "| run | steps | seconds | reward first | last | held out before | after |"
echo "|---|---|---|---|---|---|---|"
for library in "$@"; do train "$library" "$library"; done
test "${CONTROL:-1}" = 0 || train "$1-control" "$1" --set control.shuffle_rewards=true
