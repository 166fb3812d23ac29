package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/replay"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
)

// Replay samples and trains once more what the run in a folder did, and holds tokens, logprobs and versions against its
// store, and the weights against its last checkpoint. The replayed run's metrics and checkpoints go to output; "" keeps
// none. The first difference is an error.
func Replay(ctx context.Context, dir, output string, r Registries, out io.Writer) (err error) {
	from, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return job.InputError(err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	j, err := recordedJob(dir, from, r.Agents)
	if err != nil {
		return err
	}
	fact, err := from.Fact(recovery.RulesFact)
	if err != nil {
		return err
	}
	if err := repeatable(j, fact); err != nil {
		return err
	}
	if output == "" {
		if output, err = os.MkdirTemp("", "agentfly-replay-"); err != nil {
			return fmt.Errorf("orchestrator: replay: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(output)) }()
	}
	done, err := from.Steps()
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return job.InputError(fmt.Errorf("the run in %s recorded no step that could be replayed", dir))
	}
	j.Output = output
	j.Rollout.MaxRaised = 0 // what the run did is done again, whatever its tools did
	algorithm, err := job.Algorithm(j, r.Algorithms)
	if err != nil {
		return err
	}
	group, err := processes.Of(j, processes.Launch{})
	if err != nil {
		return err
	}
	t := &run{session: session.New(j), options: Options{Out: io.Discard}, activity: &activity{}, folder: runfolder.New(j.Output, false), algorithm: algorithm, ranks: group, replayed: dir, recorded: from}
	defer func() {
		t.release(err)
		err = errors.Join(err, t.close(err))
	}()
	defer func() { err = stopped(ctx, err, "steps that are the same: %d of %d", t.state.Step, len(done)) }()
	var last checkpoint.State
	if _, err := last.Load(dir); err != nil && !errors.Is(err, checkpoint.ErrGone) { // then all that is recorded is done again
		return err
	}
	t.state.Data = last.Data
	if err := t.session.Equip(ctx, r); err != nil {
		return err
	}
	if err := t.prepare(ctx, j); err != nil {
		return err
	}
	if err := sameOrigin(j, dir, from, t.folder.DB.Reader); err != nil {
		return err
	}
	return replaySteps(ctx, t, from, dir, last.Step, out)
}

// recordedJob reads the job as it ran, with the kinds and formats of agents that are known.
func recordedJob(dir string, from *store.Reader, known *agents.Registry) (*job.Job, error) {
	path, err := from.Fact(runfolder.JobFact)
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, runfolder.JobFile)
	text, err := os.ReadFile(copied)
	if err != nil {
		return nil, job.InputError(fmt.Errorf("orchestrator: replay: %w; name a run folder", err))
	}
	if path == "" {
		return nil, job.InputError(fmt.Errorf("orchestrator: replay: the run in %s kept no log that could be replayed", dir))
	}
	j, err := job.Parse(path, text, job.Options{Agents: known, Shown: copied, Copied: true})
	if err != nil {
		return nil, err
	}
	return j, job.Replayable(j)
}

// repeatable refuses a run whose engine sampled on a device: the bits of a row depend there on what is computed beside it. rules are the numbers
// of the programs that worked on the run; those of before had the engine on the CPUs, and j is set so.
func repeatable(j *job.Job, rules string) error {
	before, err := recovery.SampledOnCPUs(rules)
	if err != nil {
		return err
	}
	if before && j.Engine.Kind == "local" {
		j.Engine.Device = "cpu"
	}
	computes, err := j.Local(policy.DeviceOf(j.Device))
	if err != nil || computes.Device == "cpu" {
		return err
	}
	return j.Fail("engine.device", "%s: on %s what a request samples depends on the requests beside it, so nothing can be sampled again bit for bit; runs with engine.device: cpu or deterministic: true can be replayed", j.Engine.Device, computes.Device)
}

// replaySteps does the steps of the run from once more, with the run t, and holds each against it. Its last checkpoint is of the step saved.
func replaySteps(ctx context.Context, t *run, from *store.Reader, dir string, saved int, out io.Writer) error {
	weights := &t.session.Weights
	p, err := replay.New(ctx, from, &t.session.Sampler, weights.Engine(), t.state.Version, t.recovered.Tasks)
	if err != nil {
		return err
	}
	weights.Use(p.Engine())
	found := t.found()
	found.Recording = p
	t.objective.Prepare(found)
	defer p.Close()
	steps := t.training()
	steps.started = time.Now()
	fmt.Fprintf(out, "%s: %d steps of the run in %s again, model %s\n", t.session.Job.Name, len(p.Batches()), dir, modelName(t.session.Job))
	changes, err := runfolder.Changes(dir, t.session.Job)
	if err != nil {
		return err
	}
	explain := func(err error) error {
		sampled, saved := (*replay.Difference)(nil), (*checkpoint.Difference)(nil)
		if len(changes) > 0 && (errors.As(err, &sampled) || errors.As(err, &saved)) {
			return fmt.Errorf("%w; the run went on with other settings, and its replay takes the newest for every step: %s", err, strings.Join(changes, ", "))
		}
		return err
	}
	same, trajectories := "the run saved none", 0
	for step, b := range p.Batches() {
		if err := steps.step(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("orchestrator: replay: step %d: %w", step+1, explain(p.Explain(err)))
		}
		n := 0
		for _, ref := range b.Groups {
			n += p.Size(ref)
		}
		trajectories += n
		fmt.Fprintf(out, "step %3d/%d   %d groups, %d trajectories, policy version %d: the same\n", step+1, len(p.Batches()), len(b.Groups), n, t.state.Version)
		if step+1 != saved {
			continue
		}
		if err := steps.save(); err != nil {
			return err
		}
		name := checkpoint.Name(saved)
		if err := checkpoint.Compare(filepath.Join(checkpoint.FolderOf(dir), name), filepath.Join(t.folder.Checkpoints(), name)); err != nil {
			return fmt.Errorf("orchestrator: replay: checkpoint after step %d: %w", saved, explain(err))
		}
		same = "identical"
		if saved < len(p.Batches()) {
			same = fmt.Sprintf("identical after step %d, the run's last checkpoint", saved)
		}
	}
	fmt.Fprintf(out, "%d batches, %d trajectories, %d tokens sampled again, weights: %s\n", len(p.Batches()), trajectories, p.Tokens(), same)
	return nil
}
