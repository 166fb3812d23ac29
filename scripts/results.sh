#!/bin/sh
# results.sh LOG [PREFIX]: what the output of `go test -v` says: the failures first, each with all that it wrote; the packages; the skipped
# tests with their reasons, and how many each reason stopped; the counts.
set -eu
log=$1
here=$(dirname "$0")
count() { grep -cE "^\s*--- $1" "$log" || test $? -eq 1; } # grep ends with 1 where it counts none
failures=$(awk -f "$here/failed.awk" "$log")
test -z "$failures" || printf '== failures, each whole\n%s\n' "$failures"
echo "== packages"
grep -E '^(ok  |FAIL)	' "$log" || echo "none"
echo "== skipped, with the reason"
awk -f "$here/skipped.awk" "$log"
echo "${2-}$(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
