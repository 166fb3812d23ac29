package orchestrator

import (
	"context"
	"errors"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/trajectory"
)

// Registries hold what job files name.
type Registries = session.Registries

// Validate checks a job and its data without opening the model. It starts the programs that the job names, imports its Python files and asks
// its services what they offer.
func Validate(ctx context.Context, j *job.Job, r Registries) error {
	s := session.New(j)
	defer s.Close() // what it opened was only looked at
	_, err := s.Check(ctx, r)
	return err
}

// Look checks of a job and its data what can be checked without running or asking anything that the job names. notRun is that, which Validate
// runs.
func Look(ctx context.Context, j *job.Job, r Registries) (notRun []string, err error) {
	s := session.NewLook(j)
	defer s.Close()
	_, err = s.Check(ctx, r)
	return s.NotRun(), err
}

// Evaluate evaluates the job's held-out tasks with the model at path; "" is the job's own.
func Evaluate(ctx context.Context, j *job.Job, path string, toolsOff bool, r Registries) (e report.Evaluation, err error) {
	if err := job.Evaluable(j); err != nil {
		return e, err
	}
	s := session.New(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Equip(ctx, r); err != nil {
		return e, err
	}
	_, tasks, _, err := data.Read(j, s.OwnTasks())
	if err != nil {
		return e, err
	}
	if err := s.Start(ctx, path, toolsOff); err != nil {
		return e, err
	}
	sampler := s.Sampler
	sampler.ToolsOff = toolsOff || j.Control.ToolsOff
	return objective.Evaluate(ctx, sampler, nil, "eval", 0, tasks.Tasks, j)
}

// Sample rolls out the tasks of the first steps of a job and hands each trajectory over as it ends, one at a time. Nothing is trained.
func Sample(ctx context.Context, j *job.Job, path string, steps int, r Registries, f func(*trajectory.Trajectory) error) (err error) {
	if err := job.Samplable(j); err != nil {
		return err
	}
	s := session.New(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Equip(ctx, r); err != nil {
		return err
	}
	_, _, deal, err := data.Read(j, s.OwnTasks())
	if err != nil {
		return err
	}
	if err := s.Start(ctx, path, false); err != nil {
		return err
	}
	var one sync.Mutex
	var failed error
	for step := range steps {
		_, _ = s.Sampler.Groups(ctx, "rollout", step, deal.Tasks(step, j.Rollout.Groups), j.Rollout.GroupSize, func(t *trajectory.Trajectory) error {
			one.Lock()
			defer one.Unlock()
			if failed == nil {
				failed = rollout.Fatal(t)
			}
			if failed == nil { // nothing is handed over after an error
				failed = f(t)
			}
			return nil
		})
		if err := errors.Join(failed, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}
