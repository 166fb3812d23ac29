#!/bin/bash
# Starts `agentfly serve` on SmolLM2 and holds it against the official openai client, and against 64 clients with random
# aborts for LOAD_SECONDS (60). With VLLM_BENCH=1, vLLM's own load generator is run too, from the environment that
# scripts/vllm_install.sh makes. Everything stays on 127.0.0.1. The cache is small, so that it is in use as a whole soon:
# its memory is taken as it is first used.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost
model=${MODEL:-HuggingFaceTB/SmolLM2-135M-Instruct} seconds=${LOAD_SECONDS:-60}
venv=$(scripts/venv.sh openai-client-3.51.0 openai==3.51.0)
log=$(mktemp) server=
stop() {
  if test -n "$server"; then kill -TERM "$server" 2>/dev/null || true; wait "$server" || true; server=; fi
  rm -f "$log"
}
trap stop EXIT
bin/agentfly serve "$model" --port 0 --served-model-name smollm2 --kv-cache-memory-bytes 134217728 --max-model-len 1024 >"$log" 2>&1 &
server=$!
url=
for _ in $(seq 600); do
  url=$(sed -nE 's/^serving .* on (http:.*)/\1/p' "$log")
  test -z "$url" || break
  kill -0 "$server" 2>/dev/null || { cat "$log"; echo "test_serve: the server ended" >&2; exit 1; }
  sleep 0.1
done
test -n "$url" || { cat "$log"; echo "test_serve: the server was not ready after 60 s" >&2; exit 1; }
cat "$log"
"$venv/bin/python" scripts/serve_client_check.py "$url" smollm2
AGENTFLY_SERVE_URL=$url AGENTFLY_SERVE_PID=$server AGENTFLY_SERVE_SECONDS=$seconds go test -count=1 -v -run '^TestLoadServer$' ./serve
if test "${VLLM_BENCH:-0}" = 1; then # without a proxy: it would take 127.0.0.1 for another machine
  vllm=$(scripts/vllm_install.sh | tail -n 1)
  tokenizer=$(mktemp -d)
  bin/agentfly model import "$model" "$tokenizer/model" >/dev/null
  HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 "$vllm/bin/vllm" bench serve --backend openai --base-url "$url" --endpoint /v1/completions \
    --model smollm2 --tokenizer "$tokenizer/model" --dataset-name random --random-input-len 100 --random-output-len 32 --num-prompts 64 --max-concurrency 8 --ignore-eos
  rm -rf "$tokenizer"
fi
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
test $status -eq 0 || { cat "$log"; echo "test_serve: after SIGTERM the exit status was $status" >&2; exit 1; }
echo "test_serve: passed; the server ended with status 0"
