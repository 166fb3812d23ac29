#!/bin/sh
# Every test: first what builds without libtorch, then everything with it, then a Go module outside this one that builds
# its own binary. Skipped tests are listed with their reason and counted.
set -eu
cd "$(dirname "$0")/.."
log=$(mktemp) && trap 'rm -f "$log" "$log.custom"' EXIT
scripts/goldens/fetch_tokenizers.sh >"$log" 2>&1 || { tail -n 3 "$log"; echo "test: the public tokenizers could not be fetched; their tests skip and say so"; }
python3 scripts/fetch.py sentence-model >/dev/null 2>"$log" || { tail -n 3 "$log"; echo "test: the sentence model could not be fetched; its tests skip and say so"; }
python3 scripts/fetch.py wordnet >"$log" 2>&1 || { tail -n 1 "$log"; echo "test: WordNet could not be fetched; its tests skip and say so"; }
echo "== without the torch tag"
CGO_ENABLED=0 go build ./...
go vet ./...
echo "== with the torch tag"
status=0
# Not from the cache: Go does not see that a shared library changed.
scripts/torchgo test -count=1 -timeout 30m -v ./... >"$log" 2>&1 || status=$?
grep -E '^(ok|FAIL|panic)' "$log" || true
test $status -eq 0 || { echo "== output of the failures"; grep -E -B40 '^\s*--- FAIL|^FAIL|^panic|error:' "$log" | tail -n 300; }
echo "== a module outside this one"
(cd examples/custom && ../../scripts/torchgo build -o ../../bin/custom . && ../../scripts/torchgo test -count=1 -v .) >"$log.custom" 2>&1 || { status=1; tail -n 50 "$log.custom"; }
grep -E '^(ok|FAIL|panic)' "$log.custom" || true
cat "$log.custom" >>"$log"
bin/custom tools call letters '{"word": "strawberry", "letter": "r"}' || status=1
scripts/results.sh "$log"
exit $status
