#!/bin/sh
# Makes a virtual environment with Python packages in the cache folder, once, however many ask for it at once, and prints its folder.
#
# usage: scripts/venv.sh NAME PACKAGES...    NAME: of its folder, which tells the versions that are in it; PACKAGES: what pip install takes
# PYTHON=python3                             the interpreter
set -eu
unset CDPATH # it would send cd elsewhere
# shellcheck source=/dev/null
. "$(cd "$(dirname "$0")" && pwd)/alone.sh"
name=$1 venv=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/$1
shift
test -e "$venv/ready" || alone "$venv" "venv: another installation of $name"
if ! test -e "$venv/ready"; then # of an install that was cut off; an environment cannot be moved, so it is made in place
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" >&2 9>&- || { rm -rf "$venv"; echo "venv: $* cannot be installed" >&2; exit 1; }
  touch "$venv/ready"
fi
echo "$venv"
