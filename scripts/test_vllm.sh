#!/bin/sh
# The tests of engines/vllm against a real `vllm serve` on the CPU: installs vLLM and writes tiny models into the cache
# folder if they are not there, then runs the tests, which start and stop the servers. Arguments go to `go test`.
# AGENTFLY_VLLM_URL may name a server that runs already on the models' folder a.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
venv=$(scripts/vllm_install.sh)
models=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/vllm/models-$(cat scripts/make_tiny_model.py scripts/vllm_requirements.txt | sha256sum | cut -c1-12)
if ! test -f "$models/ready"; then
  rm -rf "$models"
  "$venv/bin/python" -W ignore scripts/make_tiny_model.py "$models" >/dev/null 2>&1 || { echo "test-vllm: scripts/make_tiny_model.py failed; run $venv/bin/python scripts/make_tiny_model.py $models" >&2; exit 1; }
  touch "$models/ready"
fi
export VLLM_CPU_OMP_THREADS_BIND=nobind # bound to a core that something else keeps busy, a start takes minutes
export AGENTFLY_VLLM="$venv/bin/vllm" AGENTFLY_VLLM_MODELS="$models" no_proxy=127.0.0.1 NO_PROXY=127.0.0.1
log=$(mktemp) && trap 'rm -f "$log" "$log.jobs"' EXIT
status=0
# The two side by side: most of the time a server of one of them starts, which keeps one core busy.
go test -count=1 -timeout 20m -v -run Real "$@" ./engines/vllm/ >"$log" 2>&1 &
scripts/torchgo test -count=1 -timeout 20m -v -run Real "$@" ./orchestrator/ ./orchestrator/weights/ >"$log.jobs" 2>&1 || status=$?
wait $! || status=$?
cat "$log.jobs" >>"$log"
grep -E '^    real' "$log" || true
scripts/results.sh "$log" "test-vllm: "
exit $status
