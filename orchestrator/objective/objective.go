package objective

import (
	"context"
	"time"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// Objective is what a run learns from and by: rewards of rollouts, recorded conversations, or a teacher. Its methods are called by one
// goroutine, in the order Prepare, then for each step Batch, Trained and Report, with Evaluate between steps, and at last Stop and Close;
// Groups by any goroutine at any time.
type Objective interface {
	// Prepare takes what the run has once its folder is open and its log is read.
	Prepare(f Found)
	// Batch is what the step trains. It is recorded before it is returned: a run that goes on trains the same again.
	Batch(ctx context.Context, at At) (*Batch, error)
	// Trained says that the batch is trained, or skipped, and which policy version samples from now on. More: the run has a further step.
	Trained(ctx context.Context, version int32, more bool)
	// Report is the record of a step that trained the batch; facts are what the run knows of it.
	Report(b *Batch, m trainer.Metrics, facts report.Facts) report.Step
	// Stop ends what is being sampled for later steps.
	Stop()
	// Evaluates tells whether there is anything held out; Evaluate evaluates it.
	Evaluates() bool
	Evaluate(ctx context.Context, name string, step int, toolsOff bool) (report.Evaluation, error)
	// Groups are those outstanding; nil: there are none before the first step, and in supervised fine-tuning.
	Groups() *schedule.Groups
	// String says what a step takes, for the run's first line.
	String() string
	Close() error
}

// At is where a run stands when it asks for a batch.
type At struct {
	Step    int
	Version int32 // of the policy
	Dealt   []int // the position in the data, see Batch.Dealt
}

// Found is what a run has for its objective: its store, a trainer that scores, and what a process before it recorded.
type Found struct {
	DB        *store.Store
	Scorer    Scorer
	Batches   map[int]store.Batch // by step: they are trained again as they were recorded
	Groups    schedule.Recovered  // those that go on
	Recording Source              // in place of rollouts: what a replay samples again; nil: none
}

// Scorer computes the policy's logprobs.
type Scorer interface {
	Logprobs(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]trainer.SampleLogprobs, error)
}

// Source hands out the batches of steps.
type Source interface {
	Batch(ctx context.Context, step int, version int32) (*schedule.Batch, error)
}

// Batch is what a step trains.
type Batch struct {
	trainer.Batch
	Dealt    []int           // tasks that each stratum of the data has dealt, or in supervised fine-tuning conversations, with this step's
	Rollouts *schedule.Batch // nil in supervised fine-tuning
	Rewards  []float64       // of all trajectories that finished, as they were before a control shuffled them
	Finished int             // trajectories
	Waited   time.Duration   // for rollouts, those of a process before this one included
	Before   time.Duration   // of Waited, by a process before this one
	KL       *float64        // reverse KL from the teacher, in distillation; nil: there is no token to compare
}
