#!/bin/bash
# Installs the packages of the environments that Python tests play into a virtual environment of its own in the cache folder, keyed by their
# versions, and prints its interpreter: AGENTFLY_ENV_PYTHON of the tests, and with the argument worlds AGENTFLY_WORLDS_PYTHON, whose packages are
# partly built from source (ALFWorld's planner, which takes minutes once).
set -euo pipefail
case ${1:-} in
"") packages="gymnasium==1.4.0 textworld-express==1.1.0 scienceworld==1.2.3 textarena==0.7.4 skyrl-gym==0.4.0" ;;
worlds) packages="reasoning-gym==0.1.25 textworld==1.7.0 alfworld==0.4.2 miniwob==1.1.0" ;;
*) echo "env_packages: there is no set $1; the sets are the one without a name and worlds" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2086 # one word a package
venv=$("$(dirname "$0")/venv.sh" "environments-$(echo "$packages" | cksum | cut -d' ' -f1)" $packages)
echo "$venv/bin/python"
