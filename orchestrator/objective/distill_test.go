package objective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// constantTeacher gives every response token a logprob by its id.
type constantTeacher func(id int32) float32

func (constantTeacher) Takes() (tokens, ids int) { return 0, 0 }

func (f constantTeacher) Logprobs(_ context.Context, samples []*trajectory.Sample) ([][]float32, []error, error) {
	var out [][]float32
	for _, s := range samples {
		v := make([]float32, s.Len())
		for i, on := range s.ResponseMask {
			if on {
				v[i] = f(s.TokenIDs[i])
			}
		}
		out = append(out, v)
	}
	return out, nil, nil
}

func (constantTeacher) Close() error { return nil }

// taughtGroups: a trajectory of two samples, one that failed, and one of a single token.
func taughtGroups(t *testing.T) []trajectory.Group {
	sample := func(prompt, ids []int32, logprobs []float32) *trajectory.Sample {
		s := &trajectory.Sample{}
		s.AppendObservation(prompt)
		require.NoError(t, s.AppendResponse(ids, logprobs, make([]int32, len(ids))))
		s.AppendObservation([]int32{1})
		return s
	}
	return []trajectory.Group{
		{Trajectories: []*trajectory.Trajectory{
			{ID: "a", Samples: []*trajectory.Sample{sample([]int32{1, 2}, []int32{3, 4}, []float32{-0.5, -1}), sample([]int32{1}, []int32{5}, []float32{-2})}},
			{ID: "b", Err: "gone", Samples: []*trajectory.Sample{sample([]int32{1}, []int32{9}, []float32{-1})}},
		}},
		{Trajectories: []*trajectory.Trajectory{{ID: "c", Samples: []*trajectory.Sample{sample([]int32{1}, []int32{6}, []float32{-0.25})}}}},
	}
}

func TestDistillationAdvantages(t *testing.T) {
	r := &Distillation{RL: &RL{sampler: &rollout.Sampler{}}, teacher: constantTeacher(func(id int32) float32 { return -float32(id) / 4 })}
	d, err := r.distill(t.Context(), taughtGroups(t), false, nil)
	require.NoError(t, err)
	// teacher -0.75, -1, -1.25 | -1.5; sampling -0.5, -1, -2 | -0.25
	require.Equal(t, [][][]float64{{{-0.25, 0, 0.75}, nil}, {{-1.25}}}, d.advantages)
	require.Equal(t, 4, d.tokens)
	require.Equal(t, (0.25+0-0.75+1.25)/4, d.reverseKL)

	shuffled, err := r.distill(t.Context(), taughtGroups(t), false, rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	require.NotEqual(t, d.advantages, shuffled.advantages)
	require.Equal(t, d.reverseKL, shuffled.reverseKL, "the report is of the true logprobs")
	back := []float64{shuffled.advantages[0][0][0] - 0.5, shuffled.advantages[0][0][1] - 1, shuffled.advantages[0][0][2] - 2, shuffled.advantages[1][0][0] - 0.25}
	slices.Sort(back)
	require.Equal(t, []float64{-1.5, -1.25, -1, -0.75}, back, "a permutation of the teacher's logprobs")

	r.teacher = constantTeacher(func(id int32) float32 {
		if id == 4 {
			return float32(math.Inf(-1))
		}
		return -1
	})
	groups := taughtGroups(t)
	d, err = r.distill(t.Context(), groups, false, nil)
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{nil, nil}, {{-0.75}}}, d.advantages, "one impossible token fails its trajectory")
	require.Equal(t, "orchestrator: a: the teacher has no logprobs of it: its logprob of token 3 (4) of a sample is -Inf", groups[0].Trajectories[0].Err)
	require.Equal(t, trajectory.OriginTeacher, groups[0].Trajectories[0].ErrOrigin)
}

// With rollout.cut: filter the update leaves out what a token limit cut, and so does the divergence.
func TestDistillationFiltersWhatWasCut(t *testing.T) {
	r := &Distillation{RL: &RL{sampler: &rollout.Sampler{}}, teacher: constantTeacher(func(id int32) float32 { return -float32(id) / 4 })}
	groups := taughtGroups(t)
	cut := groups[0].Trajectories[0]
	cut.StopReason, cut.Turns = trajectory.StopMaxTokens, []trajectory.Turn{{FinishReason: trajectory.FinishLength}}
	d, err := r.distill(t.Context(), groups, true, nil)
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{nil, nil}, {{-1.25}}}, d.advantages)
	require.Equal(t, 1, d.tokens)
	require.Equal(t, 1.25, d.reverseKL)
	d, err = r.distill(t.Context(), groups, false, nil)
	require.NoError(t, err)
	require.Equal(t, 4, d.tokens)
}

// What no update trains has no advantages, is in no divergence, and fails nothing: a turn that was discarded, and a sample of a role that is frozen.
func TestDistillationOfWhatIsTrained(t *testing.T) {
	const planner trajectory.Role = "planner"
	r := &Distillation{
		RL:      &RL{job: &job.Job{}, sampler: &rollout.Sampler{Frozen: func(r trajectory.Role) bool { return r == planner }}},
		teacher: partialTeacher{constantTeacher(func(id int32) float32 { return -float32(id) / 4 }), 0, 10, -1},
	}
	s, plan := &trajectory.Sample{}, &trajectory.Sample{}
	var turns []trajectory.Turn
	say := func(k int, s *trajectory.Sample, role trajectory.Role, ids ...int32) {
		s.AppendObservation([]int32{1})
		from := s.Len()
		require.NoError(t, s.AppendResponse(ids, slices.Repeat([]float32{-0.5}, len(ids)), make([]int32, len(ids))))
		turns = append(turns, trajectory.Turn{Sample: k, CompletionStart: from, CompletionEnd: s.Len(), ObservationEnd: s.Len(), Role: role})
	}
	say(0, s, trajectory.RoleDiscarded, 8, 9)
	say(0, s, "", 3, 4)
	say(1, plan, planner, 7, 11) // the teacher has no token 11
	tr := &trajectory.Trajectory{ID: "a", Turns: turns, Samples: []*trajectory.Sample{s, plan}}
	idle := &trajectory.Trajectory{ID: "b", Turns: []trajectory.Turn{{CompletionStart: 1, CompletionEnd: 3, Role: planner}}, Samples: []*trajectory.Sample{plan}}
	r.found.Recording = recording{trained: []trajectory.Group{{Trajectories: []*trajectory.Trajectory{idle, tr}}}}
	b, err := r.Batch(t.Context(), At{})
	require.NoError(t, err)
	require.Empty(t, tr.Err)
	require.Equal(t, [][][]float64{{nil, {-0.25, -0.5}}}, b.Advantages)
	require.Equal(t, 0.375, *b.KL)
	for i, n := range []int{0, 2} {
		require.Equal(t, n, b.Groups[0].Trajectories[i].ResponseTokens())
	}
	require.Same(t, tr, b.Rollouts.Trained[0].Trajectories[1])
	require.Equal(t, 6, tr.ResponseTokens(), "what is reported has all turns")
}

// countingEngine answers as engines.Logprober says: [len(ids)-1].
type countingEngine struct{ short bool }

func (s countingEngine) Logprobs(_ context.Context, ids []int32) ([]float32, error) {
	out := make([]float32, len(ids)-1)
	for i := range out {
		out[i] = -float32(ids[i+1])
	}
	if s.short {
		out = out[1:]
	}
	return out, nil
}

var _ engines.Logprober = countingEngine{}

func TestARemoteTeacherHasLogprobsOfTheResponseTokens(t *testing.T) {
	var samples []*trajectory.Sample
	for _, g := range taughtGroups(t) {
		for _, tr := range g.Trajectories {
			samples = append(samples, tr.Samples...)
		}
	}
	got, _, err := remoteTeacher{engine: countingEngine{}}.Logprobs(t.Context(), samples)
	require.NoError(t, err)
	require.Equal(t, [][]float32{{0, 0, -3, -4, 0}, {0, -5, 0}, {0, -9, 0}, {0, -6, 0}}, got)
	_, _, err = remoteTeacher{engine: countingEngine{short: true}}.Logprobs(t.Context(), samples[:1])
	require.ErrorContains(t, err, "3 logprobs for 5 tokens")
}

// A teacher that is gone is waited for once, not once by every sample.
func TestTheFirstErrorOfATeacherEndsAll(t *testing.T) {
	var samples []*trajectory.Sample
	for range 3 * requestsAtOnce {
		samples = append(samples, &trajectory.Sample{TokenIDs: []int32{1, 2}, ResponseMask: []bool{false, true}})
	}
	gone := &goneEngine{}
	_, _, err := remoteTeacher{engine: gone}.Logprobs(t.Context(), samples)
	require.EqualError(t, err, "nobody answers")
	require.LessOrEqual(t, gone.asked.Load(), int64(requestsAtOnce)+1)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user said so"))
	_, _, err = remoteTeacher{engine: gone}.Logprobs(ctx, samples)
	require.EqualError(t, err, "the user said so")
}

// goneEngine fails once all its places are taken; who is not the first waits until nobody cares.
type goneEngine struct{ asked atomic.Int64 }

func (s *goneEngine) Logprobs(ctx context.Context, _ []int32) ([]float32, error) {
	if s.asked.Add(1) == requestsAtOnce {
		return nil, errors.New("nobody answers")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// partialTeacher takes less than the policy, and refuses one token for good.
type partialTeacher struct {
	constantTeacher
	tokens, ids int
	refuses     int32
}

func (t partialTeacher) Takes() (tokens, ids int) { return t.tokens, t.ids }

func (t partialTeacher) Logprobs(ctx context.Context, samples []*trajectory.Sample) ([][]float32, []error, error) {
	out, _, err := t.constantTeacher.Logprobs(ctx, samples)
	refused := make([]error, len(samples))
	for i, s := range samples {
		if t.tokens > 0 && s.Len() > t.tokens {
			return nil, nil, fmt.Errorf("%d tokens: %w", s.Len(), engines.ErrTooLong)
		}
		if slices.Contains(s.TokenIDs, t.refuses) {
			out[i], refused[i] = nil, fmt.Errorf("400: token %d: %w", t.refuses, engines.ErrRefused)
		}
	}
	return out, refused, err
}

// What a teacher can never have logprobs of leaves the update, whatever the reason, and the other trajectories are taught.
func TestATrajectoryWithoutTheTeachersLogprobsFails(t *testing.T) {
	one := constantTeacher(func(int32) float32 { return -1 })
	for want, teacher := range map[string]Teacher{
		"it has 5 tokens, the teacher takes 4":           partialTeacher{one, 4, 0, -1},
		"the teacher has no token 5, its ids end at 4":   partialTeacher{one, 0, 5, -1},
		"400: token 5: engines: the request was refused": partialTeacher{one, 0, 0, 5},
		"its logprob of token 2 (3) of a sample is NaN": constantTeacher(func(id int32) float32 {
			if id == 3 {
				return float32(math.NaN())
			}
			return -1
		}),
		"vllm: score: http://h: 400: no: engines: the request was refused": remoteTeacher{engine: refusing{5}},
	} {
		r := &Distillation{RL: &RL{sampler: &rollout.Sampler{}}, teacher: teacher}
		groups := taughtGroups(t)
		other := &trajectory.Sample{}
		other.AppendObservation([]int32{1})
		require.NoError(t, other.AppendResponse([]int32{2}, []float32{-0.5}, []int32{0}))
		groups[1].Trajectories[0].Samples = []*trajectory.Sample{other}
		d, err := r.distill(t.Context(), groups, false, nil)
		require.NoError(t, err, want)
		require.Equal(t, "orchestrator: a: the teacher has no logprobs of it: "+want, groups[0].Trajectories[0].Err)
		require.Equal(t, [][]float64{nil, nil}, d.advantages[0])
		require.Empty(t, groups[1].Trajectories[0].Err)
		require.Len(t, d.advantages[1][0], 1)
		require.Equal(t, 1, d.tokens)
	}
}

// refusing is a server that does not take a token.
type refusing struct{ id int32 }

func (s refusing) Logprobs(ctx context.Context, ids []int32) ([]float32, error) {
	if slices.Contains(ids, s.id) {
		return nil, fmt.Errorf("vllm: score: http://h: 400: no: %w", engines.ErrRefused)
	}
	return countingEngine{}.Logprobs(ctx, ids)
}

// servers are a teacher's.
type servers struct {
	refusing
	tokenize func(text string) ([]int32, error)
}

func (s servers) Tokenize(_ context.Context, text string) ([]int32, error) { return s.tokenize(text) }

// A teacher whose token ids mean something else is refused before anything is sampled.
func TestATeacherOfAnotherVocabularyIsRefused(t *testing.T) {
	tok, err := tokenizer.Load("../../examples/tiny/model_vllm")
	require.NoError(t, err)
	last := int32(tok.Size() - 1)
	same := func(text string) ([]int32, error) { return tok.Encode(text), nil }
	j, err := job.Parse("x.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\ndistill: {teacher: {urls: [http://h]}}\ndata: {train: a}\n"), job.Options{})
	require.NoError(t, err)
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	require.NotEmpty(t, sampleText(tok))
	require.NoError(t, checkTeacher(t.Context(), j, tok, servers{refusing{-1}, same}, note))
	require.Empty(t, notes)
	err = checkTeacher(t.Context(), j, tok, servers{refusing{last}, same}, note)
	require.ErrorContains(t, err, "distill.teacher.urls")
	require.ErrorContains(t, err, fmt.Sprintf("the teacher does not take token id %d, the last of the policy's tokenizer", last))
	err = checkTeacher(t.Context(), j, tok, servers{refusing{-1}, func(text string) ([]int32, error) { return tok.Encode(text)[1:], nil }}, note)
	require.ErrorContains(t, err, "a teacher must have the policy's tokenizer")
	require.NoError(t, checkTeacher(t.Context(), j, tok, servers{refusing{-1}, func(string) ([]int32, error) { return nil, errors.ErrUnsupported }}, note))
	require.Equal(t, []string{"the teacher's servers do not offer /tokenize, so that its tokenizer is the policy's is not checked"}, notes)
}

// Of a batch that a replay trains, what the teacher has no logprobs of is left out; of one that was just sampled it is an error.
func TestWhatATeacherRefusesOfAReplay(t *testing.T) {
	groups := taughtGroups(t)
	for _, tr := range groups[0].Trajectories {
		tr.Err, tr.ErrOrigin = "refused", trajectory.OriginTeacher
	}
	b := &schedule.Batch{Trained: groups, All: groups}
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	d := &Distillation{RL: &RL{job: &job.Job{Rollout: job.Rollout{MaxFailed: 0.5}}, found: Found{Recording: recording{}}}, note: note}
	require.NoError(t, d.refused(b), "the batch that the run went on with can be replayed")
	require.Equal(t, []string{"step 1: 2 recorded trajectories are left out: refused"}, notes)
	d.found.Recording = nil
	require.ErrorContains(t, d.refused(b), "more than rollout.max_failed")
}

// recording is a source of batches that train these groups.
type recording struct{ trained []trajectory.Group }

func (r recording) Batch(_ context.Context, step int, version int32) (*schedule.Batch, error) {
	return &schedule.Batch{Step: step, Version: version, All: r.trained, Trained: r.trained}, nil
}

// A step in which no token is compared is one of a distillation all the same: nothing is told of its rewards as what it learns from.
func TestADistillationOfNoToken(t *testing.T) {
	r := &Distillation{RL: &RL{job: &job.Job{}, sampler: &rollout.Sampler{}}, teacher: constantTeacher(func(int32) float32 { return -1 })}
	cut := func(id string) *trajectory.Trajectory {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1})
		require.NoError(t, s.AppendResponse([]int32{2, 3}, make([]float32, 2), make([]int32, 2)))
		turn := trajectory.Turn{CompletionStart: 1, CompletionEnd: 3, ObservationEnd: 3, Role: trajectory.RoleDiscarded}
		return &trajectory.Trajectory{ID: id, Turns: []trajectory.Turn{turn}, Samples: []*trajectory.Sample{s}}
	}
	r.found.Recording = recording{trained: []trajectory.Group{{Trajectories: []*trajectory.Trajectory{cut("a"), cut("b")}}}}
	b, err := r.Batch(t.Context(), At{})
	require.NoError(t, err)
	require.Nil(t, b.KL)
	step := r.Report(b, trainer.Metrics{FlatGroups: 1}, report.Facts{})
	require.NotContains(t, step.Map(), "distill/reverse_kl")
	findings := report.Findings{Job: &job.Job{Distill: &job.Distill{}}}
	require.Empty(t, findings.Step(b.Rollouts, step, report.Learned{}))
}
