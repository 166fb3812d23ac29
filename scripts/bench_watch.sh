#!/bin/bash
# What three pages that watch a run cost its training: the same steps of examples/calculator.yaml without and with three pages of `agentfly view` in
# Chromium, taking turns. Prints the processor time that the server, the three browsers and in them the pages take, as shares of the training's, between
# the first step of a run and its end; and the mean seconds of a step of each side. On a machine whose neighbours take a tenth of its time now and then
# the second says little: a step of two runs of one kind differs by more than the pages take. Wants an idle machine; about 5 minutes. ROUNDS, STEPS.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
browser=$(command -v chromium-headless-shell || command -v chromium || true)
test -n "$browser" || { echo "bench_watch: chromium is missing; install it: apt-get install chromium-headless-shell" >&2; exit 1; }
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; pkill -f -- "$work/profile-" || true; wait; rm -rf "$work"' EXIT
used() { # used FILE: the processor seconds of each process of this bench
  python3 - "$work" "$1" <<'PY'
import json, os, sys
work, found = sys.argv[1], {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        line = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
        stat = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    except OSError:
        continue  # it has ended
    found[pid] = line, stat[1], (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
def ours(pid):  # a browser's children do not all name its profile
    while pid in found:
        if work in found[pid][0] and ("agentfly" in found[pid][0] or "/profile-" in found[pid][0]):
            return True
        pid = found[pid][1]
    return False
out = {}
for pid, (line, _, seconds) in found.items():
    if ours(pid):
        out[pid] = "training" if "agentfly train" in line else "server" if "agentfly view" in line else "pages" if "--type=renderer" in line else "browsers", seconds
json.dump(out, open(sys.argv[2], "w"))
PY
}
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
  train "watched$round" &
  training=$!
  until grep -qs seconds/step "$work/watched$round/metrics.jsonl"; do kill -0 $training; sleep 1; done
  used "$work/first$round"
  until [[ $(grep -cs seconds/step "$work/watched$round/metrics.jsonl") -ge $((${STEPS:-5} - 1)) ]]; do kill -0 $training; sleep 1; done
  used "$work/last$round"
  wait $training
  pkill -f -- "$work/profile-" || true # a package may start its browser by a script
  wait "${pages[@]}" 2>/dev/null || true
done
python3 - "$work" <<'PY'
import glob, json, sys

def runs(kind):
    """seconds of the steps of each run of a kind, the first of each left out, in which memory is taken"""
    for path in sorted(glob.glob(f"{sys.argv[1]}/{kind}*/metrics.jsonl")):
        lines = [json.loads(line) for line in open(path)]
        yield [line["seconds/step"] for line in lines if "seconds/step" in line][1:]

def told(kind):
    """the mean of a kind, with that of each run, which tells how far runs of one kind differ"""
    all = list(runs(kind))
    mean = sum(map(sum, all)) / sum(map(len, all))
    print(f"{kind:8s} {mean:.3f} s a step; its runs:", *(f"{sum(r) / len(r):.3f}" for r in all))
    return mean

shares = {}
for path in glob.glob(f"{sys.argv[1]}/first*"):
    before, after = json.load(open(path)), json.load(open(path.replace("/first", "/last")))
    for pid, (kind, seconds) in after.items():
        shares[kind] = shares.get(kind, 0) + seconds - before.get(pid, (kind, 0))[1]
training = shares.pop("training")
print(f"of the training's processor time: {100 * sum(shares.values()) / training:.2f}%;", ", ".join(f"{kind} {100 * s / training:.2f}%" for kind, s in sorted(shares.items())))
alone, watched = told("alone"), told("watched")
print(f"watched against alone: {100 * (watched / alone - 1):+.1f}%")
PY
