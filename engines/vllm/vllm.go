// Package vllm samples from vLLM servers over HTTP and keeps their weights equal to the trainer's.
//
//	Generate ─► router ─► replica ─► POST /inference/v1/generate, or /v1/completions through go-openai
//	Update   ─► every replica: pause ─► load ─► version ─► empty the caches ─► resume on probation ─► proof ─► serve
//
// Several servers are replicas of one policy: a request goes to the replica that has its session, or else to the least
// loaded one, and again to another when a replica fails. A replica that was away is used only after it proved that it has
// the current weights. An Engine is safe for concurrent use; its goroutines end with Close.
//
// It does not make the weights or the probes that prove them (package orchestrator/weights does), and the servers' own settings are
// theirs.
package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
)

// Way is how new weights reach a server.
type Way string

// Ways.
const (
	WayAuto     Way = "auto"     // lora for a PEFT folder, else disk
	WayDisk     Way = "disk"     // the server reads the folder
	WayLoRA     Way = "lora"     // the server reads the adapter
	WayTransfer Way = "transfer" // the tensors go through shared memory to the extension in engines/vllm/extension
	WayGloo     Way = "gloo"     // they are broadcast over a process group of CPUs to that extension
	WayNCCL     Way = "nccl"     // they are broadcast over NCCL to vLLM's own engine; the servers run with backend nccl
)

// Options configure an engine. A zero value takes the default in brackets.
type Options struct {
	URLs           []string      // of the replicas; /v1 at the end may be given or not
	Model          string        // served name [the first that is no adapter]
	APIKey         string        //
	Run            string        // whose weights these are, as NewRun makes it; a run that is resumed has the same [a new one]
	Frozen         bool          // the weights are never updated, such as a teacher's: the servers must keep those that they have
	Way            Way           // [auto]
	AttemptTimeout time.Duration // of one attempt of a request [10 min]
	InFlight       int           // requests that a server works on at once; the others wait their turn here [1024]
	Attempts       int           // most attempts of a request [6]
	Backoff        time.Duration // before the second attempt, then doubled up to 5 s [100 ms]
	Patience       time.Duration // how long a request waits for any replica to serve [2 min]
	ControlTimeout time.Duration // of one step of an update [5 min]
	StartTimeout   time.Duration // of finding out what a server can do [1 min]
	HealthEvery    time.Duration // between two looks at a replica [2 s]
	HealthTimeout  time.Duration // of one look [5 s]
	Sleep          int           // level of Sleep: 1 keeps the weights in host memory, 2 drops them [2]
	Gone           func() error  // why servers that are down will not come back; nil, or answering nil: they may
	Collectives    Collectives   // makes the process groups of gloo and nccl; nil: these ways are refused
	ChunkBytes     int64         // beyond which a chunk that is broadcast is closed [256 MiB]; a server holds two chunks
	Transport      *http.Transport
}

func (o Options) defaults() (Options, error) {
	if len(o.URLs) == 0 {
		return o, errors.New("no url is given; name at least one server, such as http://127.0.0.1:8000")
	}
	for i, u := range o.URLs {
		if !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://") {
			return o, fmt.Errorf("url %d is %q; it must begin with http:// or https://", i, u)
		}
	}
	if o.Way == "" {
		o.Way = WayAuto
	}
	if o.Way.backend() != "" && o.Collectives == nil { // before a server is asked anything
		_, err := o.meet(context.Background(), "", 2)
		return o, err
	}
	if o.Run == "" {
		o.Run = NewRun("")
	}
	if o.Attempts == 0 {
		o.Attempts = 6
	}
	if o.InFlight == 0 {
		o.InFlight = 1024 // more than a server decodes at once; what it cannot decode it would only keep
	}
	if o.Sleep == 0 {
		o.Sleep = 2
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = chunkBytes
	}
	if o.Gone == nil {
		o.Gone = func() error { return nil }
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&o.AttemptTimeout, 10 * time.Minute},
		{&o.Backoff, 100 * time.Millisecond},
		{&o.Patience, 2 * time.Minute},
		{&o.ControlTimeout, 5 * time.Minute},
		{&o.StartTimeout, time.Minute},
		{&o.HealthEvery, 2 * time.Second},
		{&o.HealthTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	return o, nil
}

// Engine implements engines.Engine over replicas.
type Engine struct {
	options  Options
	replicas []*replica
	sessions *sessions
	places   chan struct{}   // one for each request in flight
	ctx      context.Context // ends at Close
	cancel   context.CancelFunc
	turn     chan struct{} // holds a token: who takes it changes weights

	mu       sync.Mutex
	closed   bool
	current  *engines.Weights // proven by every replica that serves; nil before the first update
	failed   error            // of the last update: no replica serves until one succeeds
	lost     error            // another run took a server over; nothing is done from then on
	sleeping bool             // from Sleep to the next update that succeeds
	running  sync.WaitGroup   // requests, updates and the health loops
}

var (
	_ engines.Engine    = (*Engine)(nil)
	_ engines.Logprober = (*Engine)(nil)
	_ engines.Sleeper   = (*Engine)(nil)
)

// New connects to the servers and probes each one. All must answer and serve the same context length.
func New(ctx context.Context, o Options) (*Engine, error) {
	o, err := o.defaults()
	if err != nil {
		return nil, fmt.Errorf("vllm: %w", err)
	}
	e := &Engine{options: o, sessions: newSessions(), turn: make(chan struct{}, 1), places: make(chan struct{}, o.InFlight*len(o.URLs))}
	e.turn <- struct{}{}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for _, u := range o.URLs {
		e.replicas = append(e.replicas, newReplica(u, o))
	}
	errs := make([]error, len(e.replicas))
	var all sync.WaitGroup
	for i, r := range e.replicas {
		all.Go(func() { errs[i] = r.start(ctx) })
	}
	all.Wait()
	for i, r := range e.replicas {
		if errs[i] == nil && r.info().MaxModelLen != e.replicas[0].info().MaxModelLen {
			errs[i] = fmt.Errorf("its context is %d tokens, that of %s %d; replicas must be alike", r.info().MaxModelLen, e.replicas[0].url, e.replicas[0].info().MaxModelLen)
		}
		if errs[i] != nil {
			e.cancel()
			e.idle()
			return nil, fmt.Errorf("vllm: %s: %w", r.url, errs[i])
		}
	}
	for _, r := range e.replicas {
		e.running.Go(func() { e.watch(r) })
	}
	return e, nil
}

// start takes a server into service as it is, but not one whose last update failed: that one waits for weights.
func (r *replica) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.StartTimeout)
	defer cancel()
	s, err := r.probe(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.born = fresh
	if run, _ := cutVersion(s.Version); run == "" {
		r.born = s.Version
	}
	r.mu.Unlock()
	r.adopt(s.Version, s.Model, r.options.number(s.Version, 0))
	if isUnproven(s.Version) {
		r.set(behind, errors.New("an earlier update of this server failed; it needs one that succeeds"))
	} else {
		r.set(serving, nil)
	}
	return nil
}

// Servers are the replicas as they were probed.
func (e *Engine) Servers() []Server {
	var out []Server
	for _, r := range e.replicas {
		out = append(out, r.info())
	}
	return out
}

// Summary is one line a replica.
func (e *Engine) Summary() string {
	var lines []string
	for _, s := range e.Servers() {
		line := s.String()
		if run, _ := cutVersion(s.Version); run != "" && run != e.options.Run {
			line += " (another run's, which stops when this one changes them)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Capabilities implements engines.Engine.
func (e *Engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, WeightUpdates: !e.options.Frozen, MaxModelLen: e.replicas[0].info().MaxModelLen}
}

// enter counts a request or an update, unless the engine is closed.
func (e *Engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engines.ErrClosed
	}
	e.running.Add(1)
	return nil
}

// Close implements engines.Engine. The servers go on.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.running.Wait()
	var all sync.WaitGroup
	for _, r := range e.replicas {
		all.Go(r.unload)
	}
	all.Wait()
	e.idle()
	return nil
}

func (e *Engine) idle() {
	for _, r := range e.replicas {
		r.http.CloseIdleConnections()
		r.direct.closeIdle(time.Now())
		r.leave()
	}
}
