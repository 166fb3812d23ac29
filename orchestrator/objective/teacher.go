package objective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// Teacher tells how likely what the policy sampled is to another model.
type Teacher interface {
	// Takes says what it takes: samples of at most so many tokens, with ids below so many; 0 is no limit that is known.
	Takes() (tokens, ids int)
	// Logprobs returns the teacher's logprobs of the response tokens, [sample][T], 0 off the mask; nil for a sample that it
	// refuses, for the reason in refused, and would refuse again. refused is nil where there is none.
	Logprobs(ctx context.Context, samples []*trajectory.Sample) (logprobs [][]float32, refused []error, err error)
	Close() error
}

// OpenTeacher opens the model or connects to the servers of the job's block distill.
func OpenTeacher(ctx context.Context, j *job.Job, student *policy.Policy, worker *cgo.Worker, note func(string)) (Teacher, error) {
	d := j.Distill.Teacher
	if d.Path == "" {
		engine, err := vllm.New(ctx, vllm.Options{URLs: d.URLs, Model: d.ServedModel, APIKey: d.APIKey, Frozen: true})
		if err != nil {
			return nil, fmt.Errorf("orchestrator: distill.teacher: %w", err)
		}
		t := remoteTeacher{engine: engine, close: engine.Close, tokens: engine.Capabilities().MaxModelLen - 1} // vLLM samples a token with every prompt
		if err := checkTeacher(ctx, j, student.Tokenizer, engine, note); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
		return t, nil
	}
	path := j.ModelPath(d.Path)
	p, err := policy.Load(path, policy.Options{Device: j.Device})
	if err != nil {
		return nil, j.Fail("distill.teacher.path", "%v", err)
	}
	if is, was := student.Fingerprint(), p.Fingerprint(); is != was {
		err := j.Fail("distill.teacher.path", "the teacher has another tokenizer or chat template (fingerprint %.12s) than the policy (%.12s); the same token ids must mean the same", was, is)
		return nil, errors.Join(err, p.Close())
	}
	return &localTeacher{policy: p, worker: worker, microBatch: j.Trainer.MicroBatchTokens}, nil
}

// localTeacher is a frozen model in this process.
type localTeacher struct {
	policy     *policy.Policy
	worker     *cgo.Worker
	microBatch int // tokens
}

func (t *localTeacher) Takes() (tokens, ids int) {
	return t.policy.Config.MaxContext(), t.policy.Config.VocabSize
}

func (t *localTeacher) Logprobs(ctx context.Context, samples []*trajectory.Sample) (out [][]float32, _ []error, err error) {
	o := trainer.PackOptions{MicroBatchTokens: t.microBatch, MaxLength: t.policy.Config.MaxContext(), Temperature: 1}
	err = t.worker.Do(ctx, func() (err error) {
		out, err = trainer.ResponseLogprobs(ctx, t.policy.Model, samples, o)
		return err
	})
	return out, nil, err
}

func (t *localTeacher) Close() error { return t.policy.Close() }

// remoteTeacher asks an engine for logprobs of token ids.
type remoteTeacher struct {
	engine engines.Logprober
	close  func() error
	tokens int // of the longest sequence that it takes
}

func (t remoteTeacher) Takes() (tokens, ids int) { return t.tokens, 0 }

// teacherServers are what a teacher's servers are asked before a run begins.
type teacherServers interface {
	engines.Logprober
	Tokenize(ctx context.Context, text string) ([]int32, error)
}

// checkTeacher asks servers whether token ids mean to them what they mean to the policy: they must know the last one, and cut
// a text into the same. What a run had sampled before it found out could never be learned from.
func checkTeacher(ctx context.Context, j *job.Job, tok *tokenizer.Tokenizer, servers teacherServers, note func(string)) error {
	last := int32(tok.Size() - 1)
	_, err := servers.Logprobs(ctx, []int32{last, last})
	if errors.Is(err, engines.ErrRefused) {
		return j.Fail("distill.teacher.urls", "the teacher does not take token id %d, the last of the policy's tokenizer; a teacher must have the policy's vocabulary: %v", last, err)
	}
	if err != nil {
		return fmt.Errorf("orchestrator: distill.teacher: %w", err)
	}
	text := sampleText(tok)
	theirs, err := servers.Tokenize(ctx, text)
	switch own := tok.Encode(text); {
	case errors.Is(err, errors.ErrUnsupported):
		note("the teacher's servers do not offer /tokenize, so that its tokenizer is the policy's is not checked")
	case err != nil:
		return fmt.Errorf("orchestrator: distill.teacher: %w", err)
	case !slices.Equal(own, theirs):
		return j.Fail("distill.teacher.urls", "the teacher cuts %q into the tokens %v, the policy into %v; a teacher must have the policy's tokenizer: the same token ids must mean the same", text, theirs, own)
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

const requestsAtOnce = 16 // requests to a teacher

func (t remoteTeacher) Logprobs(ctx context.Context, samples []*trajectory.Sample) ([][]float32, []error, error) {
	out, refused := make([][]float32, len(samples)), make([]error, len(samples))
	ctx, stop := context.WithCancelCause(ctx) // the first error ends all: a teacher that is gone is waited for once
	defer stop(nil)
	places := make(chan struct{}, requestsAtOnce)
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
			logprobs, err := t.engine.Logprobs(w.In(ctx), s.TokenIDs)
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
