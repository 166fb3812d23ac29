#!/bin/sh
# Trees beside chains at equal budgets of tool calls: JOB (default examples/two_step.yaml) trains with chains, with ARPO's
# entropy trees, with them and a penalty for branches in a row, with Tree-GRPO's, and with EPTree's, for each seed; prints a
# table of rewards and of what was sampled.
#
# SEEDS       default 1 2 3 4 5
# ARMS        default chains arpo aepo tree_grpo eptree. arpo_wide and tree_grpo_wide have 8 and 9 leaves in place of 6, so
#             that a step samples about what one of chains does
# STEPS       of the job by default; TREE_STEPS (default STEPS) those of trees: a step of trees samples less, so more of
#             them spend what the chains spend
# MODEL       a model that begins without the job's worked examples: that of examples/two_step_sft.yaml or
#             three_step_sft.yaml. Prompts are shorter then
# ARGS        further arguments of agentfly train
# OUT         default runs/trees; runs that ended there are not made again
#
# A run of two_step takes about half an hour on two idle cores, one with MODEL and STEPS=20 about five minutes.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
job=${JOB:-examples/two_step.yaml}
out=${OUT:-runs/trees}
name=$(basename "$job" .yaml)
mkdir -p "$out"
for seed in ${SEEDS:-1 2 3 4 5}; do
  for arm in ${ARMS:-chains arpo aepo tree_grpo eptree}; do
    run=$out/$name-$arm-$seed
    test ! -f "$run/summary.json" || continue
    set -- --output "$run" --seed "$seed"
    test -z "${MODEL:-}" || set -- "$@" --set "model.path=$MODEL" --set agent.examples=
    steps=${STEPS:-}
    test "$arm" = chains || steps=${TREE_STEPS:-$steps}
    test -z "$steps" || set -- "$@" --set "trainer.steps=$steps"
    case $arm in
    arpo_wide) set -- "$@" --set rollout.group_size=8 ;;
    tree_grpo_wide) set -- "$@" --set rollout.group_size=9 ;;
    esac
    case $arm in
    chains) ;;
    arpo | arpo_wide) set -- "$@" --set 'rollout.tree={rule: entropy, weight: 0.4}' --set 'algorithm.advantage={name: tree, intra: 0, normalize: mean}' ;;
    aepo) set -- "$@" --set 'rollout.tree={rule: entropy, weight: 0.4, penalty: 0.5}' --set 'algorithm.advantage={name: tree, intra: 0, normalize: mean}' ;;
    tree_grpo) set -- "$@" --set 'rollout.tree={rule: step_random, roots: 2, nodes: 2}' --set 'algorithm.advantage={name: tree, normalize: mean}' ;;
    tree_grpo_wide) set -- "$@" --set 'rollout.tree={rule: step_random, roots: 3, nodes: 2}' --set 'algorithm.advantage={name: tree, normalize: mean}' ;;
    eptree) set -- "$@" --set 'rollout.tree={rule: token_nll, roots: 2}' --set 'algorithm.advantage={name: tree, inter: 0, intra: 0, local: 1, global: 1, normalize: leave-one-out, shared: sqrt}' ;;
    *)
      echo "learn_trees.sh: there is no arm $arm; they are chains, arpo, aepo, tree_grpo, eptree, arpo_wide, tree_grpo_wide" >&2
      exit 2
      ;;
    esac
    rm -rf "$run"
    # shellcheck disable=SC2086 # several arguments
    ${AGENTFLY:-bin/agentfly} train "$@" --set eval.tool_off=false ${ARGS:-} "$job" >"$run.log" 2>&1 || {
      tail -n 3 "$run.log"
      exit 1
    }
  done
done
python3 scripts/learn_trees.py "$name" "$out"
