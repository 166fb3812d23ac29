// Package serve offers an engine over the HTTP routes of vLLM, OpenAI and Anthropic: models, completions, chat completions with
// tools, Responses, Messages, tokens in and tokens out, tokenize, pause and resume, weight versions, metrics.
//
//	HTTP request ─► parse and check ─► choices (n per prompt) ─► gate (pause) ─► engines.Streamer
//	                                        │ text, logprobs, tool calls          │ tokens as they are sampled
//	HTTP reply   ◄─ one JSON or SSE ◄───────┴─────────────────────────────────────┘
//
// Each route's handler (completionsAPI, chatAPI, generateAPI, agentAPI, tokenizeAPI, control) holds the parts that it uses: models
// (names), stamp (ids and dates of replies), codec (text and tokens, within bounds), queue (what is answered at once), completer
// (choices and the engine), weights (names of versions). None of them knows the Server.
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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	forming "github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Tokenizer turns text into ids and back; masks/tokenizer implements it.
type Tokenizer interface {
	forming.Tokenizer
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
	routes  []route
	limited http.Handler // answers with deadlines on body and reply
	queue   queue
	gate    gate
	weights weights
	metrics metrics
	stamp   *stamp
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
		return nil, fmt.Errorf("serve: there is no tool parser %q; allowed: %s", o.ToolParser, strings.Join(o.Agents.Parsers(), ", "))
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
	s := &Server{o: o, mux: http.NewServeMux(), queue: queue{most: o.MaxQueue, maxBody: o.MaxBody, maxHeld: o.MaxHeld}, stamp: newStamp(o.Now)}
	s.limited = httpserver.Handler(http.HandlerFunc(s.answer), httpserver.Options{Read: o.ReadTimeout, Write: o.WriteTimeout})
	s.gate.init()
	s.weights.init(o.Engine)
	s.metrics.init()
	s.routes = s.table()
	for _, r := range s.routes {
		s.mux.HandleFunc(r.method+" "+r.path, r.handle)
	}
	return s, nil
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

type route struct {
	method, path string
	handle       http.HandlerFunc
}

// table makes the handlers of all routes out of the parts that they share.
func (s *Server) table() []route {
	o, maxLen := s.o, s.o.Engine.Capabilities().MaxModelLen
	codec := newCodec(o, maxLen)
	models := &models{names: o.Models, root: o.Root, created: o.Now().Unix(), maxLen: maxLen}
	engine := &completer{
		engine: o.Engine, tokenizer: o.Tokenizer, gate: &s.gate, metrics: &s.metrics, now: o.Now, seed: o.Seed, warn: o.Warn,
		rawLogprobs: o.RawLogprobs, maxLogprobs: o.MaxLogprobs,
	}
	forms := newForms(codec, o.Engine)
	talks := &conversations{codec: codec, forms: forms, calls: callParser{o.Agents, o.ToolParser}, queue: &s.queue, engine: engine}
	completions := &completionsAPI{models: models, stamp: s.stamp, codec: codec, forms: forms, queue: &s.queue, engine: engine, weights: &s.weights}
	chat := &chatAPI{models: models, stamp: s.stamp, codec: codec, talks: talks, engine: engine, weights: &s.weights}
	generate := &generateAPI{models: models, stamp: s.stamp, codec: codec, forms: forms, engine: engine, weights: &s.weights}
	tokens := &tokenizeAPI{models: models, codec: codec}
	agentAPI := func(d dialects.Dialect) *agentAPI {
		return &agentAPI{Dialect: d, models: models, stamp: s.stamp, codec: codec, queue: &s.queue, talks: talks, engine: engine, keepAlive: o.KeepAlive}
	}
	responses, messages, counts := agentAPI(dialects.Responses()), agentAPI(dialects.Messages()), agentAPI(dialects.MessagesCount())
	table := []route{
		{"GET", "/health", s.health},
		{"GET", "/ping", s.health},
		{"GET", "/version", s.version},
		{"GET", "/metrics", s.serveMetrics},
		{"GET", "/openapi.json", s.openAPI},
		{"GET", "/v1/models", models.list},
		{"GET", "/v1/models/{name...}", models.one},
		{"POST", "/v1/completions", handle(&s.queue, false, completions.answer)},
		{"POST", "/v1/chat/completions", handle(&s.queue, false, chat.answer)},
		{"POST", "/inference/v1/generate", handle(&s.queue, false, generate.answer)},
		{"POST", "/tokenize", handle(&s.queue, true, tokens.tokenize)},
		{"POST", "/detokenize", handle(&s.queue, true, tokens.detokenize)},
		{"POST", "/v1/responses", responses.handle(false, responses.complete)},
		{"POST", "/v1/messages", messages.handle(false, messages.complete)},
		{"POST", "/v1/messages/count_tokens", counts.handle(true, counts.countTokens)},
	}
	return append(table, (&control{queue: &s.queue, gate: &s.gate, weights: &s.weights, reload: o.Reload}).routes()...)
}

// Close aborts what runs, with the tokens it has, and refuses what waits and comes.
func (s *Server) Close() {
	s.gate.shut()
	s.weights.thaw()
}

// Drain waits until no choice is running or waiting and no text is tokenized, or ctx is done.
func (s *Server) Drain(ctx context.Context) error {
	for s.queue.completions.Load()+s.queue.texts.Load() > 0 {
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
	if err := admit(r, s.o.APIKey); err != nil {
		refuse(w, r, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		refuse(w, r, noRoute(s.routes, r))
		return
	}
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			refuse(w, r, panicked(s.o.Warn, r.Method+" "+r.URL.Path, p))
		}
	}()
	s.mux.ServeHTTP(w, r)
}

// panicked is the error of what panicked with p; the stack is for those who run the server.
func panicked(warn func(text string), what string, p any) error {
	if warn != nil {
		warn(fmt.Sprintf("serve: %s panicked: %v\n%s", what, p, debug.Stack()))
	}
	return &dialects.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("serve: %s panicked: %v", what, p)}
}

func noRoute(routes []route, r *http.Request) error {
	for _, route := range routes {
		if route.path == r.URL.Path {
			return &dialects.Error{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s takes %s, not %s", wording.Clip(r.URL.Path, maxName), route.method, r.Method)}
		}
	}
	return &dialects.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no route %s %s", wording.Clip(r.Method, maxName), wording.Clip(r.URL.Path, maxName))}
}
