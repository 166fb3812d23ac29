package environments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

// Options say how a Manager lends the environments of its source. A zero field is the default that stands beside it.
type Options struct {
	Kind         string            // of environment: in errors, in notes and in Stats
	Owner        string            // the run: labels what environments leave outside of the process
	Pool         pool.Options      // Make is the manager's, and so is Name where it is ""
	ResetTimeout time.Duration     // of one Reset, waiting for a lease not included; a minute
	StepTimeout  time.Duration     // of one Step, and of each of the optional powers; 30 s
	MaxText      int               // bytes of the texts of one observation, of which the middle is left out beyond; 64 KiB
	Note         func(text string) // told what a user should know, one line; nil: nobody
}

const (
	resetTime = time.Minute // the defaults of Options
	stepTime  = 30 * time.Second
	textBytes = 64 << 10

	sweepTime = time.Minute
	linger    = 5 * time.Second // in which an episode whose context is done can still be asked for its state or score
	leftTime  = 5 * time.Second // that Manager.Close waits for calls that were left behind
)

// Manager owns the environments of one source: it lends them to episodes through a pool, under deadlines, and it counts what they do. All methods
// are safe for concurrent use.
type Manager struct {
	rules    *rules
	source   Source
	pool     *pool.Pool
	episodes *episodes
	beating  sync.WaitGroup
	stop     chan struct{}

	mu       sync.Mutex
	closeErr error
}

// Stats are a manager's numbers, over all so far but for the leases of now.
type Stats struct {
	Kind               string
	Pool               pool.Stats       // leases, waiting, members made, replaced and broken
	Resets, Steps      int64            // that returned, failures included
	ResetP50, ResetP99 time.Duration    // of those
	StepP50, StepP99   time.Duration    //
	Cut                int64            // observations of which the middle was left out
	Dropped            int64            // infos that cannot be recorded
	GivenUp            int64            // calls that their caller gave up: the trajectory was cancelled, or ended in the middle of one
	Refused            int64            // resets that refused their task, which is the fault of the task (TaskError)
	Failures           map[string]int64 // of the infrastructure, by what the environment was asked: AskedStep, …

	resets, steps pool.Durations
}

// Since are the numbers between two moments of a manager: what happened after before, and the leases of now.
func (s Stats) Since(before Stats) Stats {
	s.Pool = s.Pool.Since(before.Pool)
	s.Cut, s.Dropped, s.GivenUp, s.Refused = s.Cut-before.Cut, s.Dropped-before.Dropped, s.GivenUp-before.GivenUp, s.Refused-before.Refused
	s.resets, s.steps = s.resets.Since(before.resets), s.steps.Since(before.steps)
	failures := map[string]int64{}
	for what, n := range s.Failures {
		if n -= before.Failures[what]; n > 0 {
			failures[what] = n
		}
	}
	s.Failures = failures
	s.quantiles()
	return s
}

func (s *Stats) quantiles() {
	s.Resets, s.ResetP50, s.ResetP99 = s.resets.Count(), s.resets.Quantile(0.5), s.resets.Quantile(0.99)
	s.Steps, s.StepP50, s.StepP99 = s.steps.Count(), s.steps.Quantile(0.5), s.steps.Quantile(0.99)
}

// Open makes the manager of a source and its pool, which it adds to pools where that is not nil. What an earlier process of the same owner left
// behind is swept first. The source is the manager's from then on, which closes it, also where Open fails.
func Open(s Source, pools *pool.Set, o Options) (_ *Manager, err error) {
	r := newRules(o)
	o = r.o
	if s == nil {
		return nil, fmt.Errorf("environments: %s: there is no source", o.Kind)
	}
	m := &Manager{rules: r, source: s, stop: make(chan struct{}), episodes: &episodes{linger: linger, all: map[*tenure]struct{}{}}}
	defer func() {
		if err != nil {
			_ = panics.Guard("close", s.Close)
			err = fmt.Errorf("environments: %s: %s", o.Kind, oneLine(err.Error()))
		}
	}()
	switch {
	case o.ResetTimeout < 0 || o.StepTimeout < 0:
		return nil, fmt.Errorf("the deadlines of a reset (%s) and of a step (%s) must be above 0", o.ResetTimeout, o.StepTimeout)
	case o.MaxText < minText:
		return nil, fmt.Errorf("an observation of at most %d bytes is too short; the least is %d", o.MaxText, minText)
	}
	if m.rules.spec, err = panics.Value("its spec", func() (Spec, error) { return s.Spec(), nil }); err != nil {
		return nil, err
	}
	if m.rules.tools, err = schemas(m.rules.spec.Actions()); err != nil {
		return nil, err
	}
	m.rules.sweep(s)
	if err := m.openPool(pools); err != nil {
		return nil, err
	}
	if lease := m.rules.o.Pool.Lease; lease > 0 {
		m.beating.Go(func() { m.episodes.beat(max(lease/4, time.Millisecond), m.stop) })
	}
	return m, nil
}

func (m *Manager) openPool(pools *pool.Set) (err error) {
	o := m.rules.o.Pool
	o.Name, o.Make = cmp.Or(o.Name, m.rules.o.Kind), m.make
	if m.rules.spec.Once {
		o.Uses = 1
	}
	if o.Note == nil {
		o.Note = m.rules.note
	}
	if m.pool, err = pool.New(o); err != nil {
		return err
	}
	if pools == nil {
		return nil
	}
	if err := pools.Add(m.pool); err != nil {
		return errors.Join(err, m.pool.Close())
	}
	return nil
}

// schemas reads those of the actions, and refuses what no call could be checked against.
func schemas(actions []tools.Spec) (map[string]*tools.Schema, error) {
	all := map[string]*tools.Schema{}
	for _, t := range actions {
		switch {
		case !wording.ValidName(t.Name):
			return nil, fmt.Errorf("its tool %q: a name has %s", t.Name, wording.NameRule)
		case all[t.Name] != nil:
			return nil, fmt.Errorf("its tool %q is there twice", t.Name)
		}
		if len(t.Parameters) == 0 {
			t.Parameters = []byte(`{"type":"object","properties":{},"additionalProperties":false}`)
		}
		s, err := tools.ParseSchema(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("its tool %q: %w", t.Name, err)
		}
		if !slices.Equal(s.Types, []string{"object"}) {
			return nil, fmt.Errorf(`its tool %q: the schema of the parameters must have "type": "object"`, t.Name)
		}
		all[t.Name] = s
	}
	return all, nil
}

// make is the pool's.
func (m *Manager) make(ctx context.Context) (pool.Member, error) {
	env, err := panics.Value("its New", func() (Environment, error) { return m.source.New(ctx, m.rules.o.Owner) })
	if err == nil && env == nil {
		err = errors.New("its New returned no environment")
	}
	if err != nil {
		return nil, err
	}
	return newMember(m.rules.o.Kind, env, m.rules.spec.InProcess, &m.episodes.left), nil
}

// Spec is the source's.
func (m *Manager) Spec() Spec { return m.rules.spec }

// Source is what the environments come from.
func (m *Manager) Source() Source { return m.source }

// Begin waits for an environment and begins an episode of it. The lease is kept alive while ctx lives; some seconds after ctx is done, in which the
// episode can still be asked for its state or score, the episode ends by itself. Every error is a *Failure.
func (m *Manager) Begin(ctx context.Context, owner pool.Owner, s Start) (*Episode, error) {
	lease, err := m.pool.Acquire(ctx, owner)
	if err != nil {
		if ctx.Err() != nil {
			err = causeOf(ctx)
		}
		return nil, m.rules.fail(ctx, AskedLease, err)
	}
	mem, ok := lease.Member().(*member)
	if !ok {
		lease.Break(errors.New("no environment"))
		return nil, m.rules.fail(ctx, AskedLease, fmt.Errorf("the pool lent a %T and no environment", lease.Member()))
	}
	e := newEpisode(newTenure(m.rules, m.episodes, mem, lease), s)
	if err := m.episodes.enter(ctx, e.tenure); err != nil {
		e.End()
		return nil, m.rules.fail(ctx, AskedLease, err)
	}
	if err := e.reset(ctx, s); err != nil {
		e.End()
		return nil, err
	}
	return e, nil
}

// Stats are the numbers of now.
func (m *Manager) Stats() Stats {
	p := m.pool.Stats()
	c := m.rules.numbers()
	s := Stats{
		Kind: m.rules.o.Kind, Pool: p, Cut: c.cut, Dropped: c.dropped, GivenUp: c.given, Refused: c.refused, Failures: c.failures,
		resets: c.resets, steps: c.steps,
	}
	s.quantiles()
	return s
}

// Close ends all episodes, closes the environments and their source, and waits for what runs. It is an error where a call of an environment never
// returned. A second call returns what the first did.
func (m *Manager) Close() error {
	open, first := m.episodes.close()
	if !first {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.closeErr
	}
	close(m.stop)
	m.beating.Wait()
	for _, t := range open {
		t.end()
	}
	errs := []error{m.pool.Close()}
	returned := make(chan struct{})
	go func() { m.episodes.left.Wait(); close(returned) }()
	t := time.NewTimer(leftTime)
	defer t.Stop()
	select {
	case <-returned:
	case <-t.C:
		errs = append(errs, errors.New("a call that was left behind after its deadline still runs; nothing can end it but the end of the process"))
	}
	if err := panics.Guard("close of the source", m.source.Close); err != nil {
		errs = append(errs, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		m.closeErr = fmt.Errorf("environments: %s: %s", m.rules.o.Kind, oneLine(err.Error()))
	}
	return m.closeErr
}
