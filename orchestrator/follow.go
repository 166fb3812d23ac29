package orchestrator

import (
	"context"
	"errors"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/session"
)

// follow is a training run on a rank other than 0.
func follow(ctx context.Context, j *job.Job, a *algorithms.Algorithm, r *processes.Group, o Options) (err error) {
	if err := r.Join(ctx, o.launch()); err != nil {
		return err
	}
	s := session.New(j)
	defer func() {
		if err != nil {
			r.Fail(err)
		}
		err = errors.Join(err, s.Close(), r.Leave())
	}()
	if err := s.OpenPolicy(""); err != nil {
		return err
	}
	trainer, err := s.Trainer(a, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trainer.Close()) }()
	// An interruption reaches every process: rank 0 decides when the run ends.
	return trainer.Follow(context.WithoutCancel(ctx))
}
