#!/bin/bash
# What `agentfly export` writes, read by the programs that it is for, in processes of their own: their values are compared with the run's. Where they
# cannot be installed the script says so, and the tests skip with the reason.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) && trap 'rm -f "$log"' EXIT
python=$(scripts/export_packages.sh) || python=
mlflow=$(scripts/export_packages.sh mlflow) || mlflow=
status=0
AGENTFLY_EXPORT_PYTHON=$python AGENTFLY_EXPORT_MLFLOW=$mlflow CGO_ENABLED=0 go test -count=1 -timeout 20m -v -run 'TestReaders|TestImport' ./cli >"$log" 2>&1 || status=$?
scripts/results.sh "$log"
exit $status
