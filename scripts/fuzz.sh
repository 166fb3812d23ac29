#!/bin/sh
# Run every native fuzzer for FUZZTIME (default 10s) and list them.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s} count=0
for file in $(git grep -lE '^func Fuzz' -- '*_test.go'); do
  for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "== $(dirname "$file") $name"
    go test "./$(dirname "$file")/" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x
    count=$((count + 1))
  done
done
echo "$count fuzzers ran $time each"
