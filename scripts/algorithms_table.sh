#!/bin/sh
# The table of docs/results/algorithms.md: each algorithm trains examples/tiny.yaml on three seeds. A cell is the first step at which
# the mean reward of three steps in a row reaches the threshold, "-" where it does not within the steps, and in brackets the
# mean of the last three steps.
#   scripts/algorithms_table.sh [BINARY [FIRST [LAST]]]    rows FIRST to LAST of the list below, all by default
# SEEDS, THRESHOLD and STEPS override what is run. One thread; about a minute a row.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$here/bin/agentfly}
first=${2:-1}
last=${3:-1000}
seeds=${SEEDS:-1 2 3}
threshold=${THRESHOLD:-0.9}
steps=${STEPS:-80}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# advantage | loss | the rest of the algorithm block | another setting of the job
# The entropy bonus is weighed against the advantages: 0.1 where the estimator makes their deviation 1, 0.04 where they are
# rewards less a baseline. The losses get two updates a batch: with one, every ratio is 1.
cat >"$work/list" <<'LIST'
grpo | ppo_clip | entropy: 0.1 |
dr_grpo | ppo_clip | entropy: 0.04 |
rloo | ppo_clip | entropy: 0.04 |
reinforce_pp | ppo_clip | entropy: 0.1 |
{name: reinforce_pp, group_baseline: true} | ppo_clip | entropy: 0.1 |
gae | ppo_clip | entropy: 0.1 |
remax | ppo_clip | entropy: 0.04 |
opo | ppo_clip | entropy: 0.04 |
maxrl | ppo_clip | entropy: 0.04 |
gigpo | ppo_clip | entropy: 0.1 |
turn | ppo_clip | entropy: 0.04 |
{name: turn, mode: discounted} | ppo_clip | entropy: 0.04 |
arpo | ppo_clip | entropy: 0.1 |
grpo | ppo_clip | entropy: 0.1, mini_batches: 2 |
grpo | gspo | entropy: 0.1, mini_batches: 2 |
grpo | {name: cispo, bound: relative} | entropy: 0.1, mini_batches: 2 |
grpo | reinforce | entropy: 0.1, mini_batches: 2 |
grpo | sapo | entropy: 0.1, mini_batches: 2 |
grpo | dppo | entropy: 0.1, mini_batches: 2 |
grpo | ppo_clip | entropy: 0.1, mini_batches: 2, clip_high: 0.28, dual_clip: 3 |
gae | ppo_clip | entropy: 0.1, epochs: 2, mini_batches: 2 |
dr_grpo | ppo_clip | entropy: 0.04, aggregation: seq-mean-token-sum-norm, max_tokens: 4 |
grpo | ppo_clip | entropy: 0.1, kl: {coefficient: 0.01} |
grpo | ppo_clip | entropy: 0.1, kl: {coefficient: 0.01, estimator: k2} |
grpo | ppo_clip | entropy: 0.1, kl: {coefficient: 0.01, estimator: k1, in: reward} |
grpo | ppo_clip | entropy: 0.1, dynamic_sampling: true |
grpo | ppo_clip | entropy: 0.1, correction: {kind: tis_token} | engine.dtype=bfloat16
grpo | ppo_clip | entropy: 0.1, correction: {kind: tis_sequence} | engine.dtype=bfloat16
grpo | ppo_clip | entropy: 0.1, correction: {kind: icepop} | engine.dtype=bfloat16
grpo | ppo_clip | entropy: 0.1, correction: {kind: seq_mask} | engine.dtype=bfloat16
grpo | ppo_clip | entropy: 0.1, correction: {kind: bypass} | engine.dtype=bfloat16
{name: turn, mode: first_occurrence} | ppo_clip | entropy: 0.04 |
grpo | ppo_clip | entropy: 0.1 | control.shuffle_rewards=true
gae | ppo_clip | entropy: 0.1 | control.shuffle_rewards=true
LIST

trim() { echo "$1" | sed 's/^ *//; s/ *$//'; }
echo "| advantage | loss | settings | $(echo "$seeds" | sed 's/ / | /g; s/[0-9][0-9]*/seed &/g') |"
echo "|---|---|---|$(echo "$seeds" | sed 's/[0-9][0-9]* */---|/g')"
row=0
while IFS='|' read -r advantage loss rest more; do
  row=$((row + 1))
  if test "$row" -lt "$first" || test "$row" -gt "$last"; then continue; fi
  advantage=$(trim "$advantage")
  loss=$(trim "$loss")
  rest=$(trim "$rest")
  more=$(trim "$more")
  line="| \`$advantage\` | \`$loss\` | \`$rest\`${more:+; \`$more\`} |"
  for seed in $seeds; do
    rm -rf "$work/run"
    if ! "$binary" train --output "$work/run" --seed "$seed" --set "trainer.steps=$steps" \
      --set "algorithm={advantage: $advantage, loss: $loss, $rest}" ${more:+--set "$more"} "$here/examples/tiny.yaml" >"$work/out" 2>&1; then
      tail -1 "$work/out" >&2
      line="$line failed |"
      continue
    fi
    cell=$(sed -n 's/.*"reward\/mean":\([-0-9.e]*\).*/\1/p' "$work/run/metrics.jsonl" | awk -v threshold="$threshold" '
      { r[NR] = $1; mean = NR > 2 ? (r[NR] + r[NR - 1] + r[NR - 2]) / 3 : 0 }
      NR > 2 && !step && mean >= threshold { step = NR }
      END { printf "%s (%.2f)", step ? step : "-", mean }')
    line="$line $cell |"
  done
  echo "$line"
done <"$work/list"
