#!/bin/sh
# A training step on SmolLM2-135M over one task whose 16 trajectories branch after 1,000 tokens: packed as the trainer packs trees, against each
# trajectory computed alone, in one process that takes turns; of the 1,000 tokens few are sampled, or nearly all. Prints the seconds of both, the best
# of ROUNDS (default 3), and their ratio. Wants an idle machine; 15 minutes.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
scripts/torchgo test -c -o "$work/trainer.test" ./trainer
(cd trainer && OMP_NUM_THREADS=${THREADS:-2} AGENTFLY_BENCH_ROUNDS=${ROUNDS:-3} AGENTFLY_BENCH_TREE=$work/figures "$work/trainer.test" -test.v -test.timeout 1h -test.run '^TestBenchTree$') >"$work/log" 2>&1 || {
  cat "$work/log"
  exit 1
}
cat "$work/figures"
