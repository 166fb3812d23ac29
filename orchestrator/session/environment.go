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
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// inProcess is the size of a pool of environments that live in this process, where the job names none: they cost memory alone.
const inProcess = 4096

// World is the job's environment with its pool. Of nil, which is none, there are no numbers and no tasks.
type World struct {
	job     *job.Job
	manager *environments.Manager
	stage   *environments.Stage
	tasks   map[string][]trajectory.Task // of its own, by split: making them may take long
}

// Stats are the numbers of the environments; false: there are none.
func (w *World) Stats() (environments.Stats, bool) {
	if w == nil {
		return environments.Stats{}, false
	}
	return w.manager.Stats(), true
}

// makeWorld makes the job's environment; nil: it has none, or the job is only looked at and the environment cannot be made without running
// something.
func makeWorld(ctx context.Context, j *job.Job, all *environments.Registry, r *resources.Resources, look bool, note func(line string)) (*World, error) {
	e := j.Environment
	if e == nil {
		return nil, nil
	}
	if err := all.Check(e.Kind); err != nil {
		return nil, j.Fail("environment.kind", "%s", job.Plain(err, "environments: "))
	}
	source, err := all.Make(ctx, r, e.Kind, e.Params)
	if notRun(err) {
		return nil, nil
	}
	if err != nil {
		return nil, j.Fail("environment", "%s", job.Plain(err, "environments: "))
	}
	size := cmp.Or(e.Pool.Size, runtime.NumCPU())
	if e.Pool.Size == 0 && source.Spec().InProcess {
		size = inProcess
	}
	warm := e.Pool.Warm
	if look {
		warm = 0
	}
	m, err := environments.Open(source, r.Pools(), environments.Options{
		Kind: e.Kind, Owner: j.Name, ResetTimeout: job.Seconds(e.ResetTimeout), StepTimeout: job.Seconds(e.StepTimeout), Note: note,
		Pool: pool.Options{
			Size: size, Warm: warm, MakeTime: max(time.Minute, job.Seconds(e.ResetTimeout)), Lease: job.Seconds(e.Pool.Lease),
			Age: job.Seconds(e.Pool.Age), Uses: e.Pool.Uses, Memory: int64(e.Pool.Memory) << 20, Breaker: e.Pool.Breaker,
		},
	})
	if err != nil {
		return nil, j.Fail("environment", "%s", job.Plain(err, "environments: "))
	}
	return &World{job: j, manager: m, stage: environments.NewStage(m), tasks: map[string][]trajectory.Task{}}, nil
}

// Tasks are those that the environment has of its own; nil: there is none, or it has none.
func (w *World) Tasks() data.Own {
	if w == nil {
		return nil
	}
	own, ok := w.manager.Source().(environments.Tasker)
	if !ok {
		return nil
	}
	return func(split string, n int) (tasks []trajectory.Task, err error) {
		if tasks = w.tasks[split]; len(tasks) == n {
			return tasks, nil
		}
		tasks, err = own.Tasks(split, n)
		if err == nil && len(tasks) != n {
			err = fmt.Errorf("%s gave %d tasks of %d", w.job.Environment.Kind, len(tasks), n)
		}
		w.tasks[split] = tasks
		return tasks, err
	}
}

// actions registers the environment's actions beside the job's tools.
func (w *World) actions(chosen *tools.Registry, limit time.Duration) error {
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
func (w *World) lend(j *job.Job, t tools.Tool) (tools.Tool, error) {
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
func systemOf(j *job.Job, w *World) string {
	system := j.Agent.System
	if w == nil || !j.Environment.Instructions {
		return system
	}
	if own := w.stage.Spec().Instructions; own != "" {
		if system != "" {
			system += "\n\n"
		}
		system += own
	}
	return system
}

// sampled is what the sampler knows of the environment.
func (w *World) sampled() *rollout.World {
	if w == nil {
		return nil
	}
	return &rollout.World{Stage: w.stage, Retries: w.job.Environment.Retries, Data: dataFields(w.job), Job: jobFields(w.job)}
}

// jobFields are the fields of tasks that the job itself reads. One may name the episode as well: eval.by: level counts the levels that are played.
func jobFields(j *job.Job) []string {
	out := []string{j.Data.Balance, j.Data.Spread, j.Eval.By}
	if c := j.Data.Curriculum; c != nil {
		out = append(out, c.Field)
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// dataFields are the fields by which the job's data names a task and its answer.
func dataFields(j *job.Job) []string {
	out := []string{"id"}
	columns := []map[string]string{j.Data.Columns}
	for _, s := range slices.Concat(j.Data.Train, j.Data.Eval) {
		columns = append(columns, s.Columns)
	}
	for _, c := range columns {
		out = append(out, c["id"], c["answer"])
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// PayTurns has the rewards of a sampler's environment paid by turn where the job or its algorithm wants that.
func (w *World) PayTurns(a *algorithms.Algorithm, sampled *rollout.World) {
	if w == nil || sampled == nil || w.job.Control.ShuffleRewards { // the control permutes the rewards of whole trajectories
		return
	}
	rewards := w.job.Rewards
	alone := len(rewards) == 1 && rewards[0].Name == job.EnvironmentReward && rewards[0].Weight == 1
	switch credit := w.job.Environment.Credit; {
	case credit == "trajectory", credit == "auto" && !(alone && a.Estimator.Needs.Turns):
		return
	}
	for _, r := range rewards {
		if r.Name == job.EnvironmentReward {
			sampled.Credit += r.Weight
		}
	}
}

func (w *World) close() error {
	if w == nil {
		return nil
	}
	return w.manager.Close()
}
