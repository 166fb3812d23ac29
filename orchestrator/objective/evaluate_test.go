package objective

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// wobbly is an environment whose first reset fails.
type wobbly struct{ resets *atomic.Int64 }

func (w wobbly) Reset(context.Context, environments.Start) (environments.Observation, error) {
	if w.resets.Add(1) == 1 {
		return environments.Observation{}, errors.New("not yet")
	}
	return environments.Text("here"), nil
}

func (wobbly) Step(context.Context, environments.Action) (environments.Result, error) {
	return environments.Result{Terminated: true}, nil
}

func (wobbly) Close() error { return nil }

// A divergence from the teacher of no token is not one of 0, which would be the best that there is.
func TestADivergenceOfNothingIsAnError(t *testing.T) {
	sampler := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return engines.Completion{}, errors.New("gone") })
	o := &RL{job: &job.Job{Rollout: job.Rollout{GroupSize: 2, MaxFailed: 1}}, sampler: sampler, held: &data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("q", "1?", "1")}}}
	d := &Distillation{RL: o, teacher: constantTeacher(func(int32) float32 { return -1 })}
	require.ErrorContains(t, d.evaluateKL(t.Context(), &report.Evaluation{Name: "held"}), "orchestrator: evaluation held, divergence from the teacher: there is no token to compare: 2 of 2 trajectories failed, the first with: orchestrator: eval-held-kl-")

	// agent.roles may freeze all that was sampled: then the first trajectory need not have failed, nor any.
	frozen, failed := &trajectory.Trajectory{}, &trajectory.Trajectory{Err: "gone"}
	require.Equal(t, "1 of 2 trajectories failed, the first with: gone", whyNoToken([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{frozen, failed}}}))
	require.Equal(t, "none of the 1 trajectories has one that is trained", whyNoToken([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{frozen}}}))
}

// An evaluation that was cut off is done anew: its trajectories of before are not counted beside those of the new one, which may have fewer samples.
// Those of other evaluations stay.
func TestAnEvaluationThatWasCutOffLeavesNothing(t *testing.T) {
	db, err := store.Open(filepath.Join(t.TempDir(), store.File))
	require.NoError(t, err)
	sampler := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("<answer>1</answer>") })
	o := &RL{job: &job.Job{Eval: job.Eval{Samples: 4}}, sampler: sampler, held: &data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("q", "1?", "1")}}}
	o.found.DB = db
	evaluate := func(step int) {
		_, err := o.Evaluate(t.Context(), "held", step, false)
		require.NoError(t, err)
	}
	stored := func() map[int]int {
		out := map[int]int{}
		require.NoError(t, db.Reader.Scores(t.Context(), func(s store.Score) error {
			out[s.Step]++
			return nil
		}))
		return out
	}
	evaluate(2)
	evaluate(4)
	evaluate(6) // the process is killed before its result is stored
	require.Equal(t, map[int]int{2: 4, 4: 4, 6: 4}, stored())
	o.job.Eval.Samples = 1
	evaluate(6)
	require.Equal(t, map[int]int{2: 4, 4: 4, 6: 1}, stored())
	require.NoError(t, db.Close())
}

// Nothing is recorded of an evaluation while it goes on, so nothing is forgotten where its environment fails: not for the rewards, nor for the
// divergence from a teacher.
func TestEvaluationsForgetNothing(t *testing.T) {
	j := &job.Job{Rollout: job.Rollout{GroupSize: 1, MaxFailed: 1}}
	for name, evaluate := range map[string]func(o *RL) error{
		"rewards": func(o *RL) error {
			_, err := o.Evaluate(t.Context(), "held", 0, false)
			return err
		},
		"divergence": func(o *RL) error {
			d := &Distillation{RL: o, teacher: constantTeacher(func(int32) float32 { return -1 })}
			return d.evaluateKL(t.Context(), &report.Evaluation{Name: "held"})
		},
	} {
		var resets atomic.Int64
		source := environments.Simple(environments.Spec{}, func() environments.Environment { return wobbly{&resets} })
		m, err := environments.Open(source, nil, environments.Options{Kind: "wobbly", Pool: pool.Options{Size: 1}, StepTimeout: 5 * time.Second})
		require.NoError(t, err)
		sampler := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("<answer>1</answer>") })
		sampler.World = &rollout.World{Stage: environments.NewStage(m), Retries: 1, Forget: func(id string, why error) { t.Errorf("%s: %s is forgotten: %v", name, id, why) }}
		o := &RL{job: j, sampler: sampler, held: &data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("q", "1?", "1")}}}
		require.NoError(t, evaluate(o), name)
		require.EqualValues(t, 2, resets.Load(), name)
		require.NoError(t, m.Close())
	}
}
