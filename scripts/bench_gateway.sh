#!/bin/bash
# What a call over the gateway costs beside the engine's own time, and how many turns a second go through it, beside LiteLLM's proxy and a bare
# pass-through, all in one run. Prints the table and writes it into docs/performance.md (NOTE: a remark behind it).
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
version=${LITELLM_VERSION:-1.106.2}
folder=$(scripts/venv.sh "litellm-$version" "litellm[proxy]==$version")
model=$(python3 scripts/fetch.py model)
load=$(cut -d' ' -f1 /proc/loadavg)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
AGENTFLY_BENCH_GATEWAY=$model AGENTFLY_LITELLM=$folder/bin/litellm AGENTFLY_LITELLM_VERSION=$version \
  go test -count=1 -v -timeout 9m -run '^TestBenchGateway$' ./orchestrator | tee /dev/stderr | grep '^|' > "$out"
{
  echo "\`make bench-gateway\` at commit $(git rev-parse --short HEAD): $(nproc) CPUs, load average $load before the run${NOTE:+, $NOTE}."
  echo
  cat "$out"
} > "$out.text"
python3 - "$out.text" <<'PY'
import re, sys
page = "docs/performance.md"
text, table = open(page).read(), open(sys.argv[1]).read()
new, n = re.subn(r"(<!-- bench-gateway -->\n).*?(<!-- /bench-gateway -->)", lambda m: m[1] + table + m[2], text, flags=re.S)
assert n == 1, page
open(page, "w").write(new)
PY
rm -f "$out.text"
