#!/bin/sh
# The tests of what runs in a sandbox once more on a machine without bubblewrap: its programs are hidden from PATH where they are
# installed. There the sandbox is landlock, and where the kernel has none either (Linux before 6.12), the tests skip and say so.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
log=$(mktemp) && path=$(mktemp -d) && trap 'rm -rf "$log" "$path"' EXIT
# PATH in one folder of links, without bwrap, which other users may read: tests start programs as them. The first of two programs of one
# name counts, as on PATH.
chmod 755 "$path"
old_ifs=$IFS
IFS=:
for dir in $PATH; do
  ln -s "$dir"/* "$path/" 2>/dev/null || true # those that are there stay
done
IFS=$old_ifs
rm -f "$path/bwrap"
PATH=$path
export PATH
if command -v bwrap; then echo "test-bare: bwrap is not hidden" >&2; exit 1; fi
status=0
if test $# -eq 0; then set -- ./sandbox ./python/... ./resources ./rewards ./tools ./agents ./tools/code ./tools/files ./internal/doctor; fi
go test -count=1 -timeout 20m -v "$@" >"$log" 2>&1 || status=$?
scripts/torchgo test -count=1 -timeout 20m -v -run 'ShippedJob|README.*Python|ToolWithStateInPython|Kinds' . ./e2e ./orchestrator/job >>"$log" 2>&1 || status=$?
scripts/results.sh "$log" "test-bare: "
exit $status
