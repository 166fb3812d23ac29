#!/bin/sh
# What environments cost beyond their own time. Wants an idle machine. The argument is the part:
#
#   small  the pool alone: 10,000 leases of members that do nothing, beside AgentFly's pattern (one HTTP round trip and one lock with one
#          condition for all who wait) on the same members; fails when a lease costs more than 20 µs. Half a minute.
set -eu
cd "$(dirname "$0")/.."
part=${1:-small}
case $part in
small) CGO_ENABLED=0 go test -count=1 -run '^$' -bench '^BenchmarkLease$' -benchtime "${BENCH_TIMES:-5x}" ./internal/pool ;;
*)
  echo "bench_env: there is no part $part; the parts are: small" >&2
  exit 2
  ;;
esac
