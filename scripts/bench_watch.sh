#!/bin/bash
# What three pages that watch a run cost its training: the same steps of examples/calculator.yaml without and with three pages of `agentfly view` in Chromium,
# taking turns. Prints the mean seconds of a step of each and their ratio. Wants an idle machine; about 5 minutes. ROUNDS, STEPS.
set -euo pipefail
cd "$(dirname "$0")/.."
browser=$(command -v chromium-headless-shell || command -v chromium || true)
test -n "$browser" || { echo "bench_watch: chromium is missing; install it: apt-get install chromium-headless-shell" >&2; exit 1; }
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
train() { # train RUN
  bin/agentfly train --output "$work/$1" --set "trainer.steps=${STEPS:-5}" --set data.eval=null --set eval=null --set checkpoint.every=1000 examples/calculator.yaml >"$work/$1.log" 2>&1 ||
    { tail -n 5 "$work/$1.log" >&2; exit 1; }
}
bin/agentfly view --listen 127.0.0.1:8299 "$work" >"$work/view.log" 2>&1 &
for round in $(seq "${ROUNDS:-3}"); do
  train "alone$round"
  pages=()
  for page in overview now trajectories; do
    "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync \
      --user-data-dir="$work/profile-$page" --remote-debugging-port=0 "http://127.0.0.1:8299/#/$page?run=watched$round" >/dev/null 2>&1 &
    pages+=($!)
  done
  train "watched$round"
  kill "${pages[@]}"
  wait "${pages[@]}" 2>/dev/null || true
done
python3 - "$work" <<'PY'
import glob, json, sys

def steps(kind):
    """seconds of the steps of all runs of a kind, the first of each run left out, in which memory is taken"""
    out = []
    for path in sorted(glob.glob(f"{sys.argv[1]}/{kind}*/metrics.jsonl")):
        lines = [json.loads(line) for line in open(path)]
        out += [line["seconds/step"] for line in lines if "seconds/step" in line][1:]
    return out

alone, watched = steps("alone"), steps("watched")
a, w = sum(alone) / len(alone), sum(watched) / len(watched)
print(f"{len(alone)} steps alone {a:.3f} s, {len(watched)} steps watched {w:.3f} s: {100 * (w / a - 1):+.1f}%")
PY
