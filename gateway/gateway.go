package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Renderer turns conversations into ids; *masks.Renderer implements it.
type Renderer interface {
	Prompt(messages []trajectory.Message, tools []json.RawMessage, addGenerationPrompt bool) (ids []int32, text string, err error)
	Continue(p masks.Reply) (ids []int32, prompt string, err error)
}

// History says what the policy reads of its own earlier turns.
type History string

const (
	// AsSampled: the sampled ids stay, also where the client leaves out what the policy thought.
	AsSampled History = "as_sampled"
	// AsSent: a turn is what the client sends of it. Where that leaves out what the policy thought, a new sample begins.
	AsSent History = "as_sent"
)

// Options configure a gateway. Engine, Renderer, Decode, Format, Model and Sampling are needed.
type Options struct {
	Engine   engines.Engine
	Renderer Renderer
	Decode   func(ids []int32) string                        // special tokens left out, but for the marks of calls and thoughts
	Encode   func(text string) []int32                       // for the route of completions; nil: prompts that are texts are refused
	Format   func(specs []tools.Spec) (agents.Format, error) // in which the policy writes calls, for the tools of a request
	Model    string                                          // the name that replies carry, whatever the agent asked for
	Sampling engines.Sampling                                // MaxTokens is the most of a call; StopIDs end every call
	MaxTotal int                                             // tokens of a sample
	Timeout  time.Duration                                   // of one completion; 0: 10 minutes
	History  History                                         // "": AsSampled
	Forms    *forms.Forms                                    // holds replies to the forms that agents ask for; nil: the policy samples freely, as training needs
	Roles    []RoleRule                                      // the first that fits a call names its role
	Ping     time.Duration                                   // between two keep-alives of a stream; 0: 5 s
	MaxBody  int64                                           // bytes of a request; 0: 32 MiB
	Warn     func(text string)                               // what a person must know; nil: nobody is told
	Now      func() time.Time                                // nil: time.Now
	Ending   func() bool                                     // the process is about to end: sessions that end now go on in the next one. nil: from Close on

	formless *sync.Once // a form that is asked for and not held is told once
	unset    *sync.Once // and so are variables of the chat template that are asked for
	rules    *rules     // Roles
	figures  *figures
}

// Gateway is the HTTP handler for all sessions. Make one with New, and Close it before its engine.
type Gateway struct {
	o        Options
	sessions *sessions
	handler  *handler
}

// New checks o and returns a gateway without sessions.
func New(o Options) (*Gateway, error) {
	switch {
	case o.Engine == nil || o.Renderer == nil || o.Decode == nil || o.Format == nil:
		return nil, errors.New("gateway: an engine, a renderer, a decoder and a format are needed")
	case o.Model == "":
		return nil, errors.New("gateway: the model has no name; give Options.Model")
	case o.Sampling.MaxTokens < 1 || o.MaxTotal < 2:
		return nil, fmt.Errorf("gateway: a call may sample %d tokens and a sample may have %d; at least 1 and 2 are needed", o.Sampling.MaxTokens, o.MaxTotal)
	case o.Forms != nil && !o.Engine.Capabilities().Constraints:
		return nil, errors.New("gateway: the engine does not constrain decoding; it cannot hold replies to a form")
	case !o.Engine.Capabilities().TokenIDs:
		return nil, errors.New("gateway: the engine takes no token ids; what it samples cannot be trained")
	}
	if o.History == "" {
		o.History = AsSampled
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Ping == 0 {
		o.Ping = 5 * time.Second
	}
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ending == nil {
		o.Ending = func() bool { return false }
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	o.formless, o.unset, o.rules, o.figures = new(sync.Once), new(sync.Once), newRules(o.Roles), newFigures()
	all := newSessions(o.Ending)
	return &Gateway{o: o, sessions: all, handler: newHandler(o, all)}, nil
}

// Open begins a session. Its key must be new. It fails with ErrLost where the trajectory cannot go on after what it forks off.
func (g *Gateway) Open(o SessionOptions) (*Session, error) {
	if o.Key == "" || o.Name == "" {
		return nil, errors.New("gateway: a session needs a name and a key")
	}
	s, err := newSession(g.o, o)
	if err != nil {
		return nil, err
	}
	if err := g.sessions.add(s); err != nil {
		s.cancel(nil)
		return nil, err
	}
	return s, nil
}

// Recover says that sessions of before go on and are not known yet: until Await tells them, a request with an unknown key waits.
func (g *Gateway) Recover() { g.sessions.recover() }

// Await says which sessions of before go on, by their keys: requests for those that are not open yet wait for them.
func (g *Gateway) Await(keys ...string) { g.sessions.await(keys...) }

// Forgo says that sessions which Await named, and which are not open yet, do not go on: nobody waits for them any more.
func (g *Gateway) Forgo(keys ...string) { g.sessions.forgo(keys...) }

// Expects waits for the session with one of the keys to open, where it goes on after a restart, and tells whether one is open, or may be later.
func (g *Gateway) Expects(ctx context.Context, keys ...string) (open, later bool) {
	f := g.sessions.find(ctx, keys...)
	return f.session != nil, f.session == nil && f.later()
}

// SilentRules are the rules of Options.Roles that named no call since the gateway was made, by their places; nil before a call came.
func (g *Gateway) SilentRules() []int { return g.o.rules.silent() }

// Close ends all sessions: what is being sampled for them is dropped, and their agents are told to try again.
func (g *Gateway) Close() { g.sessions.close() }
