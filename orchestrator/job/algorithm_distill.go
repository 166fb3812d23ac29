package job

import "github.com/agentfly/agentfly/algorithms"

// On-policy distillation: the policy samples, the teacher scores what was sampled, and a token's advantage is
//
//	A_t = log p_teacher(t) - log p_sampling(t)
//
// without discount: its expectation under the policy is minus the reverse KL divergence of the next token's distributions,
// so that the policy gradient of the mean advantage lowers that divergence at the states that the policy itself visits
// (generalized knowledge distillation with on-policy data and reverse KL, arXiv 2306.13649, section 3; MiniLLM,
// arXiv 2306.08543).
func distillAlgorithm(j *Job, all *algorithms.Registry) (*algorithms.Algorithm, error) {
	c := j.Algorithm
	const why = "the job has a block distill, whose advantage is the teacher's logprob minus the policy's; leave this out"
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"advantage", c.Advantage.Name != ""},
		{"value", c.Value != nil},
		{"dynamic_sampling", c.DynamicSampling},
		{"overlong", c.Overlong != algorithms.Overlong{}},
		{"kl.in", c.KL.In == "reward"},
	} {
		if f.set {
			return nil, j.Fail("algorithm."+f.path, why)
		}
	}
	a, err := c.Resolve(all)
	if err != nil {
		return nil, refused(j, err)
	}
	if err := checkBatch(j, a); err != nil {
		return nil, err
	}
	a.Estimator.EstimatorSpec = algorithms.EstimatorSpec{Name: "distill", Formula: "A_t = log p_teacher(t) - log p_sampling(t)", Source: "arXiv 2306.13649"}
	return a, nil
}
