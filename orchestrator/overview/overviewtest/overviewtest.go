// Package overviewtest writes run folders for tests of what reads them, without training. It does not read any.
package overviewtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// started is when a made run began, and its trajectories.
var started = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// Run is what a run folder is to hold.
type Run struct {
	Job         string // job.yaml; "": a small one
	Planned     int    // steps that its process counted; 0: it wrote none
	Steps       []map[string]float64
	Evaluations []Evaluation
	Train       []Sampled
	Now         *runfolder.Now
}

// Evaluation is one with the reward of each task, by id.
type Evaluation struct {
	Name      string
	Step      int
	Rewards   map[string]float64
	ReverseKL *float64 // of distillation
	Answer    string   // of its tasks: two evaluations have the same tasks where it is the same
	Cut       bool     // it was interrupted: there are trajectories, and no result
}

// Sampled is a trajectory of training.
type Sampled struct {
	Step, Group, Index int
	Reward             float64
	Turns              []trajectory.Turn
	Stop               trajectory.StopReason
	Err                string
}

// Job is job.yaml of so many steps.
func Job(name string, steps int) string {
	return fmt.Sprintf("version: 1\nname: %s\nmodel: {path: tiny}\nalgorithm: {advantage: grpo, loss: ppo_clip}\ntrainer: {steps: %d, learning_rate: 0.001}\n", name, steps)
}

// SFTJob is job.yaml of supervised fine-tuning over so many epochs, whose trainer.steps count for nothing; 0: they count.
func SFTJob(name string, epochs int) string {
	return fmt.Sprintf("version: 1\nname: %s\nmodel: {path: tiny}\nsft: {batch: 8, epochs: %d}\ntrainer: {steps: 100, learning_rate: 0.001}\n", name, epochs)
}

// Write writes a run folder.
func (r Run) Write(t testing.TB, dir string) {
	t.Helper()
	ctx := context.Background()
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{Trainer: job.Trainer{Steps: r.Planned}}, func(string) {}))
	require.NoError(t, f.DB.Begin(ctx, started, rand.Text()))
	for i, m := range r.Steps {
		require.NoError(t, f.DB.AddStep(ctx, i, m, nil))
	}
	for _, e := range r.Evaluations {
		sum, n := 0.0, 0
		for id, reward := range e.Rewards {
			phase := "eval-" + e.Name
			tr := &trajectory.Trajectory{ID: store.ID(phase, e.Step, n, 0), TaskID: id, Group: n, Step: e.Step, Reward: reward, StopReason: trajectory.StopAnswer, Started: started}
			require.NoError(t, f.DB.AddTrajectory(ctx, phase, trajectory.Task{ID: id, Fields: map[string]any{"answer": e.Answer}}, tr))
			sum, n = sum+reward, n+1
		}
		if e.Cut {
			continue
		}
		require.NoError(t, f.DB.AddEvaluation(ctx, e.Name, e.Step, report.Evaluation{Name: e.Name, Step: e.Step, Tasks: n, Reward: sum / float64(max(1, n)), ReverseKL: e.ReverseKL}))
	}
	for _, s := range r.Train {
		tr := &trajectory.Trajectory{ID: store.ID(store.Train, s.Step, s.Group, s.Index), TaskID: fmt.Sprint("task-", s.Group), Group: s.Group, Index: s.Index, Step: s.Step, Reward: s.Reward, Turns: s.Turns, StopReason: s.Stop, Started: started}
		if s.Err != "" {
			tr.Fail(trajectory.OriginEnvironment, s.Err)
		}
		sample := &trajectory.Sample{}
		sample.AppendObservation([]int32{1, 2, 3})
		for range s.Turns {
			require.NoError(t, sample.AppendResponse([]int32{4, 5}, []float32{-0.5, -1}, []int32{0, 0}))
		}
		for k := range tr.Turns {
			tr.Turns[k].CompletionStart, tr.Turns[k].CompletionEnd, tr.Turns[k].ObservationEnd = 3+2*k, 5+2*k, 5+2*k
		}
		tr.Samples = []*trajectory.Sample{sample}
		require.NoError(t, f.DB.AddTrajectory(ctx, store.Train, trajectory.Task{ID: tr.TaskID}, tr))
	}
	if r.Now != nil {
		require.NoError(t, f.WriteNow(*r.Now))
	}
	require.NoError(t, f.Close())
	text := r.Job
	if text == "" {
		text = Job(filepath.Base(dir), 10)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, runfolder.JobFile), []byte(text), 0o600))
}

// Steps are steps with these mean rewards, a second apart.
func Steps(rewards ...float64) (out []map[string]float64) {
	for i, r := range rewards {
		out = append(out, map[string]float64{"reward/mean": r, "seconds/step": 2, "seconds/elapsed": float64(2 * (i + 1)), "seconds/sample": 1.5, "seconds/train": 0.5})
	}
	return out
}
