package job

import (
	"fmt"

	"github.com/agentfly/agentfly/algorithms"
)

// Algorithm is what a job's updates compute, with the losses and estimators of all. Settings that contradict the job's rollouts are
// refused.
func Algorithm(j *Job, all *algorithms.Registry) (*algorithms.Algorithm, error) {
	if j.SFT != nil {
		return sftAlgorithm(j, all)
	}
	if j.Distill != nil {
		return distillAlgorithm(j, all)
	}
	a, err := j.Algorithm.Resolve(all)
	if err != nil {
		return nil, refused(j, err)
	}
	if a.DynamicSampling && j.Rollout.GroupSize < 2 {
		return nil, j.Fail("algorithm.dynamic_sampling", "a group of one trajectory has no variance; set rollout.group_size to 2 or more")
	}
	if a.DynamicSampling && a.Estimator.Needs.Greedy {
		return nil, j.Fail("algorithm.dynamic_sampling", "it drops groups whose rewards are equal, but advantage %s compares them with a greedy rollout, not with each other; leave one of the two out", a.Estimator.Name)
	}
	if err := checkBatch(j, a); err != nil {
		return nil, err
	}
	if err := checkStale(j, a); err != nil {
		return nil, err
	}
	if a.Overlong.Buffer >= j.Rollout.MaxTokens {
		return nil, j.Fail("algorithm.overlong.buffer", "%d tokens are not less than rollout.max_tokens (%d), the limit before which the penalty grows", a.Overlong.Buffer, j.Rollout.MaxTokens)
	}
	return a, nil
}

// refused says of each setting of the block that Resolve refuses where it stands.
func refused(j *Job, err error) error {
	var all []Problem
	for _, s := range err.(algorithms.Refused) { //nolint:errorlint // Resolve's own
		all = append(all, j.problem("algorithm."+s.Key, "%v", s.Err))
	}
	return asError(all)
}

// checkBatch refuses more mini-batches than a step has trajectories.
func checkBatch(j *Job, a *algorithms.Algorithm) error {
	if n := j.Rollout.Groups * j.Rollout.GroupSize; a.MiniBatches > n {
		return j.Fail("algorithm.mini_batches", "%d are more than the %d trajectories of a step (rollout.groups x group_size); lower it", a.MiniBatches, n)
	}
	return nil
}

// checkStale refuses algorithms that take what older policies sampled for the present one's.
func checkStale(j *Job, a *algorithms.Algorithm) error {
	k, versions := j.Rollout.MaxStaleness, a.Updates()
	switch {
	case k == 0:
		return nil
	case a.Estimator.Needs.Greedy:
		return j.Fail("algorithm.advantage", "%s compares with a greedy rollout of the same policy version, and rollout.max_staleness is %d; use mode sync without oversample, or another estimator", a.Estimator.Name, k)
	case k < versions:
		return j.Fail("rollout.max_staleness", "%d is less than the %d policy versions of a step (algorithm.epochs x mini_batches), so nothing could be sampled beside an update; set %d or more", k, versions, versions)
	case !a.CorrectsStale():
		kind := a.Correction.Kind
		if a.Loss.IgnoresOld && kind == algorithms.CorrectionBypass {
			kind = fmt.Sprintf("bypass changes old logprobs, which loss %s does not read", a.Loss.Name)
		}
		return j.Fail("algorithm.correction", "%s, but rollout.max_staleness is %d: tokens of older policies would count as the present one's; set correction: {kind: tis_token}, or tis_sequence, icepop, seq_mask, or bypass with a clipped loss", kind, k)
	}
	return nil
}

// AllowsAsync tells whether no setting of the job, and not the estimator of its algorithm, rules out rollout.mode: async. What async needs beside
// it, max_staleness and a correction, can be added.
func AllowsAsync(j *Job, a *algorithms.Algorithm) bool {
	async, allowed := *j, !a.Estimator.Needs.Greedy
	async.Rollout.Mode, async.Rollout.Oversample, async.Rollout.MaxStaleness = "async", 1, max(1, j.Rollout.MaxStaleness)
	checkMode(&async, func(string, string, ...any) { allowed = false })
	return allowed
}

// DescribeRate says how the learning rate goes, for `agentfly job effective`.
func DescribeRate(j *Job, a *algorithms.Algorithm) string {
	t, then := j.Trainer, "constant"
	if t.Schedule != "constant" {
		end := fmt.Sprintf("step %d, the run's last", t.Steps)
		if j.SFT != nil && j.SFT.Epochs > 0 {
			end = "the run's last step, which follows from the data"
		}
		then = fmt.Sprintf("falls (%s) to 0 at the end of %s; steps without anything to learn count", t.Schedule, end)
	}
	var updates string
	if each := a.Updates(); each > 1 && (t.Schedule != "constant" || t.WarmupSteps > 0) {
		updates = fmt.Sprintf(" (%d optimizer steps each)", each)
	}
	if t.WarmupSteps > 0 {
		return fmt.Sprintf("%-12s rises over %d steps%s to %v, then %s\n", "rate", t.WarmupSteps, updates, t.LearningRate, then)
	}
	return fmt.Sprintf("%-12s %v, %s%s\n", "rate", t.LearningRate, then, updates)
}
