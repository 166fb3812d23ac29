#!/bin/bash
# Holds the gateway against the clients that people's agents are written with, unmodified and in processes of their own, and trains the README's agent
# with the openai package. `all` adds clients that take longer to install.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
AGENTFLY_GATEWAY_CLIENTS=$(scripts/gateway_packages.sh "${1-}")
export AGENTFLY_GATEWAY_CLIENTS
go test -count=1 -v -run 'TestClients' ./gateway | grep -E '^ *(---|ok|FAIL|panic)|clients_test.go'
scripts/torchgo test -count=1 -v -run 'TestTheREADMEsAgentTrains|TestUnmodifiedClientsTrain' ./e2e | grep -E '^ *(---|ok|FAIL|panic)|_test.go'
