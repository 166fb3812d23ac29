#!/bin/bash
# Installs Zensical, which makes the site of docs/, into a virtual environment in the cache folder, keyed by its version, and prints its program.
set -euo pipefail
package=zensical==0.0.73
venv=$("$(dirname "$0")/venv.sh" "$package" "$package")
echo "$venv/bin/zensical"
