#!/bin/bash
# Installs the packages of the environments that Python tests play into a virtual environment of its own in the cache folder, keyed by their
# versions, and prints its interpreter: AGENTFLY_ENV_PYTHON of the tests.
set -euo pipefail
packages="gymnasium==1.4.0 textworld-express==1.1.0 scienceworld==1.2.3 textarena==0.7.4 skyrl-gym==0.4.0"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/environments-$(echo "$packages" | cksum | cut -d' ' -f1)
if ! test -e "$venv/ready"; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  # shellcheck disable=SC2086 # one word a package
  "$venv/bin/pip" -q install $packages >&2 || { rm -rf "$venv"; echo "env_packages: the packages of the environments cannot be installed" >&2; exit 1; }
  touch "$venv/ready"
fi
echo "$venv/bin/python"
