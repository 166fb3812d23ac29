#!/usr/bin/env bash
# The masks of package grammar against those of llguidance (PyPI), token by token of Qwen3's vocabulary, or of the tokenizer.json in the folder
# AGENTFLY_GRAMMAR_TOKENIZER. AGENTFLY_LLGUIDANCE: a python that has llguidance (default: one is installed into the cache folder).
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
scripts/check_machine.sh
version=1.9.1
export AGENTFLY_LLGUIDANCE=${AGENTFLY_LLGUIDANCE:-}
if test -z "$AGENTFLY_LLGUIDANCE"; then
  folder=$(scripts/venv.sh "llguidance-$version" "llguidance==$version")
  AGENTFLY_LLGUIDANCE=$folder/bin/python
fi
CGO_ENABLED=0 go test -count=1 -v -timeout 20m -run '^TestMasksAgreeWithLLGuidance$' ./grammar
