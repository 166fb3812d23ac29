package environments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/tools"
)

// rules are what the environments of a source are held to: deadlines, bounds, the forms of actions and answers. They count what happens.
type rules struct {
	o     Options
	spec  Spec
	tools map[string]*tools.Schema // of the actions

	mu     sync.Mutex
	counts counts
	noted  map[string]bool
}

// newRules completes o. The tools are read by whoever checks actions.
func newRules(o Options) *rules {
	o.Kind = cmp.Or(o.Kind, "environment")
	o.ResetTimeout, o.StepTimeout, o.MaxText = cmp.Or(o.ResetTimeout, resetTime), cmp.Or(o.StepTimeout, stepTime), cmp.Or(o.MaxText, textBytes)
	return &rules{o: o, counts: counts{failures: map[string]int64{}}, noted: map[string]bool{}}
}

// counts are numbers of what the environments did.
type counts struct {
	resets, steps       pool.Durations
	cut, dropped, given int64
	refused             int64
	failures            map[string]int64
}

// note tells the user something.
func (m *rules) note(text string) {
	if m.o.Note != nil {
		m.o.Note(fmt.Sprintf("environment %s: %s", m.o.Kind, text))
	}
}

// noteOnce tells the user something that may happen at each step, the first time.
func (m *rules) noteOnce(about, text string) {
	m.mu.Lock()
	known := m.noted[about]
	m.noted[about] = true
	m.mu.Unlock()
	if !known {
		m.note(text)
	}
}

// sweep removes what an earlier process of this owner left behind. That it could not keeps nobody from starting.
func (m *rules) sweep(from Source) {
	s, ok := from.(Sweeper)
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

// fail makes the Failure of an error, and counts it.
func (m *rules) fail(ctx context.Context, what string, err error) *Failure {
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
func (m *rules) count(f func(c *counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.counts)
}

// numbers are the counts of now.
func (m *rules) numbers() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts
	c.failures = maps.Clone(c.failures)
	return c
}
