#!/bin/sh
# Hold the table of math answers against its oracle and write rewards/mathequal/testdata/pairs.json.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/../.."
venv=$(scripts/venv.sh math-verify-0.9.0 math-verify==0.9.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0)
"$venv/bin/python" scripts/goldens/math_pairs.py
