#!/bin/bash
# Holds MCP against the official Python library, versions 1 and 2: its clients against `agentfly tools serve` over standard input and
# output and over HTTP, and our client against its servers. Each version is installed into a virtual environment of its own in the cache
# folder; where that is not possible the script says so and ends well. Everything stays on 127.0.0.1.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
work=$(mktemp -d) server=
stop() {
  if test -n "$server"; then kill -TERM "$server" 2>/dev/null || true; wait "$server" || true; server=; fi
  rm -rf "$work"
}
trap stop EXIT
CGO_ENABLED=0 go build -o "$work/agentfly" ./cmd/agentfly
for version in 1.30.0 2.3.0; do
  venv=$(scripts/venv.sh "mcp-$version" "mcp==$version") || { echo "test_mcp: skipped: mcp $version cannot be installed"; continue; }
  echo "== mcp $version"
  "$venv/bin/python" scripts/mcp_client_check.py stdio "$work/agentfly"
  "$work/agentfly" tools serve --http 127.0.0.1:0 calculator >"$work/log" 2>&1 &
  server=$!
  url=
  for _ in $(seq 300); do
    url=$(sed -nE 's/^serving tools on (http:.*)/\1/p' "$work/log")
    test -z "$url" || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  test -n "$url" || { cat "$work/log"; echo "test_mcp: the server did not start" >&2; exit 1; }
  "$venv/bin/python" scripts/mcp_client_check.py http "$url"
  kill -TERM "$server"
  wait "$server" || { cat "$work/log"; echo "test_mcp: after SIGTERM the exit status was not 0" >&2; exit 1; }
  server=
  AGENTFLY_MCP_PYTHON=$venv/bin/python go test -count=1 -v -run FastMCP ./tools/mcp | grep -E '^(---|ok|FAIL| )'
done
echo "test_mcp: passed"
