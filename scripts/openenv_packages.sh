#!/bin/bash
# Installs OpenEnv into a virtual environment of its own in the cache folder, and prints its interpreter: AGENTFLY_OPENENV_PYTHON of the tests
# that hold our client and server against OpenEnv's. OpenEnv needs fastmcp 3, which other packages that the tests use exclude.
set -euo pipefail
packages="openenv==0.10.0 fastmcp==3.4.10 fastapi==0.165.0 pydantic==2.14.3 starlette==1.10.0 uvicorn==0.54.0 websockets==17.4"
# shellcheck disable=SC2086 # one word a package
venv=$("$(dirname "$0")/venv.sh" openenv-0.10.0 $packages)
echo "$venv/bin/python"
