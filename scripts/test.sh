#!/bin/sh
# Every test: first the build without libtorch, then everything with it. Skipped tests are listed with their reason.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -count=1"
log=$(mktemp) && trap 'rm -f "$log"' EXIT
scripts/goldens/fetch_tokenizers.sh || echo "test: the public tokenizers could not be fetched; their tests will skip and say so"
echo "== without the torch tag: builds, vets"
CGO_ENABLED=0 go build ./...
go vet ./...
echo "== with the torch tag"
status=0
scripts/torchgo test -v ./... >"$log" 2>&1 || status=$?
grep -E '^(ok|FAIL|panic|---? FAIL)|^\s+--- FAIL|no test files' "$log" | grep -v 'no test files' || true
test $status -eq 0 || { echo "== output of the failures"; grep -E -B60 '^\s*--- FAIL|^FAIL|^panic' "$log" | tail -n 400; }
echo "== skipped"
grep -E -A1 -- '--- SKIP' "$log" || echo "none"
passed=$(grep -cE '^\s*--- PASS' "$log" || true) failed=$(grep -cE '^\s*--- FAIL' "$log" || true) skipped=$(grep -cE '^\s*--- SKIP' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
