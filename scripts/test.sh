#!/bin/sh
# Every test: first what builds without libtorch, then everything with it, then a Go module outside this one that builds
# its own binary. The failures come first and whole; skipped tests are listed with their reason and counted by it. What the machine lacks
# for some of them is named before they run.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) groups=''
# shellcheck disable=SC2086 # one word a process group
trap 'test -z "$groups" || kill -s TERM -- $groups 2>/dev/null || true; rm -f "$log" "$log.custom" "$log.first" "$log.second"' EXIT
trap 'exit 130' INT # without these dash ends at a signal and leaves what runs beside it
trap 'exit 143' TERM HUP
scripts/check_machine.sh test || true # its tests skip and say so
scripts/goldens/fetch_tokenizers.sh >"$log" 2>&1 || { tail -n 3 "$log"; echo "test: the public tokenizers could not be fetched; their tests skip and say so"; }
python3 scripts/fetch.py sentence-model >/dev/null 2>"$log" || { tail -n 3 "$log"; echo "test: the sentence model could not be fetched; its tests skip and say so"; }
python3 scripts/fetch.py wordnet >"$log" 2>&1 || { tail -n 1 "$log"; echo "test: WordNet could not be fetched; its tests skip and say so"; }
echo "== without the torch tag"
CGO_ENABLED=0 go build ./...
go vet ./...
echo "== with the torch tag, and a module outside this one"
status=0
# Not from the cache: Go does not see that a shared library changed. e2e takes the longest by far, and much of its time it waits: its two
# halves run beside the other packages, of which the longest come first.
half='^Test[AB]'
setsid scripts/torchgo test -count=1 -timeout 60m -v -run "$half" ./e2e >"$log.first" 2>&1 &
first=$! groups=-$!
setsid scripts/torchgo test -count=1 -timeout 60m -v -skip "$half" ./e2e >"$log.second" 2>&1 &
second=$! groups="$groups -$!"
packages=$(go list ./... | grep -v '/e2e$')
# shellcheck disable=SC2086 # one word a package
scripts/torchgo test -count=1 -timeout 60m -v ./cgo ./trainer $packages >"$log" 2>&1 || status=$?
wait $first || status=$?
wait $second || status=$?
groups=''
cat "$log.first" "$log.second" >>"$log"
(cd examples/custom && ../../scripts/torchgo build -o ../../bin/custom . && ../../scripts/torchgo test -count=1 -v .) >"$log.custom" 2>&1 || { status=1; custom=failed; }
cat "$log.custom" >>"$log"
scripts/results.sh "$log"
test -z "${custom-}" || { echo "== the module outside this one"; tail -n 50 "$log.custom"; }
bin/custom tools call letters '{"word": "strawberry", "letter": "r"}' || status=1
exit $status
