package session

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// inProcess is the size of a pool of environments that live in this process, where the job names none: they cost memory alone.
const inProcess = 4096

// world is the job's environment with its pool.
type world struct {
	manager *environments.Manager
	stage   *environments.Stage
	tasks   map[string][]trajectory.Task // of its own, by split: making them may take long
}

// EnvironmentStats are the numbers of the job's environments; false: it has none.
func (s *Session) EnvironmentStats() (environments.Stats, bool) {
	if s.world == nil {
		return environments.Stats{}, false
	}
	return s.world.manager.Stats(), true
}

// makeWorld makes the job's environment; nil: it has none, or the session only looks and the environment cannot be made without running
// something.
func (s *Session) makeWorld(ctx context.Context, all *environments.Registry) (*world, error) {
	e := s.Job.Environment
	if e == nil {
		return nil, nil
	}
	if err := all.Check(e.Kind); err != nil {
		return nil, s.Job.Fail("environment.kind", "%s", job.Plain(err, "environments: "))
	}
	source, err := all.Make(ctx, s.resources, e.Kind, e.Params)
	if notRun(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.Job.Fail("environment", "%s", job.Plain(err, "environments: "))
	}
	size := cmp.Or(e.Pool.Size, runtime.NumCPU())
	if e.Pool.Size == 0 && source.Spec().InProcess {
		size = inProcess
	}
	warm := e.Pool.Warm
	if s.look {
		warm = 0
	}
	m, err := environments.Open(source, s.resources.Pools(), environments.Options{
		Kind: e.Kind, Owner: s.Job.Name, ResetTimeout: job.Seconds(e.ResetTimeout), StepTimeout: job.Seconds(e.StepTimeout), Note: s.Notes.Note,
		Pool: pool.Options{
			Size: size, Warm: warm, MakeTime: max(time.Minute, job.Seconds(e.ResetTimeout)), Lease: job.Seconds(e.Pool.Lease),
			Age: job.Seconds(e.Pool.Age), Uses: e.Pool.Uses, Memory: int64(e.Pool.Memory) << 20, Breaker: e.Pool.Breaker,
		},
	})
	if err != nil {
		return nil, s.Job.Fail("environment", "%s", job.Plain(err, "environments: "))
	}
	return &world{manager: m, stage: environments.NewStage(m), tasks: map[string][]trajectory.Task{}}, nil
}

// Pools are the pools of all that the job lends to trajectories, as they are now: its environments, and what its tools keep ready.
func (s *Session) Pools() []pool.Stats { return s.resources.Pools().All() }

// OwnTasks are the tasks that the job's environment has of its own; nil: there is none, or it has none.
func (s *Session) OwnTasks() data.Own {
	if s.world == nil {
		return nil
	}
	own, ok := s.world.manager.Source().(environments.Tasker)
	if !ok {
		return nil
	}
	return func(split string, n int) (tasks []trajectory.Task, err error) {
		if tasks = s.world.tasks[split]; len(tasks) == n {
			return tasks, nil
		}
		tasks, err = own.Tasks(split, n)
		if err == nil && len(tasks) != n {
			err = fmt.Errorf("%s gave %d tasks of %d", s.Job.Environment.Kind, len(tasks), n)
		}
		s.world.tasks[split] = tasks
		return tasks, err
	}
}

// actions registers the environment's actions beside the job's tools.
func (w *world) actions(chosen *tools.Registry, limit time.Duration) error {
	if w == nil {
		return nil
	}
	for _, t := range w.stage.Tools() {
		if err := chosen.RegisterAs(t, tools.Ref{Limits: tools.Limits{Timeout: limit}}); err != nil {
			return err
		}
	}
	return nil
}

// lend gives a tool the environment that it names.
func (w *world) lend(j *job.Job, t tools.Tool) (tools.Tool, error) {
	switch kind := t.Spec().Environment; {
	case kind == "":
		return t, nil
	case j.Environment == nil:
		return nil, fmt.Errorf("the tool %s acts in an environment of kind %q, and the job has none; write environment: {kind: %s}", t.Spec().Name, kind, kind)
	case j.Environment.Kind != kind:
		return nil, fmt.Errorf("the tool %s acts in an environment of kind %q, and the job's is of kind %q; name that one in the decorator, or leave the tool out", t.Spec().Name, kind, j.Environment.Kind)
	case w == nil: // the job is only looked at
		return t, nil
	}
	return w.stage.Lend(t), nil
}

// leeway is what a call of an action has beyond the environment's own deadlines, of the step and of its state, which say more of what went wrong.
const leeway = 5 * time.Second

// systemOf is the system prompt of the job's agent: the job's own words, then what the environment says of itself.
func (s *Session) systemOf() string {
	system := s.Job.Agent.System
	if s.world == nil || !s.Job.Environment.Instructions {
		return system
	}
	if own := s.world.stage.Spec().Instructions; own != "" {
		if system != "" {
			system += "\n\n"
		}
		system += own
	}
	return system
}

// sampled is what the sampler knows of the environment.
func (s *Session) sampled() *rollout.World {
	if s.world == nil {
		return nil
	}
	return &rollout.World{Stage: s.world.stage, Retries: s.Job.Environment.Retries, Apart: apart(s.Job)}
}

// apart are the fields of tasks that the job itself reads.
func apart(j *job.Job) []string {
	out := []string{"id", j.Data.Balance, j.Data.Spread, j.Eval.By}
	if c := j.Data.Curriculum; c != nil {
		out = append(out, c.Field)
	}
	columns := []map[string]string{j.Data.Columns}
	for _, s := range slices.Concat(j.Data.Train, j.Data.Eval) {
		columns = append(columns, s.Columns)
	}
	for _, c := range columns {
		out = append(out, c["id"], c["answer"])
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// BeginAnew tells the sampler how a trajectory begins anew whose environment failed: drop forgets what was recorded of it.
func (s *Session) BeginAnew(drop func(id string)) {
	if s.Sampler.External != nil {
		s.Sampler.External.Forget = drop
	}
	if s.Sampler.World == nil {
		return
	}
	s.Sampler.World.Forget = func(id string, why error) {
		drop(id)
		s.Notes.Note(fmt.Sprintf("trajectory %s begins anew: %s", id, job.Plain(why, "orchestrator: "+id+": ")))
	}
}

// PayTurns has the environment's rewards paid by turn where the job or its algorithm wants that.
func (s *Session) PayTurns(a *algorithms.Algorithm) {
	if s.world == nil || s.Sampler.World == nil || s.Job.Control.ShuffleRewards { // the control permutes the rewards of whole trajectories
		return
	}
	rewards := s.Job.Rewards
	alone := len(rewards) == 1 && rewards[0].Name == job.EnvironmentReward && rewards[0].Weight == 1
	switch credit := s.Job.Environment.Credit; {
	case credit == "trajectory", credit == "auto" && !(alone && a.Estimator.Needs.Turns):
		return
	}
	for _, r := range rewards {
		if r.Name == job.EnvironmentReward {
			s.Sampler.World.Credit = r.Weight
		}
	}
}
