package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// shortTeacher takes sequences of so many tokens, and finds every token equally likely.
type shortTeacher struct{ tokens int }

func (t shortTeacher) Takes() (tokens, ids int) { return t.tokens, 0 }

func (t shortTeacher) Logprobs(_ context.Context, samples []*trajectory.Sample) ([][]float32, []error, error) {
	out := make([][]float32, len(samples))
	for i, s := range samples {
		out[i] = make([]float32, s.Len())
		for k, on := range s.ResponseMask {
			if on {
				out[i][k] = -1
			}
		}
	}
	return out, nil, nil
}

func (shortTeacher) Close() error { return nil }

// A run whose teacher takes less than the policy samples no longer than that. With a batch that an earlier process recorded and
// the teacher of now has no logprobs of, the run goes on; with one that was sampled just now it stops, and is not blocked by it.
func TestARunIsNotBlockedByItsTeacher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 2)
		r.session.Sampler.MaxTotal = 1000
		note := objective.LimitToTeacher(shortTeacher{tokens: 400}, &r.session.Sampler)
		require.Equal(t, 400, r.session.Sampler.MaxTotal)
		require.Equal(t, "the teacher takes 400 tokens, so trajectories end there and not at 1000 (rollout.max_tokens, or the policy's context)", note)

		d := objective.NewDistillation(rlOf(r), shortTeacher{tokens: 3}, r.session.Notes.Note) // another one, since the start
		r.objective = d
		err := r.training().step(t.Context())
		require.ErrorContains(t, err, "orchestrator: step 1: ")
		require.ErrorContains(t, err, "trajectories failed, more than rollout.max_failed (0.9); the first: teacher: orchestrator: train-0-0-0: the teacher has no logprobs of it: it has ")
		require.Empty(t, trainer.batches)

		log, err := r.folder.DB.Recover(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, log.Batches, 1, "it was recorded before it was scored")
		r.recovered, err = recovery.Read(log, r.folder, &r.state, r.dealer, false)
		require.NoError(t, err)
		d.Prepare(r.found())
		require.NoError(t, r.training().step(t.Context()), "the run goes on")
		require.Equal(t, 1, r.state.Step)
		require.Len(t, trainer.batches, 1)
		for _, g := range trainer.batches[0].Groups {
			for _, tr := range g.Trajectories {
				require.Equal(t, trajectory.OriginTeacher, tr.ErrOrigin)
			}
		}
	})
}

// A distillation without rewards has none: nothing of it is a reward of 0.
func TestADistillationWithoutRewardsHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 2)
		r.session.Sampler.Reward, r.session.Sampler.Cut = nil, rollout.CutZero
		r.session.Job.Distill, r.session.Job.Eval = &job.Distill{}, job.Eval{Every: 1, Samples: 2, Temperature: 1, By: "source"}
		evaluates(r, &data.Tasks{Tasks: []trajectory.Task{held("held0", "held0?", "web"), held("held1", "held1?", "book")}})
		r.objective = objective.NewDistillation(rlOf(r), shortTeacher{}, r.session.Notes.Note)
		r.objective.Prepare(r.found())
		run := r.training()
		require.NoError(t, run.evaluate(t.Context(), "before", false))
		require.NoError(t, run.steps(t.Context()))
		r.objective.Stop()
		require.NoError(t, run.evaluate(t.Context(), "after", false))

		text, err := os.ReadFile(filepath.Join(r.folder.Dir, "metrics.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(text), `"reverse_kl"`)
		require.NotRegexp(t, `"reward(/[a-z]+)?":`, string(text))
		trained := 0
		require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, func(one store.Record) error {
			require.False(t, one.Trajectory.Scored(), one.Trajectory.ID)
			trained++
			return nil
		}))
		require.Equal(t, 2*3*4+3*2*2, trained)
		require.NotZero(t, r.state.Finished)

		require.NoError(t, os.WriteFile(filepath.Join(r.folder.Dir, runfolder.JobFile), []byte("version: 1\nname: x\ndistill: {teacher: {path: m}}\n"), 0o600))
		_, curves, err := overview.ReadCurves(r.folder.Dir)
		require.NoError(t, err)
		require.Contains(t, curves, "eval/reverse_kl")
		require.Contains(t, curves, "eval/accuracy")
		require.NotContains(t, curves, "eval/reward")
		require.NotContains(t, curves, "reward/mean")
		compared, err := overview.Compare(t.Context(), []string{r.folder.Dir, r.folder.Dir})
		require.NoError(t, err)
		require.Empty(t, compared.Tasks)

		s := run.summary()
		require.NoError(t, run.advise(t.Context(), &s))
		require.Empty(t, s.Tasks)
		require.Empty(t, s.Reward)
		var said []string
		s.Print(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }, "d", "job.yaml", "last", "", true)
		require.NotRegexp(t, "reward|held-out tasks", strings.Join(said, "\n"))
		require.Contains(t, strings.Join(said, "\n"), "held-out KL")
	})
}
