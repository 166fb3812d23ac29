#!/bin/bash
# Installs Zensical, which makes the site of docs/, into a virtual environment in the cache folder, keyed by its version, and prints its program.
set -euo pipefail
package=zensical==0.0.73
venv=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/$package
if ! test -e "$venv/ready"; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" -q install --no-cache-dir "$package" >&2 || { rm -rf "$venv"; echo "site_packages: $package cannot be installed" >&2; exit 1; }
  touch "$venv/ready"
fi
echo "$venv/bin/zensical"
