#!/bin/bash
# Installs the clients that the gateway is held against, into a folder of the cache that is keyed by their versions, and prints it: it has bin/python
# and, where Node.js is there, node_modules/.bin/pi. AGENTFLY_GATEWAY_CLIENTS of the tests. `all` adds all/bin/python with autogen and smolagents,
# mini/bin/python with mini-swe-agent, more/node_modules/.bin/opencode and codex, and claude/node_modules/.bin/claude (2 GB). Claude Code is proprietary: who
# does not agree to its terms, https://code.claude.com/docs/en/legal-and-compliance, sets NO_CLAUDE_CODE=1.
set -euo pipefail
python="openai==3.54.0 anthropic==2.12.0 openai-agents==0.24.0 langgraph==1.2.22 langchain-openai==1.7.3 pydantic-ai-slim[openai,anthropic]==2.68.0"
more="autogen-agentchat==0.7.5 autogen-ext[openai]==0.7.5 smolagents[openai]==1.26.0"
mini="mini-swe-agent==2.4.6 mcp" # without mcp each of its calls fails
node="@mariozechner/pi-coding-agent@0.73.1"
claude="@anthropic-ai/claude-code@2.1.330" # a binary of its own, which needs no Node.js
cli="opencode-ai@1.18.33 @openai/codex@0.169.0"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/gateway-$(echo "$python $more $node" | cksum | cut -d' ' -f1)
if ! test -e "$folder/ready"; then
  rm -rf "$folder"
  python3 -m venv "$folder" >&2
  # shellcheck disable=SC2086 # one word a package
  "$folder/bin/pip" -q install $python >&2 || { rm -rf "$folder"; echo "gateway_packages: the clients of the gateway cannot be installed" >&2; exit 1; }
  touch "$folder/ready"
fi
if test "${1-}" = all && ! test -e "$folder/all/ready"; then # some of them want other versions of openai
  rm -rf "$folder/all"
  python3 -m venv "$folder/all" >&2
  # shellcheck disable=SC2086 # one word a package
  "$folder/all/bin/pip" -q install $more >&2 || { rm -rf "$folder/all"; echo "gateway_packages: autogen and smolagents cannot be installed" >&2; exit 1; }
  touch "$folder/all/ready"
fi
if test "${1-}" = all && ! test -e "$folder/mini/ready"; then
  rm -rf "$folder/mini"
  python3 -m venv "$folder/mini" >&2
  # shellcheck disable=SC2086 # one word a package
  "$folder/mini/bin/pip" -q install $mini >&2 || { rm -rf "$folder/mini"; echo "gateway_packages: mini-swe-agent cannot be installed" >&2; exit 1; }
  touch "$folder/mini/ready"
fi
if test "${1-}" = all && command -v npm >/dev/null && ! test -e "$folder/more/ready"; then
  # shellcheck disable=SC2086 # one word a package
  if npm install --silent --no-audit --no-fund --prefix "$folder/more" $cli >&2; then
    touch "$folder/more/ready"
  else
    echo "gateway_packages: opencode and Codex cannot be installed; their tests skip" >&2
  fi
fi
if test "${1-}" = all && test -n "${NO_CLAUDE_CODE-}"; then
  rm -rf "$folder/claude"
  echo "gateway_packages: NO_CLAUDE_CODE is set: the test of Claude Code skips" >&2
elif test "${1-}" = all && command -v npm >/dev/null && ! test -e "$folder/claude/ready"; then
  if npm install --silent --no-audit --no-fund --prefix "$folder/claude" "$claude" >&2 && "$folder/claude/node_modules/.bin/claude" --version >&2; then
    touch "$folder/claude/ready"
  else
    rm -rf "$folder/claude"
    echo "gateway_packages: Claude Code cannot be installed, or does not run on this machine; its test skips" >&2
  fi
fi
if ! test -e "$folder/node_modules/.bin/pi"; then
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix "$folder" "$node" >&2 || echo "gateway_packages: pi cannot be installed; its test skips" >&2
  else
    echo "gateway_packages: npm is missing: apt-get install npm; the test of pi skips" >&2
  fi
fi
echo "$folder"
