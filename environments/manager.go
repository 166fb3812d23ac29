package environments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/pool"
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
	o      Options
	spec   Spec
	source Source
	tools  map[string]*tools.Schema // of the actions
	pool   *pool.Pool
	linger time.Duration

	left    sync.WaitGroup // calls of environments, those that were left behind included
	beating sync.WaitGroup
	stop    chan struct{}

	mu       sync.Mutex
	live     map[*Episode]struct{}
	closed   bool
	closeErr error
	counts   counts
	noted    map[string]bool
}

// counts are the numbers of a manager, under its lock.
type counts struct {
	resets, steps       pool.Durations
	cut, dropped, given int64
	refused             int64
	failures            map[string]int64
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
	o.Kind = cmp.Or(o.Kind, "environment")
	o.ResetTimeout, o.StepTimeout, o.MaxText = cmp.Or(o.ResetTimeout, resetTime), cmp.Or(o.StepTimeout, stepTime), cmp.Or(o.MaxText, textBytes)
	if s == nil {
		return nil, fmt.Errorf("environments: %s: there is no source", o.Kind)
	}
	m := &Manager{o: o, source: s, linger: linger, stop: make(chan struct{}), live: map[*Episode]struct{}{}, noted: map[string]bool{}}
	m.counts.failures = map[string]int64{}
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
	if m.spec, err = panics.Value("its spec", func() (Spec, error) { return s.Spec(), nil }); err != nil {
		return nil, err
	}
	if m.tools, err = schemas(m.spec.Actions()); err != nil {
		return nil, err
	}
	m.sweep()
	if err := m.openPool(pools); err != nil {
		return nil, err
	}
	if lease := m.o.Pool.Lease; lease > 0 {
		m.beating.Go(func() { m.beat(max(lease/4, time.Millisecond)) })
	}
	return m, nil
}

func (m *Manager) openPool(pools *pool.Set) (err error) {
	o := m.o.Pool
	o.Name, o.Make = cmp.Or(o.Name, m.o.Kind), m.make
	if m.spec.Once {
		o.Uses = 1
	}
	if o.Note == nil {
		o.Note = m.note
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
		case !tools.ValidName(t.Name):
			return nil, fmt.Errorf("its tool %q: a name has 1 to 64 letters, digits, _ or -", t.Name)
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

// sweep removes what an earlier process of this owner left behind. That it could not does not keep the run from starting.
func (m *Manager) sweep() {
	s, ok := m.source.(Sweeper)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	removed, err := panics.Value("its sweep", func() ([]string, error) { return s.Sweep(ctx, m.o.Owner) })
	if len(removed) > 0 {
		m.note(fmt.Sprintf("removed what an earlier start left behind: %s", oneLine(strings.Join(removed, ", "))))
	}
	if err != nil {
		m.note(fmt.Sprintf("what an earlier start left behind cannot be removed: %s", oneLine(err.Error())))
	}
}

// make is the pool's.
func (m *Manager) make(ctx context.Context) (pool.Member, error) {
	env, err := panics.Value("its New", func() (Environment, error) { return m.source.New(ctx, m.o.Owner) })
	if err == nil && env == nil {
		err = errors.New("its New returned no environment")
	}
	if err != nil {
		return nil, err
	}
	return newMember(m.o.Kind, env, m.spec.InProcess, &m.left), nil
}

// beat keeps the leases of all episodes alive whose context is not done.
func (m *Manager) beat(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
		}
		m.mu.Lock()
		live := slices.Collect(maps.Keys(m.live))
		m.mu.Unlock()
		for _, e := range live {
			if e.alive() {
				e.Touch()
			}
		}
	}
}

// note tells the user something.
func (m *Manager) note(text string) {
	if m.o.Note != nil {
		m.o.Note(fmt.Sprintf("environment %s: %s", m.o.Kind, text))
	}
}

// noteOnce tells the user something that may happen at each step, the first time.
func (m *Manager) noteOnce(about, text string) {
	m.mu.Lock()
	known := m.noted[about]
	m.noted[about] = true
	m.mu.Unlock()
	if !known {
		m.note(text)
	}
}

// Spec is the source's.
func (m *Manager) Spec() Spec { return m.spec }

// Source is what the environments come from.
func (m *Manager) Source() Source { return m.source }

// Begin waits for an environment and begins an episode of it. The lease is kept alive while ctx lives; some seconds after ctx is done, in which the
// episode can still be asked for its state or score, the episode ends by itself. Every error is a *Failure.
func (m *Manager) Begin(ctx context.Context, owner pool.Owner, s Start) (*Episode, error) {
	began := time.Now()
	lease, err := m.pool.Acquire(ctx, owner)
	if err != nil {
		if ctx.Err() != nil {
			err = causeOf(ctx)
		}
		return nil, m.fail(ctx, AskedLease, err)
	}
	mem, ok := lease.Member().(*member)
	if !ok {
		lease.Break(errors.New("no environment"))
		return nil, m.fail(ctx, AskedLease, fmt.Errorf("the pool lent a %T and no environment", lease.Member()))
	}
	e := newEpisode(m, mem, lease, s)
	e.waited = time.Since(began)
	if err := m.enter(ctx, e); err != nil {
		e.End()
		return nil, m.fail(ctx, AskedLease, err)
	}
	began = time.Now()
	err = e.reset(ctx, s)
	e.resetTook = time.Since(began)
	if err != nil {
		e.End()
		return nil, err
	}
	return e, nil
}

// enter ties an episode to the manager and to its context.
func (m *Manager) enter(ctx context.Context, e *Episode) error {
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.live[e] = struct{}{}
	}
	m.mu.Unlock()
	if closed {
		return errors.New("the environments are closed")
	}
	e.follow(ctx)
	return nil
}

// fail makes the Failure of an error, and counts it.
func (m *Manager) fail(ctx context.Context, what string, err error) *Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Failure{Kind: m.o.Kind, What: what, Err: err, givenUp: givenUp(ctx, err)}
	wrong := (*TaskError)(nil)
	f.task = !f.givenUp && what == AskedReset && errors.As(err, &wrong)
	switch {
	case f.givenUp:
		m.counts.given++
	case f.task:
		m.counts.refused++
	default:
		m.counts.failures[what]++
	}
	return f
}

// count changes the numbers.
func (m *Manager) count(f func(c *counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.counts)
}

// Stats are the numbers of now.
func (m *Manager) Stats() Stats {
	p := m.pool.Stats()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.counts
	s := Stats{
		Kind: m.o.Kind, Pool: p, Cut: c.cut, Dropped: c.dropped, GivenUp: c.given, Refused: c.refused, Failures: maps.Clone(c.failures),
		resets: c.resets, steps: c.steps,
	}
	s.quantiles()
	return s
}

// Close ends all episodes, closes the environments and their source, and waits for what runs. It is an error where a call of an environment never
// returned. A second call returns what the first did.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		defer m.mu.Unlock()
		return m.closeErr
	}
	m.closed = true
	live := slices.Collect(maps.Keys(m.live))
	m.mu.Unlock()
	close(m.stop)
	m.beating.Wait()
	for _, e := range live {
		e.End()
	}
	errs := []error{m.pool.Close()}
	returned := make(chan struct{})
	go func() { m.left.Wait(); close(returned) }()
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
		m.closeErr = fmt.Errorf("environments: %s: %s", m.o.Kind, oneLine(err.Error()))
	}
	return m.closeErr
}
