#!/bin/sh
# Write agents/testdata/vllm_parsers.json with vLLM's own tool parsers (tool_parsers.py). What its Mistral parser imports beside
# the environment of vllm_install.sh goes into a folder of its own.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")" && pwd)
venv=$("$here/../vllm_install.sh")
extra=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/vllm-parsers-1.13.1
if ! test -f "$extra/.complete"; then
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --target "$extra" \
    ijson==3.6.0 mistral_common==1.13.1 pydantic-extra-types==2.11.1 pycountry==26.2.16
  touch "$extra/.complete"
fi
cd /
PYTHONPATH=$extra exec "$venv/bin/python" "$here/tool_parsers.py"
