#!/bin/sh
# Hold the table of math answers against its oracle and write rewards/mathequal/testdata/pairs.json.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/../.."
venv=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/math-verify-0.9.0
test -x "$venv/bin/python" || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check math-verify==0.9.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0
"$venv/bin/python" scripts/goldens/math_pairs.py
