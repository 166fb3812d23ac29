#!/bin/sh
# The page of `agentfly view` over 100,000 trajectories and 10,000 steps, in Chromium: first view, filters, memory, scrolling. Wants an idle
# machine. VIEW_STORE names a folder that keeps the run (1 GB) for the next time.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
dir=${VIEW_STORE:-$(mktemp -d)}
test -n "${VIEW_STORE-}" || trap 'rm -rf "$dir"' EXIT
test -f "$dir/run/store.db" || CGO_ENABLED=0 go run ./scripts/view_store "$dir/run"
AGENTFLY_VIEW_BENCH=$dir CGO_ENABLED=0 go test -count=1 -v -run '^TestAHundredThousand$' ./view
