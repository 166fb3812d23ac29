package environments

// The Manager and Episode are written against these signatures:
//
//	type Options struct {
//		Kind         string        // in errors
//		Owner        string        // the run: labels what environments leave outside of the process
//		Pool         pool.Options  // Name and Make are the manager's
//		ResetTimeout time.Duration // of one Reset, waiting for a lease not included
//		StepTimeout  time.Duration // of one Step
//		Note         func(text string)
//	}
//	func Open(s Source, pools *pool.Set, o Options) (*Manager, error)
//	func (m *Manager) Begin(ctx context.Context, owner pool.Owner, s Start) (*Episode, error) // waits for a lease, resets; *Failure
//	func (e *Episode) First() Observation                        // of the reset
//	func (e *Episode) Step(ctx, Action) (Result, error)          // *Failure: infrastructure
//	func (e *Episode) Ready() time.Duration                      // how long it waited; and reset took
//	func (e *Episode) State(ctx) (json.RawMessage, bool, error); Restore; Score; Actions; Call
//	func (e *Episode) End()                                      // gives the lease back, once; safe to call again, also from a deferred call after a panic
//	func (m *Manager) Stats() Stats ; func (m *Manager) Close() error
