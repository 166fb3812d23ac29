package orchestrator

import (
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// Algorithm is what a job's updates compute, with the settings that contradict the job's rollouts refused.
func Algorithm(j *job.Job, r Registries) (*algorithms.Algorithm, error) {
	if j.SFT != nil {
		return sftAlgorithm(j, r)
	}
	if j.Distill != nil {
		return distillAlgorithm(j, r)
	}
	a, err := j.Algorithm.Resolve(r.Algorithms)
	if err != nil {
		return nil, j.Fail("algorithm", "%s", plain(err, "algorithms: "))
	}
	if a.DynamicSampling && j.Rollout.GroupSize < 2 {
		return nil, j.Fail("algorithm.dynamic_sampling", "a group of one trajectory has no variance; set rollout.group_size to 2 or more")
	}
	if a.DynamicSampling && a.NeedsGreedy() {
		return nil, j.Fail("algorithm.dynamic_sampling", "it drops groups whose rewards are equal, but advantage %s compares them with a greedy rollout, not with each other; leave one of the two out", a.Estimator.Name)
	}
	if a.Overlong.Buffer >= j.Rollout.MaxTokens {
		return nil, j.Fail("algorithm.overlong.buffer", "%d tokens are not less than rollout.max_tokens (%d), the limit before which the penalty grows", a.Overlong.Buffer, j.Rollout.MaxTokens)
	}
	return a, nil
}
