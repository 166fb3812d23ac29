#!/bin/bash
# The page of `agentfly view` in a real headless Chromium, on made runs and on one that trains, with axe where npm installs it; and whether the committed
# page is what its sources build. What is missing is said, and its tests skip with the reason.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) && trap 'rm -f "$log"' EXIT
found=
for name in chromium-headless-shell chromium chromium-browser google-chrome chrome; do found=${found:-$(command -v $name || true)}; done
test -n "$found" || echo "test_view: chromium is missing; install it: apt-get install chromium-headless-shell"
if ! command -v npm >/dev/null; then
  echo "test_view: npm is missing, so that axe looks for nothing; install it: apt-get install npm"
elif ! test -e view/page/node_modules/axe-core; then
  (cd view/page && npm ci --silent --ignore-scripts --no-audit --no-fund) >"$log" 2>&1 || { tail -n 5 "$log"; echo "test_view: axe cannot be installed"; }
fi
status=0
CGO_ENABLED=0 go test -count=1 -timeout 20m -v -run 'ThePage' ./view >"$log" 2>&1 || status=$?
scripts/torchgo test -count=1 -timeout 20m -v -run 'TestViewWhileARunTrains|TestTrainServesItsPage|TestARunIsControlled' ./e2e >>"$log" 2>&1 || status=$?
scripts/results.sh "$log" "test_view: "
scripts/view_page.sh --check || status=$?
exit $status
