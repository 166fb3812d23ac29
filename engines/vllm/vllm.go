// Package vllm samples from vLLM servers over HTTP and keeps their weights equal to the trainer's.
//
//	Generate ─► router ─► replica ─► POST /inference/v1/generate, or /v1/completions through go-openai
//	Update   ─► every replica: pause ─► load ─► version ─► empty the caches ─► resume on probation ─► proof ─► serve
//
// Several servers are replicas of one policy: a request goes to the replica that has its session, or else to the least
// loaded one, and again to another when a replica fails. A replica that was away is used only after it proved that it has
// the current weights. An Engine is safe for concurrent use; its goroutines end with Close.
//
// An Engine holds a fleet (the replicas, and the weights that they are to have), a router (requests), an updater (weights, sleep) and a
// life (what runs until Close); a watcher looks at the replicas. A replica holds a client (HTTP), a completer (the routes that sample),
// a standing (its condition, and the weights that it has) and looks (at the version of these).
//
// It does not make the weights or the probes that prove them (package orchestrator/weights does), and the servers' own settings are
// theirs.
package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	WayIPC      Way = "ipc"      // the extension opens the trainer's device memory, of one card, by handles of CUDA IPC
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
	InFlight       int           // requests in flight for each server, of all servers together; the others wait their turn here [1024]
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
	options Options
	life    *life
	fleet   *fleet
	router  *router
	updater *updater
}

var (
	_ engines.Engine    = (*Engine)(nil)
	_ engines.Logprober = (*Engine)(nil)
	_ engines.Sleeper   = (*Engine)(nil)
	_ engines.Loaded    = (*Engine)(nil)
)

// New connects to the servers and probes each one. All must answer and serve the same context length.
func New(ctx context.Context, o Options) (*Engine, error) {
	o, err := o.defaults()
	if err != nil {
		return nil, fmt.Errorf("vllm: %w", err)
	}
	life, fleet := newLife(), newFleet(o)
	e := &Engine{
		options: o, life: life, fleet: fleet, updater: newUpdater(o, fleet, life),
		router: &router{options: o, fleet: fleet, life: life, places: make(chan struct{}, o.InFlight*len(o.URLs))},
	}
	if err := fleet.start(ctx); err != nil {
		life.close()
		fleet.idle()
		return nil, fmt.Errorf("vllm: %w", err)
	}
	watch := &watcher{options: o, fleet: fleet, life: life, updater: e.updater}
	for _, r := range fleet.replicas {
		life.running.Go(func() { watch.watch(r) })
	}
	return e, nil
}

// Servers are the replicas as they were probed.
func (e *Engine) Servers() []Server {
	var out []Server
	for _, r := range e.fleet.replicas {
		out = append(out, r.standing.info())
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
	return engines.Capabilities{TokenIDs: true, WeightUpdates: !e.options.Frozen, Top: e.fleet.top(), MaxModelLen: e.fleet.context()}
}

// Load implements engines.Loaded.
func (e *Engine) Load() []engines.Load {
	var out []engines.Load
	for _, r := range e.fleet.replicas {
		one := engines.Load{Server: r.url, Running: r.standing.works(), Slots: e.options.InFlight}
		switch state, reason := r.standing.status(); {
		case state != serving && reason != nil:
			one.Down = fmt.Sprintf("%s: %v", state, reason)
		case state != serving:
			one.Down = state.String()
		}
		out = append(out, one)
	}
	if len(out) == 1 { // of several, whichever has a place first takes them
		out[0].Waiting = int(e.router.waiting.Load())
	}
	return out
}

// Close implements engines.Engine. The servers go on.
func (e *Engine) Close() error {
	e.life.close()
	var all sync.WaitGroup
	for _, r := range e.fleet.replicas {
		all.Go(r.unload)
	}
	all.Wait()
	e.fleet.idle()
	return nil
}

// Generate implements engines.Engine. What may pass (a lost connection, 429, 5xx, an unusable reply, a replica that went
// out of service) is tried again, on another replica if there is one; what cannot pass is returned at once.
func (e *Engine) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	c, err := e.generate(ctx, q)
	if err != nil {
		return engines.Completion{}, fmt.Errorf("vllm: request %s: %w", q.ID, err)
	}
	return c, nil
}

func (e *Engine) generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	if err := q.ValidateFree(); err != nil {
		return engines.Completion{}, err
	}
	if err := e.fleet.check(&q); err != nil {
		return engines.Completion{}, err
	}
	var c engines.Completion
	err := e.router.attempts(ctx, q.Session, func(ctx context.Context, r *replica) (err error) {
		c, err = r.generate(ctx, q)
		return err
	})
	return c, err
}

// Logprobs implements engines.Logprober. ids must be shorter than the context: vLLM samples a token with every prompt.
func (e *Engine) Logprobs(ctx context.Context, ids []int32) ([]float32, error) {
	out, err := e.logprobs(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("vllm: logprobs: %w", err)
	}
	return out, nil
}

func (e *Engine) logprobs(ctx context.Context, ids []int32) (out []float32, err error) {
	if len(ids) < 2 || slices.Min(ids) < 0 {
		return nil, fmt.Errorf("%d ids; a logprob needs a token and one before it, none negative", len(ids))
	}
	if most := e.fleet.context(); len(ids) >= most {
		return nil, fmt.Errorf("%d tokens of %d leave no room: %w", len(ids), most, engines.ErrTooLong)
	}
	err = e.router.attempts(ctx, "", func(ctx context.Context, r *replica) (err error) {
		out, err = r.logprobs(ctx, ids)
		return err
	})
	return out, err
}

// Tokenize returns the ids that the servers' tokenizer cuts a text into, without tokens that it would put around it. Replicas
// that disagree are an error; one that does not offer the route is errors.ErrUnsupported.
func (e *Engine) Tokenize(ctx context.Context, text string) (ids []int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.StartTimeout)
	defer cancel()
	for i, r := range e.fleet.replicas {
		var answer struct {
			Tokens []int32 `json:"tokens"`
		}
		err := r.client.call(ctx, http.MethodPost, "/tokenize", map[string]any{"model": r.standing.info().Model, "prompt": text, "add_special_tokens": false}, &answer)
		var status *statusError
		if errors.As(err, &status) && slices.Contains([]int{404, 405, 501}, status.Status) {
			err = errors.ErrUnsupported
		}
		if err != nil {
			return nil, fmt.Errorf("vllm: %s: tokenize: %w", r.url, err)
		}
		if i > 0 && !slices.Equal(ids, answer.Tokens) {
			return nil, fmt.Errorf("vllm: %s cuts a text into other tokens than %s; replicas must be alike", r.url, e.fleet.replicas[0].url)
		}
		ids = answer.Tokens
	}
	return ids, nil
}
