package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// forever is longer than any run.
const forever = 10 * 365 * 24 * time.Hour

// replaying samples a run's recorded batches once more.
type replaying struct {
	sampler *rollout.Sampler
	tasks   map[string]trajectory.Task // of the data, by id
	from    *store.Store               // of the run that is replayed
	engine  *again
	batches []store.Batch
	begin   map[int32][]place // what the weights of a version begin to sample
	results map[string]*result
	joined  sync.WaitGroup
	cancel  context.CancelFunc
	tokens  int
	older   string // of rulesSince
}

// place is a recorded trajectory.
type place struct {
	rollout.Place
	id string
}

// result is a trajectory that is being sampled again.
type result struct {
	done chan struct{}
	t    *trajectory.Trajectory
	err  error
}

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
	if output == "" {
		if output, err = os.MkdirTemp("", "agentfly-replay-"); err != nil {
			return fmt.Errorf("orchestrator: replay: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(output)) }()
	}
	j.Output = output
	algorithm, err := job.Algorithm(j, r.Algorithms)
	if err != nil {
		return err
	}
	group, err := processes.Of(j, processes.Launch{})
	if err != nil {
		return err
	}
	t := &run{session: newSession(j), options: Options{Out: io.Discard}, folder: runfolder.New(j.Output, false), algorithm: algorithm, ranks: group}
	defer func() {
		t.release(err)
		err = errors.Join(err, t.close())
	}()
	var last checkpoint.State
	if _, err := last.Load(dir); err != nil {
		return err
	}
	t.state.Data = last.Data
	if err := t.equip(ctx, r); err != nil {
		return err
	}
	if err := t.prepare(ctx, j); err != nil {
		return err
	}
	return t.replayed(ctx, from, dir, last.Step, out)
}

// recordedJob reads the job as it ran, with the kinds and formats of agents that are known.
func recordedJob(dir string, from *store.Store, known *agents.Registry) (*job.Job, error) {
	path, err := from.Fact(runfolder.JobFact)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	if err != nil {
		return nil, job.InputError(fmt.Errorf("orchestrator: replay: %w; name a run folder", err))
	}
	if path == "" {
		return nil, job.InputError(fmt.Errorf("orchestrator: replay: the run in %s kept no log that could be replayed", dir))
	}
	j, err := job.Parse(path, text, job.Options{Agents: known})
	if err != nil {
		return nil, err
	}
	return j, job.Replayable(j)
}

// replayed does the steps of the run from, whose last checkpoint is of the step saved.
func (t *run) replayed(ctx context.Context, from *store.Store, dir string, saved int, out io.Writer) error {
	p, err := t.newReplay(ctx, from)
	if err != nil {
		return err
	}
	found := t.found()
	found.Recording = p
	t.objective.Prepare(found)
	defer p.close()
	fmt.Fprintf(out, "%s: %d steps of the run in %s again, model %s\n", t.job.Name, len(p.batches), dir, modelName(t.job))
	weights, trajectories := "the run saved none", 0
	for step, b := range p.batches {
		if err := t.step(ctx); err != nil {
			if first := p.engine.failed(); first != nil { // what the trainer says then is only that it was stopped
				err = first
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if p.older != "" {
				return fmt.Errorf("orchestrator: replay: step %d: %w; %s", step, err, p.older)
			}
			return fmt.Errorf("orchestrator: replay: step %d: %w", step, err)
		}
		n := 0
		for _, ref := range b.Groups {
			n += p.size(ref)
		}
		trajectories += n
		fmt.Fprintf(out, "step %3d/%d   %d groups, %d trajectories, policy version %d: the same\n", step+1, len(p.batches), len(b.Groups), n, t.state.Version)
		if step+1 != saved {
			continue
		}
		if err := t.save(); err != nil {
			return err
		}
		name := fmt.Sprintf("step-%d", saved)
		if err := sameFolders(filepath.Join(dir, "checkpoints", name), filepath.Join(t.folder.Dir, "checkpoints", name)); err != nil {
			return fmt.Errorf("orchestrator: replay: checkpoint after step %d: %w", saved, err)
		}
		weights = "identical"
		if saved < len(p.batches) {
			weights = fmt.Sprintf("identical after step %d, the run's last checkpoint", saved)
		}
	}
	fmt.Fprintf(out, "%d batches, %d trajectories, %d tokens sampled again, weights: %s\n", len(p.batches), trajectories, p.tokens, weights)
	return nil
}

// newReplay reads what was recorded.
func (t *run) newReplay(ctx context.Context, from *store.Store) (*replaying, error) {
	log, err := from.Recover(ctx, 0)
	if err != nil {
		return nil, err
	}
	fact, err := from.Fact(rulesFact)
	if err != nil {
		return nil, err
	}
	older, err := rulesSince(fact)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &replaying{sampler: &t.rollout, tasks: t.past.tasks, from: from, batches: log.Batches, engine: newAgain(t.weights.Engine(), t.state.Version), begin: map[int32][]place{}, results: map[string]*result{}, cancel: cancel, older: older}
	for _, b := range p.batches {
		groups, err := from.Groups(ctx, b.Groups, "")
		if err != nil {
			cancel()
			return nil, err
		}
		for i, g := range groups {
			for k, tr := range g.Trajectories {
				if err := p.add(b, g, tr, rollout.Place{Phase: store.Train, Step: b.Groups[i].Step, Group: b.Groups[i].Group, Index: k, Task: g.Task}); err != nil {
					cancel()
					return nil, err
				}
			}
		}
	}
	t.weights.Use(p.engine)
	t.rollout.Engine, t.rollout.Record, t.rollout.Replay = p.engine, nil, true
	t.rollout.Timeout, t.rollout.Deadline = forever, 0 // a completion waits for its weights
	t.rollout.Recovered = func(id string) (*trajectory.Trajectory, bool) {
		p.engine.mu.Lock()
		defer p.engine.mu.Unlock()
		return p.engine.record[id], false
	}
	p.engine.begun = func(version int32) { p.start(ctx, version) }
	p.engine.begun(t.state.Version)
	return p, nil
}

// add takes a recorded trajectory up. What failed is not trained, and not sampled again.
func (p *replaying) add(b store.Batch, g trajectory.Group, tr *trajectory.Trajectory, at rollout.Place) error {
	r := &result{done: make(chan struct{})}
	p.results[tr.ID] = r
	if task, ok := p.tasks[g.Task.ID]; ok {
		at.Task = task
	}
	first := int32(-1)
	for _, s := range tr.Samples {
		for i, on := range s.ResponseMask {
			if !on {
				continue
			}
			if first < 0 {
				first = s.PolicyVersion[i]
			}
			if v := s.PolicyVersion[i]; v < first || v > b.Version {
				return fmt.Errorf("orchestrator: replay: trajectory %s: token %d is of policy version %d, which cannot be: its first is of %d, and it is trained at %d", tr.ID, i, v, first, b.Version)
			}
		}
	}
	if tr.Err != "" || first < 0 {
		r.t = tr
		close(r.done)
		return nil
	}
	p.tokens += tr.ResponseTokens()
	p.engine.count(tr)
	p.begin[first] = append(p.begin[first], place{at, tr.ID})
	return nil
}

func (p *replaying) size(ref store.GroupRef) (n int) {
	for p.results[store.ID(store.Train, ref.Step, ref.Group, n)] != nil {
		n++
	}
	return n
}

// start begins what the weights of a version sample first.
func (p *replaying) start(ctx context.Context, version int32) {
	for _, at := range p.begin[version] {
		p.joined.Go(func() {
			r := p.results[at.id]
			defer close(r.done)
			if r.t, r.err = p.sample(ctx, at); r.err != nil {
				p.engine.fail(r.err)
			}
		})
	}
}

// sample samples a trajectory again and compares it.
func (p *replaying) sample(ctx context.Context, at place) (*trajectory.Trajectory, error) {
	rec, err := p.from.Trajectory(ctx, at.id)
	if err != nil {
		return nil, err
	}
	p.engine.expect(rec)
	got := p.sampler.Sample(ctx, at.Place)
	p.engine.forget(at.id)
	last := len(rec.Turns) - 1
	switch {
	case got.Err != "":
		return nil, errors.New(got.Err)
	case len(got.Turns) != len(rec.Turns):
		return nil, &differs{at.id, min(len(got.Turns), len(rec.Turns)), -1, fmt.Sprintf("there are %d turns, recorded are %d", len(got.Turns), len(rec.Turns))}
	case got.StopReason != rec.StopReason:
		return nil, &differs{at.id, last, -1, fmt.Sprintf("the trajectory ends with %q, recorded is %q", got.StopReason, rec.StopReason)}
	case !slices.EqualFunc(got.Samples, rec.Samples, func(a, b *trajectory.Sample) bool { return a.Prefix(a.Len()).Equal(b.Prefix(b.Len())) }):
		return nil, &differs{at.id, last, -1, "an observation has other tokens than the recorded one"}
	}
	return got, nil
}

// Batch implements Source: it waits until the batch of a step is sampled again.
func (p *replaying) Batch(ctx context.Context, step int, version int32) (*schedule.Batch, error) {
	rec := p.batches[step]
	if rec.Version != version {
		return nil, fmt.Errorf("it begins with policy version %d, recorded is %d", version, rec.Version)
	}
	groups, err := p.from.Groups(ctx, rec.Groups, store.Greedy)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		for k, tr := range g.Trajectories {
			r := p.results[tr.ID]
			select {
			case <-r.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if r.err != nil {
				return nil, r.err
			}
			g.Trajectories[k], r.t = r.t, nil
		}
	}
	b := schedule.Recorded(rec, groups)
	b.All, b.Before = groups, 0
	return b, nil
}

// close ends what is being sampled.
func (p *replaying) close() {
	p.cancel()
	p.joined.Wait()
}

// sameFolders holds the files of two checkpoints against each other, byte by byte. run.json holds times.
func sameFolders(was, is string) error {
	var names []string
	for _, dir := range []string{was, is} {
		files, err := checkpoint.Files(dir)
		if err != nil {
			return err
		}
		names = append(names, files...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == checkpoint.StateFile })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, errA := os.ReadFile(filepath.Join(was, name))
		b, errB := os.ReadFile(filepath.Join(is, name))
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if bytes.Equal(a, b) {
			continue
		}
		what := "the file"
		if strings.HasSuffix(name, ".safetensors") {
			what = "a weight"
		}
		return fmt.Errorf("%s differs in %s, first at byte %d", what, name, firstDifference(a, b))
	}
	return nil
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
