package orchestrator

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Validate checks a job and its data without opening the model. It starts the programs that the job names, imports its Python files and asks
// its services what they offer.
func Validate(ctx context.Context, j *job.Job, r Registries) error {
	s := newSession(j)
	defer s.Close() // what it opened was only looked at
	_, err := s.check(ctx, r)
	return err
}

// Look checks of a job and its data what can be checked without running or asking anything that the job names. notRun is that, which Validate
// runs.
func Look(ctx context.Context, j *job.Job, r Registries) (notRun []string, err error) {
	s := newSession(j)
	s.resources = newResources(j, s.notes.note, true)
	defer s.Close()
	_, err = s.check(ctx, r)
	return s.resources.NotRun(), err
}

// check looks at all of a job that can be wrong without its model, and returns its algorithm. What it makes for that, tools and rewards, is
// what the session then has.
func (s *session) check(ctx context.Context, r Registries) (*algorithms.Algorithm, error) {
	j := s.job
	var lines []string
	add := func(err error) {
		if err != nil {
			lines = append(lines, err.Error())
		}
	}
	if j.SFT == nil {
		_, _, _, err := data.Read(j)
		add(err)
	} else if len(j.Data.Train) > 0 || j.Data.Run != "" && exists(j.Resolve(j.Data.Run)) { // the run may come later
		_, err := data.ReadSFT(j)
		add(err)
	}
	if j.Agent.Examples != "" {
		_, err := data.ReadExamples(j.Resolve(j.Agent.Examples))
		add(err)
	}
	add(checkWeights(j))
	algorithm, err := job.Algorithm(j, r.Algorithms)
	add(err)
	add(s.equip(ctx, r))
	if len(lines) > 0 {
		return nil, &job.Error{Lines: lines}
	}
	return algorithm, nil
}

// checkWeights refuses a way of moving weights that this machine lacks something for.
func checkWeights(j *job.Job) error {
	if j.Engine.Kind != "vllm" || j.Engine.Weights != "nccl" {
		return nil
	}
	if j.Device == "cpu" {
		return j.Fail("engine.weights", "nccl: the trainer is on the CPU (device: cpu), and NCCL sends from a CUDA device; use gloo, transfer or disk")
	}
	if _, err := cgo.NCCL(""); err != nil {
		return j.Fail("engine.weights", "nccl: %s; use gloo, transfer or disk", strings.TrimPrefix(job.Plain(err, "cgo: "), "nccl: "))
	}
	return nil
}

// start makes everything that rollouts need, with the model at path; "" is the job's own.
func (s *session) start(ctx context.Context, r Registries, path string, toolsOff bool) error {
	if err := s.equip(ctx, r); err != nil {
		return err
	}
	if err := s.reach(ctx, toolsOff); err != nil {
		return err
	}
	if err := s.open(ctx, path); err != nil {
		return err
	}
	return s.weights.Begin(ctx, 0)
}

// Evaluate evaluates the job's held-out tasks with the model at path; "" is the job's own.
func Evaluate(ctx context.Context, j *job.Job, path string, toolsOff bool, r Registries) (e report.Evaluation, err error) {
	if err := job.Evaluable(j); err != nil {
		return e, err
	}
	_, tasks, _, err := data.Read(j)
	if err != nil {
		return e, err
	}
	s := newSession(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.start(ctx, r, path, toolsOff); err != nil {
		return e, err
	}
	rollout := s.rollout
	rollout.ToolsOff = toolsOff || j.Control.ToolsOff
	return objective.Evaluate(ctx, rollout, nil, "eval", 0, tasks.Tasks, j)
}

// Sample rolls out the tasks of the first steps of a job and hands each trajectory over as it ends, one at a time. Nothing is trained.
func Sample(ctx context.Context, j *job.Job, path string, steps int, r Registries, f func(*trajectory.Trajectory) error) (err error) {
	if err := job.Samplable(j); err != nil {
		return err
	}
	_, _, deal, err := data.Read(j)
	if err != nil {
		return err
	}
	s := newSession(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.start(ctx, r, path, false); err != nil {
		return err
	}
	var one sync.Mutex
	var failed error
	for step := range steps {
		_, _ = s.rollout.Groups(ctx, "rollout", step, deal.Tasks(step, j.Rollout.Groups), j.Rollout.GroupSize, func(t *trajectory.Trajectory) error {
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

// Token is one token of a stored trajectory.
type Token struct {
	ID              int32    `json:"id"`
	Text            string   `json:"text"`
	Mask            int      `json:"mask"` // 1: sampled by the policy
	SamplingLogprob *float32 `json:"sampling_logprob,omitempty"`
	OldLogprob      *float32 `json:"old_logprob,omitempty"`
	Advantage       *float32 `json:"advantage,omitempty"`
	PolicyVersion   *int32   `json:"policy_version,omitempty"`
}

// Inspected is a stored trajectory for people and other programs.
type Inspected struct {
	Phase      string                 `json:"phase"`
	Task       trajectory.Task        `json:"task"`
	Trajectory *trajectory.Trajectory `json:"trajectory"`
	Samples    [][]Token              `json:"samples"`
}

// Inspect lays a record out token by token. Old logprobs and advantages are those of its newest update.
func Inspect(r store.Record, decode func([]int32) string) Inspected {
	out := Inspected{Phase: r.Phase, Task: r.Task, Trajectory: r.Trajectory}
	for k, s := range r.Trajectory.Samples {
		var update *store.Update
		for i := range r.Updates {
			if r.Updates[i].Sample == k {
				update = &r.Updates[i]
			}
		}
		tokens := make([]Token, s.Len())
		for i, id := range s.TokenIDs {
			tokens[i] = Token{ID: id, Text: decode([]int32{id})}
			if !s.ResponseMask[i] {
				continue
			}
			t := &tokens[i]
			t.Mask, t.SamplingLogprob, t.PolicyVersion = 1, &s.SamplingLogprobs[i], &s.PolicyVersion[i]
			if update != nil && i < len(update.OldLogprobs) {
				t.OldLogprob = &update.OldLogprobs[i]
			}
			if update != nil && i < len(update.Advantages) {
				t.Advantage = &update.Advantages[i]
			}
		}
		out.Samples = append(out.Samples, tokens)
	}
	return out
}
