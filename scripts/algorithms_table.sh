#!/bin/sh
# The table of docs/algorithms.md: each algorithm trains examples/tiny.yaml on three seeds; the number is the first step at
# which the mean reward of three steps in a row reaches the threshold, "-" where it does not within the job's steps.
#   scripts/algorithms_table.sh [BINARY [FIRST [LAST]]]    rows FIRST to LAST of the list below, all by default
# The job's learning rate and entropy bonus are raised, because with its own the outcome depends on the seed: grpo gets
# stuck below the threshold on two of three. SEEDS, THRESHOLD, STEPS, RATE and ENTROPY override what is run.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$here/bin/agentfly}
first=${2:-1}
last=${3:-1000}
seeds=${SEEDS:-1 2 3}
threshold=${THRESHOLD:-0.9}
steps=${STEPS:-100}
rate=${RATE:-2.0e-3}
entropy=${ENTROPY:-0.05}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# advantage | loss | the rest of the algorithm block
cat >"$work/list" <<'LIST'
grpo | ppo_clip |
dr_grpo | ppo_clip |
rloo | ppo_clip |
maxrl | ppo_clip |
opo | ppo_clip |
remax | ppo_clip |
reinforce_pp | ppo_clip |
{name: reinforce_pp, group_baseline: true} | ppo_clip |
gae | ppo_clip |
gigpo | ppo_clip |
turn | ppo_clip |
{name: turn, mode: discounted} | ppo_clip |
arpo | ppo_clip |
grpo | gspo | mini_batches: 2
grpo | {name: cispo, bound: relative} | mini_batches: 2
grpo | reinforce |
grpo | sapo | mini_batches: 2
grpo | dppo | mini_batches: 2
grpo | ppo_clip | kl: {coefficient: 0.003}
grpo | ppo_clip | dynamic_sampling: true
LIST

echo "| advantage | loss | settings | $(echo "$seeds" | sed 's/ / | /g; s/[0-9][0-9]*/seed &/g') |"
echo "|---|---|---|$(echo "$seeds" | sed 's/[0-9][0-9]* */---|/g')"
row=0
while IFS='|' read -r advantage loss rest; do
  row=$((row + 1))
  if test "$row" -lt "$first" || test "$row" -gt "$last"; then continue; fi
  advantage=$(echo "$advantage" | sed 's/ *$//')
  loss=$(echo "$loss" | sed 's/^ *//; s/ *$//')
  rest=$(echo "$rest" | sed 's/^ *//; s/ *$//')
  line="| \`$advantage\` | \`$loss\` | ${rest:+\`$rest\`} |"
  for seed in $seeds; do
    rm -rf "$work/run"
    if ! "$binary" train --output "$work/run" --seed "$seed" --set "trainer.steps=$steps" --set "trainer.learning_rate=$rate" \
      --set "algorithm={advantage: $advantage, loss: $loss, entropy: $entropy${rest:+, $rest}}" "$here/examples/tiny.yaml" >"$work/out" 2>&1; then
      tail -1 "$work/out" >&2
      line="$line failed |"
      continue
    fi
    reached=$(sed -n 's/.*"reward\/mean":\([-0-9.e]*\).*/\1/p' "$work/run/metrics.jsonl" | awk -v threshold="$threshold" '
      { r[NR] = $1 } NR > 2 && !step && (r[NR] + r[NR - 1] + r[NR - 2]) / 3 >= threshold { step = NR } END { print step ? step : "-" }')
    line="$line $reached |"
  done
  echo "$line"
done <"$work/list"
