#!/bin/sh
# The Python module as wheel and sdist, agentfly_go-VERSION, with pinned tools and the time of the last commit: the same files give the
# same wheel. Nothing is uploaded: docs/release.md.
#
# usage: wheel.sh [FOLDER]      the default is dist
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
dist=${1:-dist}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mkdir "$new/source"
cp -r LICENSE python/pyproject.toml python/README.md python/agentfly "$new/source/"
find "$new/source" -name __pycache__ -prune -exec rm -r {} +
python3 -m venv "$new/venv"
"$new/venv/bin/python" -m pip --disable-pip-version-check install -q build==1.2.2.post1 packaging==24.2 pyproject_hooks==1.2.0
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
"$new/venv/bin/python" -m build --outdir "$new/out" "$new/source" >"$new/log" 2>&1 || { cat "$new/log" >&2; exit 1; }
mv "$new"/out/* "$dist/"
ls "$dist"/agentfly_go-*
