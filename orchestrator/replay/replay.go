package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// forever is longer than any run.
const forever = 10 * 365 * 24 * time.Hour

// Replay samples a run's recorded batches once more.
type Replay struct {
	sampler *rollout.Sampler
	tasks   map[string]trajectory.Task // of the data, by id
	from    *store.Reader              // of the run that is replayed
	engine  *Engine
	batches []store.Batch
	begin   map[int32][]place // what the weights of a version begin to sample
	results map[string]*result
	sizes   map[store.GroupRef]int // trajectories of each recorded group
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

// New reads what the run from recorded, and makes the sampler sample it once more with an engine, which begins with the weights of
// version. tasks are those of the data, by id.
func New(ctx context.Context, from *store.Reader, sampler *rollout.Sampler, engine engines.Engine, version int32, tasks map[string]trajectory.Task) (*Replay, error) {
	log, err := from.Recover(ctx, 0)
	if err != nil {
		return nil, err
	}
	fact, err := from.Fact(recovery.RulesFact)
	if err != nil {
		return nil, err
	}
	older, err := recovery.RulesSince(fact)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Replay{sampler: sampler, tasks: tasks, from: from, batches: log.Batches, engine: NewEngine(engine, version), begin: map[int32][]place{}, results: map[string]*result{}, sizes: map[store.GroupRef]int{}, cancel: cancel, older: older}
	for _, b := range p.batches {
		groups, err := from.Groups(ctx, b.Groups, "")
		if err != nil {
			cancel()
			return nil, err
		}
		for i, g := range groups {
			p.sizes[b.Groups[i]] = len(g.Trajectories)
			for _, tr := range g.Trajectories {
				if err := p.add(b, g, tr, rollout.Place{Phase: store.Train, Step: b.Groups[i].Step, Group: b.Groups[i].Group, Index: tr.Index, Branch: tr.Branch, Task: g.Task}); err != nil {
					cancel()
					return nil, err
				}
			}
		}
	}
	sampler.Engine, sampler.Record, sampler.Replay = p.engine, nil, true
	sampler.Timeout, sampler.Deadline = forever, 0 // a completion waits for its weights
	sampler.Recovered = func(id string) (*trajectory.Trajectory, bool) { return p.engine.recorded(id), false }
	p.engine.begun = func(version int32) { p.start(ctx, version) }
	p.engine.begun(version)
	return p, nil
}

// Engine is the engine that the sampler now has.
func (p *Replay) Engine() engines.Engine { return p.engine }

// Batches are the recorded batches, in order.
func (p *Replay) Batches() []store.Batch { return p.batches }

// Tokens are how many sampled tokens the batches have.
func (p *Replay) Tokens() int { return p.tokens }

// Explain is the error of a step of the replay: the first one of what is sampled, where there is one. A difference has the rules with it that changed
// since an older program recorded the run.
func (p *Replay) Explain(err error) error {
	if first := p.engine.failed(); first != nil { // what the trainer says then is only that it was stopped
		err = first
	}
	if d := (*Difference)(nil); p.older != "" && errors.As(err, &d) {
		return fmt.Errorf("%w; %s", err, p.older)
	}
	return err
}

// add takes a recorded trajectory up. What failed is not trained, and not sampled again.
func (p *Replay) add(b store.Batch, g trajectory.Group, tr *trajectory.Trajectory, at rollout.Place) error {
	r := &result{done: make(chan struct{})}
	p.results[tr.ID] = r
	if task, ok := p.tasks[g.Task.ID]; ok {
		at.Task = task
	}
	first := int32(-1) // the oldest version of a token; calls of an agent that is a program of its own end in any order
	for _, s := range tr.Samples {
		for i, on := range s.ResponseMask {
			if !on {
				continue
			}
			v := s.PolicyVersion[i]
			if first < 0 {
				first = v
			}
			if v > b.Version || v < first && p.sampler.External == nil {
				return fmt.Errorf("orchestrator: replay: trajectory %s: token %d is of policy version %d, which cannot be: its first is of %d, and it is trained at %d", tr.ID, i, v, first, b.Version)
			}
			first = min(first, v)
		}
	}
	if tr.Failed() || first < 0 {
		r.t = tr
		close(r.done)
		return nil
	}
	p.tokens += p.engine.count(tr)
	p.begin[first] = append(p.begin[first], place{at, tr.ID})
	return nil
}

// Size is how many trajectories a recorded group has.
func (p *Replay) Size(ref store.GroupRef) int { return p.sizes[ref] }

// start begins what the weights of a version sample first.
func (p *Replay) start(ctx context.Context, version int32) {
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
func (p *Replay) sample(ctx context.Context, at place) (*trajectory.Trajectory, error) {
	rec, err := p.from.Trajectory(ctx, at.id)
	if err != nil {
		return nil, err
	}
	p.engine.Expect(rec)
	got := p.sampler.Sample(ctx, at.Place)
	p.engine.forget(at.id)
	last := len(rec.Turns) - 1
	switch {
	case got.Failed():
		return nil, errors.New(got.Err)
	case len(got.Turns) != len(rec.Turns):
		return nil, &Difference{at.id, min(len(got.Turns), len(rec.Turns)), -1, fmt.Sprintf("there are %d turns, recorded are %d", len(got.Turns), len(rec.Turns))}
	case got.StopReason != rec.StopReason:
		return nil, &Difference{at.id, last, -1, fmt.Sprintf("the trajectory ends with %q, recorded is %q", got.StopReason, rec.StopReason)}
	case !slices.EqualFunc(got.Samples, rec.Samples, func(a, b *trajectory.Sample) bool { return a.Prefix(a.Len()).Equal(b.Prefix(b.Len())) }):
		return nil, &Difference{at.id, last, -1, "an observation has other tokens than the recorded one"}
	}
	return got, nil
}

// Batch implements Source: it waits until the batch of a step is sampled again.
func (p *Replay) Batch(ctx context.Context, step int, version int32) (*schedule.Batch, error) {
	rec := p.batches[step]
	if rec.Version != version {
		return nil, &Difference{text: fmt.Sprintf("it begins with policy version %d, recorded is %d", version, rec.Version)}
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

// Close ends what is being sampled.
func (p *Replay) Close() {
	p.cancel()
	p.joined.Wait()
}
