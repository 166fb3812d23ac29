package job

import "github.com/agentfly/agentfly/algorithms"

// sftAlgorithm is the negative log-likelihood of the response tokens: reinforce with advantage 1.
func sftAlgorithm(j *Job, all *algorithms.Registry) (*algorithms.Algorithm, error) {
	c := j.Algorithm
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"advantage", c.Advantage.Name != ""},
		{"loss", c.Loss.Name != ""},
		{"clip_low", c.ClipLow != nil},
		{"clip_high", c.ClipHigh != nil},
		{"dual_clip", c.DualClip != nil},
		{"kl", c.KL != algorithms.KL{}},
		{"entropy", c.Entropy != 0},
		{"value", c.Value != nil},
		{"correction", c.Correction != algorithms.Correction{}},
		{"epochs", c.Epochs != nil},
		{"mini_batches", c.MiniBatches != nil},
		{"dynamic_sampling", c.DynamicSampling},
		{"overlong", c.Overlong != algorithms.Overlong{}},
	} {
		if f.set {
			return nil, j.Fail("algorithm."+f.path, "the job has a block sft, whose loss is the negative log-likelihood; only aggregation and max_tokens can be set, leave this out")
		}
	}
	c.Loss.Name = "reinforce"
	a, err := c.Resolve(all)
	if err != nil {
		return nil, refused(j, err)
	}
	a.Estimator.EstimatorSpec = algorithms.EstimatorSpec{Name: "none", Formula: "A = 1 on every response token", Source: "supervised fine-tuning"}
	a.Loss.Name, a.Loss.Formula, a.Loss.Source = "sft", "loss_t = -current, the negative log-likelihood", "supervised fine-tuning"
	return a, nil
}
