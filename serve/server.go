// Package serve offers an engine over the HTTP routes of vLLM, OpenAI and Anthropic: models, completions, chat completions with
// tools, Responses, Messages, tokens in and tokens out, tokenize, pause and resume, weight versions, metrics.
//
//	HTTP request ─► parse and check ─► choices (n per prompt) ─► gate (pause) ─► engines.Streamer
//	                                        │ text, logprobs, tool calls          │ tokens as they are sampled
//	HTTP reply   ◄─ one JSON or SSE ◄───────┴─────────────────────────────────────┘
//
// What a route cannot do exactly it refuses by name; unknown fields are ignored, as vLLM does. A Server is safe for
// concurrent use. Every request joins the goroutines it starts, and a client that goes away ends its choices at once.
//
// It does not train, choose weights or keep conversations: a request holds all that it needs. Sampling is the engine's.
package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Tokenizer turns text into ids and back; masks/tokenizer implements it.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32, skipSpecial bool) string
	Bytes(id int32) []byte
	Token(id int32) (string, bool)
	IsSpecial(id int32) bool
	AddedByTemplate() (before, after []int32) // what the tokenizer puts around a text prompt
}

// Renderer turns messages into ids; *masks.Renderer implements it.
type Renderer interface {
	Prompt(messages []trajectory.Message, tools []json.RawMessage, addGenerationPrompt bool) (ids []int32, text string, err error)
	StopIDs() []int32
}

// Stats are the engine's figures for /metrics; counters since its start.
type Stats struct {
	Running, Waiting         int
	CacheUsage               float64 // 0 to 1
	PrefixQueries, PrefixHit int64   // prompt tokens looked up, and found
	Preemptions              int64
}

// Options configure a server. Engine, Tokenizer, Models and Vocab are needed.
type Options struct {
	Engine    engines.Engine
	Tokenizer Tokenizer
	Renderer  Renderer // nil: the model has no chat template, and the chat routes refuse
	StopIDs   []int32  // that end a completion of every route unless ignore_eos
	Models    []string // names under which the model is served; replies carry the first
	Root      string   // what /v1/models tells as root
	Vocab     int      // prompt ids must be below it

	ToolParser string           // one of Agents.Parsers: the form in which the model writes calls; "": agents.DefaultParser
	Agents     *agents.Registry // call formats that ToolParser names; nil: those of package agents

	APIKey       string        // "": none is asked for, and only requests to a loopback host are served
	RawLogprobs  bool          // logprobs at temperature 1, untruncated; else of the distribution that was sampled
	MaxQueue     int           // choices running and waiting; 0: 1024
	MaxBody      int64         // bytes of a request; 0: 32 MiB
	MaxHeld      int64         // bytes of all requests that are held at once; 0: 16 times MaxBody
	MaxLogprobs  int           // of logprobs and top_logprobs; 0: 20
	Version      string        // what /version tells
	ReadTimeout  time.Duration // for a request's body; 0: 60 s
	WriteTimeout time.Duration // for each 64 KiB of a reply to a client that does not read; 0: 30 s
	KeepAlive    time.Duration // after so long without a word a stream of Responses or Messages says that it lives; 0: 15 s

	Warn  func(text string) // what a person must know: a panic with its stack; nil: nobody is told
	Stats func() Stats      // nil: the server's own counts of requests
	// Reload replaces the weights by those of a folder; the server calls it at a barrier of the engine. It changes
	// nothing when it fails. nil: /collective_rpc is not offered.
	Reload func(ctx context.Context, path string) error
	Now    func() time.Time // nil: time.Now
	Seed   func() uint64    // of requests without one; nil: the system's random numbers
}

// Server is the handler. Make one with New, and Close it before its engine.
type Server struct {
	o       Options
	mux     *http.ServeMux
	created int64
	maxLen  int
	queued  atomic.Int64 // choices admitted, and requests for them whose text is tokenized
	texting atomic.Int64 // requests of /tokenize and /detokenize
	held    atomic.Int64 // bytes of the requests that are being answered
	gate    gate
	metrics metrics
	weights weights
	serial  atomic.Uint64
	prefix  string // of ids, so that those of two servers differ

	limited http.Handler  // answers with deadlines on body and reply
	texts   chan struct{} // holds one token for each text that is being tokenized
	maxText int           // bytes of a text that is tokenized
}

// New checks o and returns a server.
func New(o Options) (*Server, error) {
	switch {
	case o.Engine == nil || o.Tokenizer == nil:
		return nil, errors.New("serve: an engine and a tokenizer are needed")
	case len(o.Models) == 0 || o.Models[0] == "":
		return nil, errors.New("serve: the model has no name; give Options.Models")
	case o.Vocab < 1:
		return nil, fmt.Errorf("serve: Vocab is %d, it must be at least 1", o.Vocab)
	}
	if o.ToolParser == "" {
		o.ToolParser = agents.DefaultParser
	}
	if o.Agents == nil {
		o.Agents = agents.NewRegistry()
	}
	if _, ok := o.Agents.Parser(o.ToolParser); !ok {
		return nil, fmt.Errorf("serve: there is no tool parser %q; allowed: %v", o.ToolParser, o.Agents.Parsers())
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 1024
	}
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = 16 * o.MaxBody
	}
	if o.MaxLogprobs == 0 {
		o.MaxLogprobs = 20
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = time.Minute
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Seed == nil {
		o.Seed = randomSeed
	}
	s := &Server{o: o, mux: http.NewServeMux(), created: o.Now().Unix(), maxLen: o.Engine.Capabilities().MaxModelLen}
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	s.prefix = hex.EncodeToString(id[:])
	s.limited = httpserver.Handler(http.HandlerFunc(s.answer), httpserver.Options{Read: o.ReadTimeout, Write: o.WriteTimeout})
	s.texts = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	s.maxText = textLimit(o.Tokenizer, o.Vocab, s.maxLen)
	s.gate.init()
	s.weights.init()
	s.metrics.init()
	s.routes()
	return s, nil
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func (s *Server) routes() {
	for _, r := range s.table() {
		s.mux.HandleFunc(r.method+" "+r.path, r.handle)
	}
}

type route struct {
	method, path string
	handle       http.HandlerFunc
}

func (s *Server) table() []route {
	table := []route{
		{"GET", "/health", s.health},
		{"GET", "/ping", s.health},
		{"GET", "/version", s.version},
		{"GET", "/metrics", s.serveMetrics},
		{"GET", "/openapi.json", s.openAPI},
		{"GET", "/v1/models", s.models},
		{"GET", "/v1/models/{name...}", s.model},
		{"POST", "/v1/completions", handle(s, false, s.answerCompletion)},
		{"POST", "/v1/chat/completions", handle(s, false, s.answerChat)},
		{"POST", "/inference/v1/generate", handle(s, false, s.answerGenerate)},
		{"POST", "/tokenize", handle(s, true, s.tokenize)},
		{"POST", "/detokenize", handle(s, true, s.detokenize)},
		{"POST", "/pause", s.pause},
		{"POST", "/resume", s.resume},
		{"GET", "/is_paused", s.isPaused},
		{"POST", "/update_weight_version", s.updateWeightVersion},
		{"GET", "/weight_info", s.weightInfo},
		{"POST", "/reset_prefix_cache", s.resetPrefixCache},
	}
	table = append(table, agentRoutes(s)...)
	if s.o.Reload != nil {
		table = append(table, route{"POST", "/collective_rpc", s.collectiveRPC})
	}
	return table
}

// Close aborts what runs, with the tokens it has, and refuses what waits and comes.
func (s *Server) Close() {
	s.gate.shut()
	s.weights.thaw()
}

// Drain waits until no choice is running or waiting and no text is tokenized, or ctx is done.
func (s *Server) Drain(ctx context.Context) error {
	for s.queued.Load()+s.texting.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.limited.ServeHTTP(w, r) }

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if err := s.admit(r); err != nil {
		refuse(s, w, r, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		refuse(s, w, r, s.noRoute(r))
		return
	}
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			refuse(s, w, r, s.panicked(r.Method+" "+r.URL.Path, p))
		}
	}()
	s.mux.ServeHTTP(w, r)
}

// panicked is the error of what panicked with p; the stack is for those who run the server.
func (s *Server) panicked(what string, p any) error {
	if s.o.Warn != nil {
		s.o.Warn(fmt.Sprintf("serve: %s panicked: %v\n%s", what, p, debug.Stack()))
	}
	return &dialects.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("serve: %s panicked: %v", what, p)}
}

func (s *Server) noRoute(r *http.Request) error {
	for _, route := range s.table() {
		if route.path == r.URL.Path {
			return &dialects.Error{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s takes %s, not %s", wording.Clip(r.URL.Path, maxName), route.method, r.Method)}
		}
	}
	return &dialects.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no route %s %s", wording.Clip(r.Method, maxName), wording.Clip(r.URL.Path, maxName))}
}

// id names a reply.
func (s *Server) id(kind string) string {
	return fmt.Sprintf("%s-%s%08x", kind, s.prefix, s.serial.Add(1))
}

// gate holds requests while the server is paused and knows what runs.
type gate struct {
	mu      sync.Mutex
	paused  bool
	closed  bool
	open    chan struct{} // closed while requests may pass
	running map[*struct{ _ byte }]context.CancelCauseFunc
	idle    chan struct{} // closed and made anew when the last one leaves
}

// errAborted ends a choice with the finish reason abort.
var errAborted = errors.New("serve: aborted")

func (g *gate) init() {
	g.open, g.idle = make(chan struct{}), make(chan struct{})
	close(g.open)
	g.running = map[*struct{ _ byte }]context.CancelCauseFunc{}
}

// enter waits until the server is not paused. leave must be called; the context ends with errAborted at an abort.
func (g *gate) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	for {
		g.mu.Lock()
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, nil, &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the server is shutting down"}
		case !g.paused:
			inner, cancel := context.WithCancelCause(ctx)
			key := &struct{ _ byte }{}
			g.running[key] = cancel
			g.mu.Unlock()
			return inner, func() { g.leave(key, cancel) }, nil
		}
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (g *gate) leave(key *struct{ _ byte }, cancel context.CancelCauseFunc) {
	cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, key)
	if len(g.running) == 0 {
		close(g.idle)
		g.idle = make(chan struct{})
	}
}

// pause keeps requests from entering. It returns what running must be waited for: nil when nothing runs.
func (g *gate) pause(abort bool) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.paused && !g.closed {
		g.paused, g.open = true, make(chan struct{})
	}
	if abort {
		for _, cancel := range g.running {
			cancel(errAborted)
		}
	}
	if len(g.running) == 0 {
		return nil
	}
	return g.idle
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused {
		g.paused = false
		close(g.open)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.pause(true)
	g.resume()
}

func (g *gate) state() (paused, closed bool, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused, g.closed, len(g.running)
}
