#!/bin/sh
# results.sh LOG [PREFIX]: the skipped tests in the output of `go test -v` with their reasons, and the counts.
set -eu
log=$1
count() { grep -cE "^\s*--- $1" "$log" || test $? -eq 1; } # grep ends with 1 where it counts none
echo "== skipped, with the reason"
awk -f "$(dirname "$0")/skipped.awk" "$log"
echo "${2-}$(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
