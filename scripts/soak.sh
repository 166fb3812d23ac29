#!/bin/sh
# Rolls out for AGENTFLY_SOAK_MINUTES (60) through the real client, Rollout and store against two servers that fail one
# completion in twenty, while one trajectory in ten is cancelled. Prints a table with a row a minute and writes it to SOAK_OUT
# (docs/results/soak.md between its markers if not given); fails when the last third of the rows needs over 10% more memory, goroutines
# or open files than the first, when a trajectory failed, or when the store does not hold exactly the finished ones. Needs about a twentieth of a core.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1
minutes=${AGENTFLY_SOAK_MINUTES:-60}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')
CGO_ENABLED=0 go build -o "$work/bench" ./scripts/bench_rollout
"$work/bench" workload "${MODEL:-$(python3 scripts/fetch.py model)}" "$work/workload"
status=0
# shellcheck disable=SC2086 # flags are words
"$work/bench" soak -minutes "$minutes" -dir "$work" ${AGENTFLY_SOAK_FLAGS:-} "$work/workload" >"$work/table" 2>"$work/error" || status=$?
verdict=passed
test $status = 0 || verdict=$(sed -n "s/^bench_rollout: //p" "$work/error")
{
  echo "\`scripts/soak.sh\` at commit $commit, $minutes minutes, $(date -u +%Y-%m-%d): $verdict"
  echo
  cat "$work/table"
} >"$work/result"
cat "$work/result"
if test -n "${SOAK_OUT:-}"; then
  cp "$work/result" "$SOAK_OUT"
else
  PYTHONPATH=scripts python3 -c 'import sys, bench_table; bench_table.write_between("docs/results/soak.md", "soak", open(sys.argv[1]).read().rstrip())' "$work/result"
fi
exit $status
