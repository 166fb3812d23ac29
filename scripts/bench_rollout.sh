#!/bin/bash
# Rollouts at scale: trajectories of four turns (200-token prompt, 20 sampled and 30 observed tokens a turn) against one server
# that answers after 50 ms, with a tool of 100 ms. Our side is the real client, Rollout and store, every turn durable before the
# next; beside it AsyncOpenAI, verifiers and a bare aiohttp loop, which record nothing. Prints a table and writes it into
# docs/performance.md. Wants an idle machine; about 5 minutes, and the first time as long again for the peers.
#
# PEERS="aiohttp openai": only these of them; PEERS= leaves all out.  CONCURRENT="100 1000": other numbers of live trajectories
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1
aiohttp=3.14.5 openai=3.54.0 verifiers=0.1.14
work=$(mktemp -d)
server=
stop() {
  exec 9>&-
  if test -n "$server"; then wait "$server" || true; fi
  rm -rf "$work"
}
trap stop EXIT
peers=${PEERS-aiohttp aiohttp-1024 openai verifiers}
if test -n "$peers"; then
  venv=$(scripts/venv.sh "rollout-peers-$aiohttp-$openai-$verifiers" "aiohttp==$aiohttp" "openai==$openai" "verifiers==$verifiers")
fi
model=${MODEL:-$(python3 scripts/fetch.py model)}
CGO_ENABLED=0 go build -o "$work/bench" ./scripts/bench_rollout
"$work/bench" workload "$model" "$work/workload"
mkfifo "$work/in"
"$work/bench" serve "$work/workload" <"$work/in" >"$work/url" & server=$!
exec 9>"$work/in"
until grep -q http "$work/url"; do sleep 0.05; done
url=$(cat "$work/url")
out=${BENCH_LINES:-$work/lines}
load=$(cut -d' ' -f1 /proc/loadavg)
echo "load average before: $load"
for n in ${CONCURRENT:-100 1000 5000 10000}; do
  warm=$((2 + n / 2000)) take=6
  mkdir "$work/$n"
  "$work/bench" run -n "$n" -warm ${warm}s -take ${take}s -server-pid "$server" -dir "$work/$n" "$work/workload" "$url" | tee -a "$out"
  rm -r "${work:?}/$n"
  for client in $peers; do
    "$venv/bin/python" scripts/bench_rollout_peers.py "$client" "$work/workload" "$url" "$server" "$n" $warm $take 2>"$work/log" | tee -a "$out" || { tail -n 20 "$work/log"; exit 1; }
  done
done
python3 scripts/bench_table.py rollout "$out" "$load" "$(git rev-parse --short HEAD)$(test -z "$(git status --porcelain -uno)" || echo ' and changes')"
