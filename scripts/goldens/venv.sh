#!/bin/sh
# Make the virtual environment of the goldens (transformers, tokenizers, jinja2, TRL, PEFT, gguf) and print its folder.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../venv.sh" "goldens-$(cksum <"$here/requirements.txt" | cut -d' ' -f1)" -r "$here/requirements.txt"
