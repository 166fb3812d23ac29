package environments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/pool"
)

const (
	grace     = time.Second      // that a call which was given up has to return, until its environment is closed nevertheless
	checkTime = 10 * time.Second // of one Check
	closeTime = 30 * time.Second // of one Close, after which nobody waits for it any longer
)

// member is an environment in its pool. It keeps the promise that no two methods of the environment are called at once, and it bounds each of them:
// a call that does not return is left behind, and the environment is closed.
type member struct {
	kind      string
	env       Environment
	inProcess bool
	busy      chan struct{} // holds a token while a method of env runs
	left      *sync.WaitGroup
	closing   sync.Once
	closeErr  error
}

var (
	_ pool.Member  = (*member)(nil)
	_ pool.Checker = (*member)(nil)
	_ pool.Sizer   = (*member)(nil)
)

func newMember(kind string, env Environment, inProcess bool, left *sync.WaitGroup) *member {
	return &member{kind: kind, env: env, inProcess: inProcess, busy: make(chan struct{}, 1), left: left}
}

// idle tells whether no method runs.
func (m *member) idle() bool { return len(m.busy) == 0 }

// ask calls a method of the environment under a deadline. It returns then, or when ctx is done, also where the method does not; nobody may use the
// environment after that. A panic is an error.
func ask[T any](ctx context.Context, m *member, limit time.Duration, what string, f func(ctx context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	outer := ctx
	if outer.Err() != nil {
		return none, causeOf(outer)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case m.busy <- struct{}{}:
	default:
		return none, errors.New("another call of this environment still runs")
	}
	answers := make(chan answer, 1)
	m.left.Add(1)
	go func() {
		defer m.left.Done()
		v, err := panics.Value(what+" of "+m.kind, func() (T, error) { return f(ctx) })
		<-m.busy
		answers <- answer{v, err}
	}()
	late := func() error {
		if outer.Err() != nil {
			return causeOf(outer)
		}
		return fmt.Errorf("it did not return within %s, and the environment was closed; give it longer with %s_timeout, or mend what keeps it", limit, settingOf(what))
	}
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil { // it gave up because it was told to
			a.err = late()
		}
		return a.v, a.err
	case <-ctx.Done():
		return none, late()
	}
}

// settingOf names the deadline that bounds a call: of a reset, or of a step.
func settingOf(what string) string {
	if what == AskedReset || what == AskedRestore {
		return AskedReset
	}
	return AskedStep
}

// Check asks an environment that can say it whether it works.
func (m *member) Check(ctx context.Context) error {
	c, ok := m.env.(Checker)
	if !ok {
		return nil
	}
	_, err := ask(ctx, m, checkTime, "check", func(ctx context.Context) (struct{}, error) { return struct{}{}, c.Check(ctx) })
	return err
}

// Memory is that of an environment that knows it, in bytes.
func (m *member) Memory() int64 {
	s, ok := m.env.(pool.Sizer)
	if !ok {
		return 0
	}
	n, err := panics.Value("memory of "+m.kind, func() (int64, error) { return s.Memory(), nil })
	if err != nil {
		return 0
	}
	return n
}

// Close closes the environment, once. A call that still runs has been given up, and has a moment to return. One that does not is a process or a server
// that hangs, and closing is what ends it; what hangs in this process cannot be ended, so that its Close waits, in the background, until it returns.
func (m *member) Close() error {
	m.closing.Do(func() {
		closed := make(chan error, 1)
		m.left.Add(1)
		go func() {
			defer m.left.Done()
			t := time.NewTimer(grace)
			defer t.Stop()
			var late <-chan time.Time
			if !m.inProcess {
				late = t.C
			}
			select {
			case m.busy <- struct{}{}: // it stays taken
			case <-late:
			}
			closed <- panics.Guard("close of "+m.kind, m.env.Close)
		}()
		limit := closeTime
		if m.inProcess && !m.idle() {
			limit = 2 * grace
		}
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case err := <-closed:
			if err != nil {
				m.closeErr = fmt.Errorf("environments: %s: close: %s", m.kind, oneLine(err.Error()))
			}
		case <-t.C:
			m.closeErr = fmt.Errorf("environments: %s: close: a call of the environment, or its Close, did not return within %s; it is left behind", m.kind, limit)
		}
	})
	return m.closeErr
}
