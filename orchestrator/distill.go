package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/agentfly/agentfly/waiting"
)

// On-policy distillation: the policy samples, the teacher scores what was sampled, and a token's advantage is
//
//	A_t = log p_teacher(t) - log p_sampling(t)
//
// without discount: its expectation under the policy is minus the reverse KL divergence of the next token's distributions,
// so that the policy gradient of the mean advantage lowers that divergence at the states that the policy itself visits
// (generalized knowledge distillation with on-policy data and reverse KL, arXiv 2306.13649, section 3; MiniLLM,
// arXiv 2306.08543).
func distillAlgorithm(j *job.Job, r Registries) (*algorithms.Algorithm, error) {
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
	a, err := c.Resolve(r.Algorithms)
	if err != nil {
		return nil, j.Fail("algorithm", "%s", plain(err, "algorithms: "))
	}
	if err := checkBatch(j, a); err != nil {
		return nil, err
	}
	a.Estimator = algorithms.EstimatorSpec{Name: "distill", Formula: "A_t = log p_teacher(t) - log p_sampling(t)", Source: "arXiv 2306.13649"}
	return a, nil
}

// teacher scores what the policy sampled.
type teacher interface {
	// score returns the teacher's logprobs of the response tokens, [sample][T], 0 off the mask.
	score(ctx context.Context, samples []*trajectory.Sample) ([][]float32, error)
	Close() error
}

// openTeacher opens the model or connects to the servers of the job's block distill.
func (s *session) openTeacher(ctx context.Context) (teacher, error) {
	d := s.job.Distill.Teacher
	if d.Path == "" {
		engine, err := vllm.New(ctx, vllm.Options{URLs: d.URLs, Model: d.ServedModel, APIKey: d.APIKey})
		if err != nil {
			return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
		}
		return remoteTeacher{engine, engine.Close}, nil
	}
	path := d.Path
	if local := s.job.Resolve(path); exists(local) {
		path = local
	}
	p, err := policy.Load(path, policy.Options{Device: s.job.Device})
	if err != nil {
		return nil, s.job.Fail("distill.teacher.path", "%v", err)
	}
	if is, was := s.policy.Fingerprint(), p.Fingerprint(); is != was {
		err := s.job.Fail("distill.teacher.path", "the teacher has another tokenizer or chat template (fingerprint %.12s) than the policy (%.12s); the same token ids must mean the same", was, is)
		return nil, errors.Join(err, p.Close())
	}
	return &localTeacher{s, p}, nil
}

// localTeacher is a frozen model in this process.
type localTeacher struct {
	session *session
	policy  *policy.Policy
}

func (t *localTeacher) score(ctx context.Context, samples []*trajectory.Sample) (out [][]float32, err error) {
	o := policy.PackOptions{MicroBatchTokens: t.session.job.Trainer.MicroBatchTokens, MaxLength: t.policy.Config.MaxContext(), Temperature: 1}
	err = t.session.worker.Do(ctx, func() (err error) {
		out, err = policy.ScoreSamples(ctx, t.policy.Model, samples, o)
		return err
	})
	return out, err
}

func (t *localTeacher) Close() error { return t.policy.Close() }

// remoteTeacher is an engine that scores token ids.
type remoteTeacher struct {
	engines.Scorer
	close func() error
}

const scorersAtOnce = 16 // requests to a teacher

func (t remoteTeacher) score(ctx context.Context, samples []*trajectory.Sample) ([][]float32, error) {
	out := make([][]float32, len(samples))
	ctx, stop := context.WithCancelCause(ctx) // the first error ends all: a teacher that is gone is waited for once
	defer stop(nil)
	places := make(chan struct{}, scorersAtOnce)
	var all sync.WaitGroup
	for i, s := range samples {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			w := waiting.Enter(ctx, "teacher", "sample "+strconv.Itoa(i))
			defer w.Leave()
			logprobs, err := t.Score(w.In(ctx), s.TokenIDs)
			if err == nil && len(logprobs) != s.Len()-1 {
				err = fmt.Errorf("%d logprobs for %d tokens", len(logprobs), s.Len())
			}
			if err != nil {
				stop(err)
				return
			}
			out[i] = make([]float32, s.Len())
			for k := 1; k < s.Len(); k++ {
				if s.ResponseMask[k] {
					out[i][k] = logprobs[k-1]
				}
			}
		})
	}
	all.Wait()
	return out, context.Cause(ctx)
}

func (t remoteTeacher) Close() error { return t.close() }

// distilled is what a teacher says of some groups.
type distilled struct {
	advantages [][][]float64 // [group][trajectory][L]
	reverseKL  float64       // mean over the response tokens of sampling - teacher; an estimate of the divergence per token
	tokens     int
}

// distill scores the finished trajectories of groups. shuffle permutes the teacher's scores over all tokens.
func (t *run) distill(ctx context.Context, groups []trajectory.Group, shuffle *rand.Rand) (*distilled, error) {
	var samples []*trajectory.Sample
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			if tr.Err == "" {
				samples = append(samples, tr.Samples...)
			}
		}
	}
	scores, err := t.teacher.score(ctx, samples)
	if err != nil {
		return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
	}
	var all []float64 // of the response tokens, in order
	d := &distilled{}
	for i, s := range samples {
		for k, on := range s.ResponseMask {
			if !on {
				continue
			}
			x := float64(scores[i][k])
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("orchestrator: distill.teacher: its logprob of token %d (%d) of a sample is %v", k, s.TokenIDs[k], x)
			}
			all = append(all, x)
			d.reverseKL += float64(s.SamplingLogprobs[k]) - x
		}
	}
	d.tokens = len(all)
	d.reverseKL /= max(1, float64(d.tokens))
	if shuffle != nil {
		shuffle.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	}
	next := 0
	for _, g := range groups {
		var group [][]float64
		for _, tr := range g.Trajectories {
			var own []float64
			for _, s := range tr.Samples {
				for k, on := range s.ResponseMask {
					if on && tr.Err == "" {
						own = append(own, all[next]-float64(s.SamplingLogprobs[k]))
						next++
					}
				}
			}
			group = append(group, own)
		}
		d.advantages = append(d.advantages, group)
	}
	return d, nil
}

// evaluateKL estimates the divergence from the teacher on the held-out tasks, sampled as in training.
func (t *run) evaluateKL(ctx context.Context, e *Evaluation) error {
	r := t.rollout
	r.Record, r.Past = nil, nil
	groups, err := r.Groups(ctx, "eval-"+e.Name+"-kl", e.Step, t.eval.Tasks, t.job.Rollout.GroupSize, ending)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	d, err := t.distill(ctx, groups, nil)
	if err != nil {
		return err
	}
	e.ReverseKL = &d.reverseKL
	return nil
}
