#!/bin/sh
# Make the virtual environment of the goldens (transformers, tokenizers, jinja2, TRL, PEFT, gguf) and print its folder.
# usage: venv.sh [FOLDER]     default: ($XDG_CACHE_HOME or ~/.cache)/agentfly/goldens-venv
set -eu
venv=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/goldens-venv}
if ! test -f "$venv/.complete"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$(dirname "$0")/requirements.txt" >&2
  touch "$venv/.complete"
fi
echo "$venv"
