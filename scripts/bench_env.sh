#!/bin/sh
# What environments cost beyond their own time. Wants an idle machine. The argument is the part; without one all are run:
#
#   small   the pool alone: 10,000 leases of members that do nothing, beside AgentFly's pattern (one HTTP round trip and one lock with one
#           condition for all who wait) on the same members; fails when a lease costs more than 20 µs. Half a minute.
#   step    a step of a Python class that does next to nothing: its own time, measured in the worker, and the rest of the round trip. Seconds.
#   worlds  ScienceWorld through a pool of 8 workers beside the package alone in one process of Python, by wall time and by processor time, of which
#           other work on the machine hardly changes the latter. Each process plays as many episodes. Minutes; needs Java.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
case ${1:-all} in
all)
  "$0" small
  "$0" step
  "$0" worlds
  ;;
small) CGO_ENABLED=0 go test -count=1 -run '^$' -bench '^BenchmarkLease$' -benchtime "${BENCH_TIMES:-5x}" ./internal/pool ;;
step) CGO_ENABLED=0 go test -count=1 -run '^$' -bench '^BenchmarkStep$' -benchtime 20000x ./environments/python ;;
worlds)
  AGENTFLY_ENV_PYTHON=$(scripts/env_packages.sh) CGO_ENABLED=0 go test -count=1 -run '^$' -bench '^BenchmarkPool$' -benchtime "${BENCH_TIMES:-3x}" -timeout 30m ./environments/scienceworld
  ;;
*)
  echo "bench_env: there is no part $1; the parts are: small, step, worlds" >&2
  exit 2
  ;;
esac
