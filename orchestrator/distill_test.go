package orchestrator

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// constantTeacher gives every response token a logprob by its id.
type constantTeacher func(id int32) float32

func (f constantTeacher) score(_ context.Context, samples []*trajectory.Sample) ([][]float32, error) {
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
	return out, nil
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
	r := &run{session: &session{teacher: constantTeacher(func(id int32) float32 { return -float32(id) / 4 })}}
	d, err := r.distill(t.Context(), taughtGroups(t), nil)
	require.NoError(t, err)
	// teacher -0.75, -1, -1.25 | -1.5; sampling -0.5, -1, -2 | -0.25
	require.Equal(t, [][][]float64{{{-0.25, 0, 0.75}, nil}, {{-1.25}}}, d.advantages)
	require.Equal(t, 4, d.tokens)
	require.Equal(t, (0.25+0-0.75+1.25)/4, d.reverseKL)

	shuffled, err := r.distill(t.Context(), taughtGroups(t), rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	require.NotEqual(t, d.advantages, shuffled.advantages)
	require.Equal(t, d.reverseKL, shuffled.reverseKL, "the report is of the true scores")
	back := []float64{shuffled.advantages[0][0][0] - 0.5, shuffled.advantages[0][0][1] - 1, shuffled.advantages[0][0][2] - 2, shuffled.advantages[1][0][0] - 0.25}
	slices.Sort(back)
	require.Equal(t, []float64{-1.5, -1.25, -1, -0.75}, back, "a permutation of the teacher's scores")

	r.teacher = constantTeacher(func(int32) float32 { return float32(math.Inf(-1)) })
	_, err = r.distill(t.Context(), taughtGroups(t), nil)
	require.EqualError(t, err, "orchestrator: distill.teacher: its logprob of token 2 (3) of a sample is -Inf")
}

// scorer answers as engines.Scorer says: [len(ids)-1].
type scorer struct{ short bool }

func (s scorer) Score(_ context.Context, ids []int32) ([]float32, error) {
	out := make([]float32, len(ids)-1)
	for i := range out {
		out[i] = -float32(ids[i+1])
	}
	if s.short {
		out = out[1:]
	}
	return out, nil
}

var _ engines.Scorer = scorer{}

func TestARemoteTeacherScoresTheResponseTokens(t *testing.T) {
	var samples []*trajectory.Sample
	for _, g := range taughtGroups(t) {
		for _, tr := range g.Trajectories {
			samples = append(samples, tr.Samples...)
		}
	}
	got, err := remoteTeacher{scorer{}, nil}.score(t.Context(), samples)
	require.NoError(t, err)
	require.Equal(t, [][]float32{{0, 0, -3, -4, 0}, {0, -5, 0}, {0, -9, 0}, {0, -6, 0}}, got)
	_, err = remoteTeacher{scorer{short: true}, nil}.score(t.Context(), samples[:1])
	require.ErrorContains(t, err, "3 logprobs for 5 tokens")
}

// A teacher that is gone is waited for once, not once by every sample.
func TestTheFirstErrorOfATeacherEndsAll(t *testing.T) {
	var samples []*trajectory.Sample
	for range 3 * scorersAtOnce {
		samples = append(samples, &trajectory.Sample{TokenIDs: []int32{1, 2}, ResponseMask: []bool{false, true}})
	}
	gone := &goneScorer{}
	_, err := remoteTeacher{gone, nil}.score(t.Context(), samples)
	require.EqualError(t, err, "nobody answers")
	require.LessOrEqual(t, gone.asked.Load(), int64(scorersAtOnce)+1)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user said so"))
	_, err = remoteTeacher{gone, nil}.score(ctx, samples)
	require.EqualError(t, err, "the user said so")
}

// goneScorer fails once all its places are taken; who is not the first waits until nobody cares.
type goneScorer struct{ asked atomic.Int64 }

func (s *goneScorer) Score(ctx context.Context, _ []int32) ([]float32, error) {
	if s.asked.Add(1) == scorersAtOnce {
		return nil, errors.New("nobody answers")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestJobsOfDistillation(t *testing.T) {
	head := "version: 1\nname: x\nmodel: {path: m}\n"
	for name, c := range map[string]struct{ text, want string }{
		"no teacher":  {"distill: {}\ndata: {train: a}", "x.yaml:4:10: distill.teacher: exactly one of path and urls is needed"},
		"two":         {"distill: {teacher: {path: a, urls: [b]}}", "distill.teacher: exactly one of path and urls is needed"},
		"and sft":     {"distill: {teacher: {path: a}}\nsft: {}", "x.yaml:4:10: distill: a job has one of sft and distill"},
		"nobody":      {"rewards: [final_answer]\ncontrol: {shuffle_teacher: true}", "x.yaml:5:28: control.shuffle_teacher: there is no teacher without a block distill"},
		"unknown key": {"distill: {teacher: {model: a}}", `unknown key "model" in distill.teacher; allowed: path, urls, served_model, api_key`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"temperature": {"rollout: {temperature: 0.5}", "x.yaml:6:24: rollout.temperature: 0.5: distill compares the distributions of policy and teacher at temperature 1; leave it out"},
		"rewards":     {"control: {shuffle_rewards: true}", "x.yaml:6:28: control.shuffle_rewards: distill does not train on rewards; use shuffle_teacher"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\n"+c.text+"\n"), job.Options{})
			require.NoError(t, err)
			require.EqualError(t, j.TrainingErrors(), c.want)
		})
	}
	for _, block := range []string{"advantage: grpo", "dynamic_sampling: true", "overlong: {buffer: 2, penalty: 1}", "kl: {coefficient: 1, in: reward}"} {
		j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\nalgorithm: {"+block+"}\n"), job.Options{})
		require.NoError(t, err)
		_, err = Algorithm(j, prebuilt(t))
		require.ErrorContains(t, err, "the job has a block distill, whose advantage is the teacher's logprob minus the policy's; leave this out")
	}
	j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\nalgorithm: {loss: reinforce}\n"), job.Options{})
	require.NoError(t, err)
	a, err := Algorithm(j, prebuilt(t))
	require.NoError(t, err)
	require.Contains(t, a.Describe(), "A_t = log p_teacher(t) - log p_sampling(t)")
}
