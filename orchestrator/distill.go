package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
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
		return nil, j.Fail("algorithm", "%s", job.Plain(err, "algorithms: "))
	}
	if err := checkBatch(j, a); err != nil {
		return nil, err
	}
	a.Estimator = algorithms.EstimatorSpec{Name: "distill", Formula: "A_t = log p_teacher(t) - log p_sampling(t)", Source: "arXiv 2306.13649"}
	return a, nil
}

// teacher scores what the policy sampled.
type teacher interface {
	// takes says what it can score: samples of at most so many tokens, with ids below so many; 0 is no limit that is known.
	takes() (tokens, ids int)
	// score returns the teacher's logprobs of the response tokens, [sample][T], 0 off the mask; nil for a sample that it
	// refuses, for the reason in refused, and would refuse again. refused is nil where there is none.
	score(ctx context.Context, samples []*trajectory.Sample) (logprobs [][]float32, refused []error, err error)
	Close() error
}

// openTeacher opens the model or connects to the servers of the job's block distill.
func (s *session) openTeacher(ctx context.Context) (teacher, error) {
	d := s.job.Distill.Teacher
	if d.Path == "" {
		engine, err := vllm.New(ctx, vllm.Options{URLs: d.URLs, Model: d.ServedModel, APIKey: d.APIKey, Frozen: true})
		if err != nil {
			return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
		}
		t := remoteTeacher{Scorer: engine, close: engine.Close, tokens: engine.Capabilities().MaxModelLen - 1} // vLLM samples a token with every prompt
		if err := s.checkTeacher(ctx, engine); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
		return t, nil
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

func (t *localTeacher) takes() (tokens, ids int) {
	return t.policy.Config.MaxContext(), t.policy.Config.VocabSize
}

func (t *localTeacher) score(ctx context.Context, samples []*trajectory.Sample) (out [][]float32, _ []error, err error) {
	o := trainer.PackOptions{MicroBatchTokens: t.session.job.Trainer.MicroBatchTokens, MaxLength: t.policy.Config.MaxContext(), Temperature: 1}
	err = t.session.worker.Do(ctx, func() (err error) {
		out, err = trainer.ScoreSamples(ctx, t.policy.Model, samples, o)
		return err
	})
	return out, nil, err
}

func (t *localTeacher) Close() error { return t.policy.Close() }

// remoteTeacher is an engine that scores token ids.
type remoteTeacher struct {
	engines.Scorer
	close  func() error
	tokens int // of the longest sequence that it scores
}

func (t remoteTeacher) takes() (tokens, ids int) { return t.tokens, 0 }

// teacherServers are what a teacher's servers are asked before a run begins.
type teacherServers interface {
	engines.Scorer
	Tokenize(ctx context.Context, text string) ([]int32, error)
}

// checkTeacher asks servers whether token ids mean to them what they mean to the policy: they must know the last one, and cut
// a text into the same. What a run had sampled before it found out could never be scored.
func (s *session) checkTeacher(ctx context.Context, servers teacherServers) error {
	tok := s.policy.Tokenizer
	last := int32(tok.Size() - 1)
	_, err := servers.Score(ctx, []int32{last, last})
	if errors.Is(err, engines.ErrRefused) {
		return s.job.Fail("distill.teacher.urls", "the teacher does not take token id %d, the last of the policy's tokenizer; a teacher must have the policy's vocabulary: %v", last, err)
	}
	if err != nil {
		return fmt.Errorf("orchestrator: distill.teacher: %w", err)
	}
	text := sampleText(tok)
	theirs, err := servers.Tokenize(ctx, text)
	switch own := tok.Encode(text); {
	case errors.Is(err, errors.ErrUnsupported):
		s.notes = append(s.notes, "the teacher's servers do not offer /tokenize, so that its tokenizer is the policy's is not checked")
	case err != nil:
		return fmt.Errorf("orchestrator: distill.teacher: %w", err)
	case !slices.Equal(own, theirs):
		return s.job.Fail("distill.teacher.urls", "the teacher cuts %q into the tokens %v, the policy into %v; a teacher must have the policy's tokenizer: the same token ids must mean the same", text, theirs, own)
	}
	return nil
}

// sampleText is a text of tokens from the whole of a vocabulary. Only what the tokenizer itself writes is in it, so that a
// tokenizer of few letters can read it.
func sampleText(tok *tokenizer.Tokenizer) string {
	const parts = 48
	var text strings.Builder
	for i := range parts {
		id := int32(i * tok.Size() / parts)
		// What is not cut into the token again, such as the text of an unknown one, libraries cut in more than one way.
		if part := tok.Decode([]int32{id}, true); !tok.IsSpecial(id) && !strings.ContainsRune(part, utf8.RuneError) && slices.Equal(tok.Encode(part), []int32{id}) {
			text.WriteString(part)
		}
	}
	return text.String()
}

// limitToTeacher ends trajectories where the teacher's context ends, as they end with the policy's own.
func (t *run) limitToTeacher() {
	tokens, _ := t.teacher.takes()
	if tokens == 0 || t.rollout.MaxTotal <= tokens {
		return
	}
	t.notes = append(t.notes, fmt.Sprintf("the teacher takes %d tokens, so trajectories end there and not at %d (rollout.max_tokens, or the policy's context)", tokens, t.rollout.MaxTotal))
	t.rollout.MaxTotal = tokens
}

const scorersAtOnce = 16 // requests to a teacher

func (t remoteTeacher) score(ctx context.Context, samples []*trajectory.Sample) ([][]float32, []error, error) {
	out, refused := make([][]float32, len(samples)), make([]error, len(samples))
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
			w := watchdog.Enter(ctx, "teacher", "sample "+strconv.Itoa(i))
			defer w.Leave()
			logprobs, err := t.Score(w.In(ctx), s.TokenIDs)
			if errors.Is(err, engines.ErrRefused) || errors.Is(err, engines.ErrTooLong) { // of this sample, for good
				refused[i] = err
				return
			}
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
	return out, refused, context.Cause(ctx)
}

func (t remoteTeacher) Close() error { return t.close() }

// distilled is what a teacher says of some groups.
type distilled struct {
	advantages [][][]float64 // [group][trajectory][L]
	reverseKL  float64       // mean over the response tokens of sampling - teacher; an estimate of the divergence per token
	tokens     int
}

// taught is a trajectory that a teacher scores.
type taught struct {
	*trajectory.Trajectory
	logprobs [][]float32 // [sample][T]
}

// distill scores the finished trajectories of groups. shuffle permutes the teacher's scores over all tokens. A trajectory that
// the teacher can never score (it is too long, has a token that the teacher does not know or finds impossible) fails, and leaves
// the update: a batch that was recorded with it must not keep a run from going on.
func (t *run) distill(ctx context.Context, groups []trajectory.Group, shuffle *rand.Rand) (*distilled, error) {
	lessons, err := t.scored(ctx, groups)
	if err != nil {
		return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
	}
	var all []float64 // of the response tokens, in order
	d := &distilled{}
	for _, l := range lessons {
		for i, s := range l.Samples {
			for k, on := range s.ResponseMask {
				if on {
					x := float64(l.logprobs[i][k])
					all = append(all, x)
					d.reverseKL += float64(s.SamplingLogprobs[k]) - x
				}
			}
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

// teacherOrigin is that of trajectories which the teacher cannot score.
const teacherOrigin = "teacher"

// scored asks the teacher for the finished trajectories, and fails those that it cannot score.
func (t *run) scored(ctx context.Context, groups []trajectory.Group) (lessons []taught, err error) {
	fail := func(tr *trajectory.Trajectory, err error) {
		tr.Err, tr.ErrOrigin = fmt.Sprintf("orchestrator: %s: the teacher cannot score it: %v", tr.ID, err), teacherOrigin
	}
	var asked []*trajectory.Trajectory
	var samples []*trajectory.Sample
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			if tr.Err != "" {
				continue
			}
			if err := tooMuch(t.teacher, tr); err != nil {
				fail(tr, err)
				continue
			}
			asked, samples = append(asked, tr), append(samples, tr.Samples...)
		}
	}
	scores, refused, err := t.teacher.score(ctx, samples)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, tr := range asked {
		l := taught{Trajectory: tr, logprobs: scores[next : next+len(tr.Samples)]}
		for i, s := range tr.Samples {
			err := impossible(s, l.logprobs[i])
			if refused != nil && refused[next+i] != nil {
				err = refused[next+i]
			}
			if err != nil {
				fail(tr, err)
				break
			}
		}
		next += len(tr.Samples)
		if tr.Err == "" {
			lessons = append(lessons, l)
		}
	}
	return lessons, nil
}

// tooMuch tells what of a trajectory is beyond the teacher.
func tooMuch(t teacher, tr *trajectory.Trajectory) error {
	tokens, ids := t.takes()
	for _, s := range tr.Samples {
		if tokens > 0 && s.Len() > tokens {
			return fmt.Errorf("it has %d tokens, the teacher takes %d", s.Len(), tokens)
		}
		if id := slices.Max(s.TokenIDs); ids > 0 && int(id) >= ids {
			return fmt.Errorf("the teacher has no token %d, its ids end at %d", id, ids-1)
		}
	}
	return nil
}

// impossible tells whether a logprob of a response token is no number that could be learned from.
func impossible(s *trajectory.Sample, logprobs []float32) error {
	for k, on := range s.ResponseMask {
		if on && logprobs != nil && (math.IsNaN(float64(logprobs[k])) || math.IsInf(float64(logprobs[k]), 0)) {
			return fmt.Errorf("its logprob of token %d (%d) of a sample is %v", k, s.TokenIDs[k], logprobs[k])
		}
	}
	return nil
}

// refusedByTeacher stops a run whose teacher cannot score more than rollout.max_failed of what was just sampled. Of a batch that
// was recorded before, nothing can be sampled again: it is trained on what is left of it, as are those of a replay.
func (t *run) refusedByTeacher(b *schedule.Batch) error {
	if _, recorded := t.past.batches[b.Step]; !recorded && t.replay == nil {
		return t.rollouts().TooManyFailed(b.Step, b.All)
	}
	n, first := 0, ""
	for _, g := range b.Trained {
		for _, tr := range g.Trajectories {
			if tr.ErrOrigin != teacherOrigin {
				continue
			}
			if n++; first == "" {
				first = tr.Err
			}
		}
	}
	if n > 0 {
		t.note(fmt.Sprintf("step %d: %d recorded trajectories are left out: %s", b.Step+1, n, first))
	}
	return nil
}

// evaluateKL estimates the divergence from the teacher on the held-out tasks, sampled as in training.
func (t *run) evaluateKL(ctx context.Context, e *report.Evaluation) error {
	r := t.rollout
	r.Record, r.Recovered = nil, nil
	groups, err := r.Groups(ctx, "eval-"+e.Name+"-kl", e.Step, t.eval.Tasks, t.job.Rollout.GroupSize, rollout.Fatal)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	d, err := t.distill(ctx, groups, nil)
	if err == nil {
		err = rollout.TooManyFailed(t.job.Rollout, "evaluation "+e.Name+", divergence from the teacher", groups)
	}
	if err != nil {
		return err
	}
	e.ReverseKL = &d.reverseKL
	return nil
}
