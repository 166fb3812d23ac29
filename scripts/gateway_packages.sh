#!/bin/bash
# Installs the clients that the gateway is held against, into a folder of the cache that is keyed by their versions, and prints it: it has bin/python
# and, where Node.js is there, node_modules/.bin/pi. AGENTFLY_GATEWAY_CLIENTS of the tests. `all` adds all/bin/python with autogen and smolagents,
# mini/bin/python with mini-swe-agent, more/node_modules/.bin/opencode and codex, and claude/node_modules/.bin/claude (2 GB). Claude Code is proprietary: who
# does not agree to its terms, https://code.claude.com/docs/en/legal-and-compliance, sets NO_CLAUDE_CODE=1.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
python="openai==3.54.0 anthropic==2.12.0 openai-agents==0.24.0 langgraph==1.2.22 langchain-openai==1.7.3 pydantic-ai-slim[openai,anthropic]==2.68.0"
more="autogen-agentchat==0.7.5 autogen-ext[openai]==0.7.5 smolagents[openai]==1.26.0"
mini="mini-swe-agent==2.4.6 mcp" # without mcp each of its calls fails
node="@mariozechner/pi-coding-agent@0.73.1"
claude="@anthropic-ai/claude-code@2.1.330" # a binary of its own, which needs no Node.js
cli="opencode-ai@1.18.33 @openai/codex@0.169.0"
here=$(cd "$(dirname "$0")" && pwd)
name=gateway-$(echo "$python $more $node" | cksum | cut -d' ' -f1)
# shellcheck disable=SC2086 # one word a package
folder=$("$here/venv.sh" "$name" $python)
if test "${1-}" = all; then # some of them want other versions of openai
  # shellcheck disable=SC2086 # one word a package
  "$here/venv.sh" "$name/all" $more >&2
  # shellcheck disable=SC2086 # one word a package
  "$here/venv.sh" "$name/mini" $mini >&2
fi
# shellcheck source=/dev/null
. "$here/alone.sh"
if ! test -e "$folder/node_modules/.bin/pi" || test "${1-}" = all; then alone "$folder/npm" "gateway_packages: another installation"; fi
if test "${1-}" = all && command -v npm >/dev/null && ! test -e "$folder/more/ready"; then
  # shellcheck disable=SC2086 # one word a package
  if npm install --silent --no-audit --no-fund --prefix "$folder/more" $cli >&2 9>&-; then
    touch "$folder/more/ready"
  else
    echo "gateway_packages: opencode and Codex cannot be installed; their tests skip" >&2
  fi
fi
if test "${1-}" = all && test -n "${NO_CLAUDE_CODE-}"; then
  rm -rf "$folder/claude"
  echo "gateway_packages: NO_CLAUDE_CODE is set: the test of Claude Code skips" >&2
elif test "${1-}" = all && command -v npm >/dev/null && ! test -e "$folder/claude/ready"; then
  if npm install --silent --no-audit --no-fund --prefix "$folder/claude" "$claude" >&2 9>&- && "$folder/claude/node_modules/.bin/claude" --version >&2 9>&-; then
    touch "$folder/claude/ready"
  else
    rm -rf "$folder/claude"
    echo "gateway_packages: Claude Code cannot be installed, or does not run on this machine; its test skips" >&2
  fi
fi
if ! test -e "$folder/node_modules/.bin/pi"; then
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix "$folder" "$node" >&2 9>&- || echo "gateway_packages: pi cannot be installed; its test skips" >&2
  else
    echo "gateway_packages: npm is missing: apt-get install npm; the test of pi skips" >&2
  fi
fi
echo "$folder"
