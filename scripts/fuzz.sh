#!/bin/sh
# Run every native fuzzer for FUZZTIME (default 10s) and list them.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s} count=0
fuzzers=$(git grep -hE -o '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | wc -l)
for file in $(git grep -lE '^func Fuzz' -- '*_test.go'); do
  # shellcheck disable=SC2013 # names hold no spaces
  for name in $(grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d' ' -f2); do
    count=$((count + 1))
    echo "== $count of $fuzzers: $(dirname "$file") $name"
    go test "./$(dirname "$file")/" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x
  done
done
echo "$count fuzzers ran $time each"
