#!/bin/bash
# The environments against the real packages: Gymnasium, TextWorldExpress and ScienceWorld (which need Java), reasoning-gym, TextWorld, ALFWorld,
# MiniWoB++ (which needs Chromium), and OpenEnv's client and server; then 256 episodes of TextWorldExpress and of ScienceWorld through 8 workers
# that are killed and stopped at random; then a run of TextWorldExpress
# that is killed, one that learns from an OpenEnv server, and OpenEnv's client in our WebShop. Each set of packages
# is installed into a virtual environment of its own in the cache folder; where that is not possible the script says so, and the tests skip. What
# is skipped is listed with its reason and counted.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) && trap 'rm -f "$log"' EXIT
if ! command -v java >/dev/null; then
  echo "test_env: java is missing; TextWorldExpress and ScienceWorld need it: apt-get install default-jre-headless"
fi
if ! command -v chromium >/dev/null && ! command -v chromium-headless-shell >/dev/null; then
  echo "test_env: chromium is missing; MiniWoB++ needs it: apt-get install chromium"
fi
python=$(scripts/env_packages.sh) || python=
worlds=$(scripts/env_packages.sh worlds) || worlds=
openenv=$(scripts/openenv_packages.sh) || openenv=
status=0
AGENTFLY_ENV_PYTHON=$python AGENTFLY_WORLDS_PYTHON=$worlds AGENTFLY_OPENENV_PYTHON=$openenv CGO_ENABLED=0 go test -count=1 -timeout 60m -v \
  ./environments/python ./environments/textworldexpress ./environments/scienceworld ./environments/openenv ./environments/reasoning ./environments/textworld ./environments/alfworld ./environments/browser >"$log" 2>&1 || status=$?
AGENTFLY_ENV_PYTHON=$python CGO_ENABLED=0 go test -count=1 -timeout 30m -v -run Chaos ./orchestrator/rollout >>"$log" 2>&1 || status=$?
AGENTFLY_ENV_PYTHON=$python AGENTFLY_OPENENV_PYTHON=$openenv scripts/torchgo test -count=1 -timeout 20m -v -run 'TestAReferenceServerTrains|TestReferenceClientShops|TestKillsOfARunInTextWorldExpress' ./e2e >>"$log" 2>&1 || status=$?
scripts/results.sh "$log"
exit $status
