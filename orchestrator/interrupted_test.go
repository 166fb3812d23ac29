package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// cutOff changes the weights, is told to stop, and fails then, as an update whose server went with the same signal.
type cutOff struct {
	*slowTrainer
	stop context.CancelFunc
}

func (c cutOff) Step(ctx context.Context, b trainer.Batch) (trainer.Metrics, error) {
	m, err := c.slowTrainer.Step(ctx, b)
	if err == nil && b.Step == 1 {
		c.stop()
		err = errors.New("the server is gone")
	}
	return m, err
}

// A checkpoint that was saved then would hold the weights after the step and say that they are those before it.
func TestAnUpdateThatFailsWhileTheRunIsInterruptedIsNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.trainer = cutOff{trainer, cancel}
		err := r.training().loop(ctx)
		require.EqualError(t, err, "orchestrator: interrupted while step 2 was updated, which failed, so nothing is saved; --resume goes on at the last checkpoint and the log: the server is gone")
		require.NotErrorIs(t, err, ErrInterrupted)
		require.Equal(t, 1, r.state.Step)
		require.NoDirExists(t, filepath.Join(r.folder.Dir, "checkpoints"))
	})
}

// A signal while a run that goes on loads its model or waits for its server loses nothing: whoever started it may do so again.
func TestARunThatIsInterruptedBeforeItGoesOnIsResumable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	j, err := job.Load("../examples/tiny.yaml", "output="+dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
	require.NoError(t, r.Tools.Register(calculator.New()))
	_, err = Train(ctx, j, r, Options{Resume: true, Out: io.Discard})
	require.ErrorIs(t, err, ErrInterrupted)
	require.NotContains(t, err.Error(), "\n")
}

// A run that was killed before it recorded anything goes on as a new one of this program, also where the store has no number of its program yet. What
// is recorded without a number is an older program's.
func TestARunThatRecordedNothingIsNoOlderPrograms(t *testing.T) {
	for steps, older := range map[int]bool{0: false, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			killed, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, steps)
			require.NoError(t, killed.training().steps(t.Context()))
			killed.objective.Stop()
			again, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 2)
			again.options.Resume = true
			continueAs(t, killed, again, checkpoint.State{Version: 7})
			require.Equal(t, older, again.session.Sampler.Restart != nil)
			fact, err := again.folder.DB.Reader.Fact(recovery.RulesFact)
			require.NoError(t, err)
			changed, err := recovery.RulesSince(fact)
			require.NoError(t, err)
			require.Equal(t, older, changed != "", fact)
		})
	}
}

// A signal in the middle of an evaluation beside training: the run goes on with that evaluation, not after it.
func TestAnEvaluationThatWasCutOffIsDoneWhenTheRunGoesOn(t *testing.T) {
	for _, mode := range []job.Rollout{{Mode: "sync"}, {Mode: "async", MaxStaleness: 2}} {
		synctest.Test(t, func(t *testing.T) {
			a := algorithms.Config{}
			if mode.Mode == "async" {
				a = corrected
			}
			held := &data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("held0", "held0?", "1"), rollouttest.Task("held1", "held1?", "1")}}
			evaluating := func(r *run) {
				r.session.Job.Eval = job.Eval{Every: 2}
				evaluates(r, held)
			}
			r, _ := napping(t, mode, a, 6)
			evaluating(r)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.session.Sampler.Engine = rollouttest.OnRequest(r.session.Sampler.Engine, func(q engines.Request) {
				if strings.HasPrefix(q.ID, "eval-step-4-") {
					cancel()
				}
			})
			require.ErrorIs(t, r.training().steps(ctx), context.Canceled)
			r.objective.Stop()
			require.Equal(t, 4, r.state.Step)
			require.Equal(t, []string{"before", "step-2"}, namesOf(r.state.Evaluations))
			at := r.state
			at.Evaluations = slices.Clone(at.Evaluations)
			require.NoError(t, r.folder.DB.Close())
			require.NoError(t, r.folder.Metrics.Close())

			r, trainer := goOn(t, r, at, mode, a, 6)
			evaluating(r)
			require.NoError(t, r.training().steps(t.Context()))
			r.objective.Stop()
			require.Equal(t, []string{"before", "step-2", "step-4", "after"}, namesOf(r.state.Evaluations))
			require.Len(t, trainer.batches, 2)
			evaluated := map[string]int{}
			for _, q := range r.session.Weights.Engine().(*scripted.Engine).Requests() {
				if strings.HasPrefix(q.ID, "eval-") {
					evaluated[strings.Join(strings.Split(q.ID, "-")[:4], "-")]++
				}
			}
			require.NotContains(t, evaluated, "eval-before-0-0", "what was done is not done again")
			require.Contains(t, evaluated, "eval-step-4-4")
			data, err := os.ReadFile(filepath.Join(r.folder.Dir, "metrics.jsonl"))
			require.NoError(t, err)
			require.Equal(t, 4, strings.Count(string(data), `"eval":`))
			for _, b := range trainer.batches {
				for _, g := range b.Groups {
					require.True(t, strings.HasPrefix(g.Task.ID, "q"), "an evaluation task is not trained on")
				}
			}
		})
	}
}

// Steps that no log holds, as those of supervised fine-tuning, are trained anew, perhaps with other settings: their evaluations are done anew too.
func TestEvaluationsOfStepsThatAreTrainedAnewAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 6)
		defer r.objective.Stop()
		var all report.Evaluations
		for step, name := range []string{"before", "step-1", "step-2", "step-3"} {
			e := report.Evaluation{Name: name, Step: step, Reward: float64(step)}
			require.NoError(t, r.folder.DB.AddEvaluation(t.Context(), name, step, e))
			require.NoError(t, r.folder.Log(map[string]any{"step": step, "eval": e}))
			all = append(all, e)
		}
		for step := range 3 {
			require.NoError(t, r.folder.DB.AddStep(t.Context(), step, map[string]float64{"sft/loss": 1}, nil))
			require.NoError(t, r.folder.Log(map[string]any{"step": step + 1, "sft/loss": 1}))
		}
		r.state.Step, r.state.Evaluations = 1, all[:3] // of a program that had taken step-2 over before it saved
		require.NoError(t, r.recover(t.Context()))
		require.Equal(t, []string{"before", "step-1"}, namesOf(r.state.Evaluations))
		require.Equal(t, &report.Best{Name: "step-1", Step: 1, Score: 1}, r.state.Evaluations.Best(3))
		stored, err := r.folder.DB.Reader.Evaluations()
		require.NoError(t, err)
		require.Len(t, stored, 2)
		data, err := os.ReadFile(r.folder.MetricsFile())
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(data), "\n"), string(data))
	})
}

// When a run began is stored once. Of a run that an older program began it is not known.
func TestWhenARunBegan(t *testing.T) {
	for _, older := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 6)
			defer r.objective.Stop()
			want := time.Now()
			if older {
				want = time.Time{}
				require.NoError(t, r.folder.DB.AddStep(t.Context(), 0, map[string]float64{"sft/loss": 1}, nil))
				r.state.Step = 1
			}
			for range 2 {
				require.NoError(t, r.recover(t.Context()))
				began, err := r.folder.DB.Reader.Began(t.Context())
				require.NoError(t, err)
				require.True(t, want.Equal(began), began)
				time.Sleep(time.Hour)
			}
		})
	}
}

func namesOf(all report.Evaluations) (names []string) {
	for _, e := range all {
		names = append(names, e.Name)
	}
	return names
}

// The store gives evaluations of one step in the order of their names.
func TestStopAfterDoesNotDependOnTheOrderOfEvaluations(t *testing.T) {
	r := evaluatedRun(2, 0.5, 0.4, 0.3)
	require.True(t, r.training().stalled())
	r.state.Evaluations = slices.Insert(r.state.Evaluations, 2, report.Evaluation{Name: "after", Step: 20, Reward: 0.9})
	require.Equal(t, []string{"step-0", "step-10", "after", "step-20"}, namesOf(r.state.Evaluations))
	require.True(t, r.training().stalled(), "the evaluation of the end does not undo the end")
}

// A process that ended after it saved the best checkpoint and before it pointed to it leaves that to the next one.
func TestTheBestCheckpointIsPointedToWhenTheRunGoesOn(t *testing.T) {
	r := evaluatedRun(0, 0.5, 0.4, 0.7)
	r.folder.Dir, r.session.Job.Checkpoint.Best, r.session.Job.Checkpoint.Keep = t.TempDir(), true, 1
	r.objective = objective.NewRL(nil, nil, nil, nil, &data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("a", "a?", "1")}})
	for _, name := range []string{"step-0", "step-20"} {
		require.NoError(t, os.MkdirAll(filepath.Join(r.folder.Dir, "checkpoints", name), 0o755))
	}
	require.NoError(t, os.Symlink("step-0", filepath.Join(r.folder.Checkpoints(), checkpoint.Best)))
	require.NoError(t, os.Symlink("step-20", filepath.Join(r.folder.Checkpoints(), checkpoint.Last)))
	require.Equal(t, 20, r.state.Step)
	require.NoError(t, r.training().evaluateStep(t.Context()))
	require.Equal(t, "step-20", r.training().checkpoints.folder.Target(checkpoint.Best))
	require.NoDirExists(t, filepath.Join(r.folder.Dir, "checkpoints", "step-0"))
}

// A run that ended with its best evaluation and goes on keeps that checkpoint.
func TestTheBestCheckpointOfAnEarlierEndStays(t *testing.T) {
	r := evaluatedRun(0, 0.1, 0.3)
	r.folder.Dir, r.session.Job.Checkpoint.Best, r.session.Job.Checkpoint.Keep = t.TempDir(), true, 2
	r.state.Evaluations.Put(report.Evaluation{Name: "after", Step: 20, Reward: 0.9})
	r.state.Evaluations.Put(report.Evaluation{Name: "step-30", Step: 30, Reward: 0.5})
	r.state.Evaluations.Put(report.Evaluation{Name: "after", Step: 40, Reward: 0.6})
	r.state.Step = 40
	for _, name := range []string{"step-20", "step-30", "step-40"} {
		require.NoError(t, os.MkdirAll(filepath.Join(r.folder.Checkpoints(), name), 0o755))
	}
	require.NoError(t, os.Symlink("step-20", filepath.Join(r.folder.Checkpoints(), checkpoint.Best)))
	require.NoError(t, os.Symlink("step-40", filepath.Join(r.folder.Checkpoints(), checkpoint.Last)))
	require.NoError(t, r.training().checkpoints.keepBest(r.training().saved()))
	require.Equal(t, "step-20", r.training().checkpoints.folder.Target(checkpoint.Best))
	require.DirExists(t, filepath.Join(r.folder.Checkpoints(), "step-20"))
	require.Equal(t, &report.Best{Name: "after", Step: 20, Score: 0.9}, r.training().summary().Best)
}

// A step that is trained again is told and counted as it was when it was first done: its line of metrics.jsonl stands already.
func TestAStepThatIsTrainedAgainIsCountedAsItWasRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := job.Rollout{Mode: "sync"}
		r, _ := napping(t, settings, algorithms.Config{}, 2)
		require.NoError(t, r.training().step(t.Context()))
		at := r.state
		at.Rewards = slices.Clone(at.Rewards)
		require.NoError(t, r.training().step(t.Context()))
		r.objective.Stop()
		steps, err := r.folder.DB.Reader.Steps()
		require.NoError(t, err)
		was := steps[1]
		was["reward/mean"], was["tokens/unpacked"], was["seconds/step"] = 0.125, 77, 1000
		require.NoError(t, r.folder.DB.AddStep(t.Context(), 1, was, nil))
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())

		r, _ = goOn(t, r, at, settings, algorithms.Config{}, 2)
		var out bytes.Buffer
		r.options.Out = &out
		require.NoError(t, r.training().step(t.Context()))
		require.Equal(t, []float64{at.Rewards[0], 0.125}, r.state.Rewards)
		require.InDelta(t, at.TrainTokens+77, r.state.TrainTokens, 0)
		require.Regexp(t, `(?m)^step   2/2   reward 0\.125 .* 1000\.0 s  left 0s$`, out.String())
		require.Contains(t, out.String(), "reward/mean is 0.5 where it was 0.125: this device, the job's settings,")
		require.Contains(t, out.String(), "bit for bit; evaluations after it that were recorded then stay")
		steps, err = r.folder.DB.Reader.Steps()
		require.NoError(t, err)
		require.Equal(t, was, steps[1])
	})
}
