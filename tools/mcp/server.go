package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/tools"
)

// bounds of a server's supervision.
type bounds struct {
	start    time.Duration // until it has said what it offers
	check    time.Duration // to answer anything, after a call that it did not answer in time
	grace    time.Duration // to end, after its input is closed, and again after it is asked to
	backoff  time.Duration // before it is started again; doubles with each start in a row
	most     time.Duration // that it may become
	patience int           // ends in a row, without an answered call between them, after which calls no longer wait for the next start
}

var usual = bounds{start: time.Minute, check: 5 * time.Second, grace: 2 * time.Second, backoff: 100 * time.Millisecond, most: time.Minute, patience: 5}

// server keeps one server running: when it ends by itself or hangs it is started again.
type server struct {
	config config
	bounds bounds
	warn   func(string)
	first  []offer // when the job began: what its prompt says

	cancel context.CancelFunc
	ended  chan struct{} // closed when supervise has returned

	mu      sync.Mutex
	current *connection   // nil: it is being started
	down    error         // why calls do not wait for it; nil: they do
	changed chan struct{} // closed, and made anew, when current or down change
}

// connection is one start of a server.
type connection struct {
	session  *sdk.ClientSession
	process  *process // nil over HTTP
	web      *web     // nil over stdio
	stop     context.CancelFunc
	over     chan struct{} // closed when the session is
	err      error         // of the session; valid once over is closed
	answered atomic.Bool   // a call
	listing  chan struct{} // holds one token, that of who asks for the offers, once the first are there: what the server said last stands

	mu     sync.Mutex
	offers []offer
	closed bool           // no more work is begun
	work   sync.WaitGroup // beside calls
}

// open starts a server and returns when it has said what it offers.
func open(ctx context.Context, c config, b bounds, warn func(string)) (*server, error) {
	s := &server{config: c, bounds: b, warn: warn, changed: make(chan struct{}), ended: make(chan struct{})}
	l, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	s.current, s.first = l, l.offered()
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.ended)
		s.supervise(ctx, l)
	}()
	return s, nil
}

// Close ends the server and all that it started.
func (s *server) Close() error {
	s.cancel()
	<-s.ended
	return nil
}

// supervise starts the server again each time it ends.
func (s *server) supervise(ctx context.Context, l *connection) {
	failures, said := 0, false
	for {
		select {
		case <-l.over:
		case <-ctx.Done():
		}
		s.set(nil, nil)
		reason := l.close(ctx.Err() == nil, s.bounds.grace)
		if l.answered.Load() {
			failures = 0
		}
		for l = nil; l == nil; {
			failures++
			if failures == 1 && !said {
				said = true
				s.warn(fmt.Sprintf("mcp: %s: %s; it is started again, each time", s.config.name(), reason))
			}
			if failures == s.bounds.patience {
				s.warn(fmt.Sprintf("mcp: %s: %s; its tools fail until it starts again", s.config.name(), reason))
			}
			if failures >= s.bounds.patience {
				s.set(nil, &tools.BrokenError{Text: "the server of this tool is down; do without it"})
			}
			if retry.Sleep(ctx, retry.Backoff{First: s.bounds.backoff, Most: s.bounds.most}.Wait(failures)) != nil || ctx.Err() != nil {
				s.set(nil, &tools.BrokenError{Text: "the server of this tool was closed"})
				return
			}
			next, err := s.connect(ctx)
			if err != nil {
				reason = err.Error()
				continue
			}
			l = next
		}
		s.set(l, nil)
	}
}

func (s *server) set(l *connection, down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.down = l, down
	close(s.changed)
	s.changed = make(chan struct{})
}

// drop takes a start that is over out of use before supervise has seen it.
func (s *server) drop(l *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == l {
		s.current = nil
	}
}

// ready waits for the server to be there.
func (s *server) ready(ctx context.Context) (*connection, error) {
	for {
		s.mu.Lock()
		l, down, changed := s.current, s.down, s.changed
		s.mu.Unlock()
		switch {
		case l != nil:
			return l, nil
		case down != nil:
			return nil, down
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connect starts the server, or connects to it, and asks what it offers.
func (s *server) connect(ctx context.Context) (_ *connection, err error) {
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &connection{stop: stop, over: make(chan struct{}), listing: make(chan struct{}, 1)}
	begin, cancel := context.WithTimeout(ctx, s.bounds.start)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "agentfly", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, Logger: slog.New(slog.DiscardHandler),
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { l.relist(lasting, s.bounds.start) },
	})
	client.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if method == subscribed {
				l.relist(lasting, s.bounds.start)
			}
			return next(ctx, method, request)
		}
	})
	var transport sdk.Transport
	if s.config.URL != "" {
		l.web = newWeb(s.config)
		transport = &sdk.StreamableClientTransport{Endpoint: s.config.URL, HTTPClient: l.web.client()}
	} else {
		if l.process, err = start(s.config); err != nil {
			stop()
			return nil, fmt.Errorf("%s cannot be started: %s", s.config.name(), lastText(err))
		}
		transport = newStdio(l.process)
	}
	if l.session, err = client.Connect(begin, transport, nil); err == nil {
		l.offers, err = list(begin, l.session)
	}
	if err != nil {
		err = s.startError(begin, ctx, l, err)
		close(l.over)
		l.close(true, s.bounds.grace)
		return nil, err
	}
	l.listing <- struct{}{}
	go func() {
		defer close(l.over)
		l.err = l.session.Wait()
	}()
	return l, nil
}

// subscribed is what a server says when it has begun to tell changes of its tools, from the protocol of 2026-07-28 on. The library does not wait for it, so
// that the first list may be older: a change between the two is told to nobody.
const subscribed = "notifications/subscriptions/acknowledged"

// startError says in one line why the server is not there.
func (s *server) startError(begin, ctx context.Context, l *connection, err error) error {
	said := ""
	if l.process != nil {
		said = saidBy(l.process.said)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", s.config.name(), ctx.Err())
	case begin.Err() != nil:
		return fmt.Errorf("%s: the server did not say what it offers within %s%s", s.config.name(), s.bounds.start, said)
	case l.process != nil && l.process.silent.Load() && waitFor(l.process.ended, s.bounds.grace): // its end is the reason
		return fmt.Errorf("%s: the server %s before it said what it offers%s", s.config.name(), l.process.exit(), saidBy(l.process.said))
	}
	if l.web != nil && errors.Is(err, sdk.ErrConnectionClosed) { // the library may close the connection before it says why
		if why, _ := l.web.refusal.Load().(string); why != "" {
			return fmt.Errorf("%s: %s", s.config.name(), why)
		}
	}
	return fmt.Errorf("%s: %w%s", s.config.name(), err, said)
}

// list asks what a server offers.
func list(ctx context.Context, session *sdk.ClientSession) ([]offer, error) {
	var out []offer
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		o, err := describe(t)
		if err != nil {
			return nil, err
		}
		if len(out) == maxOffers {
			return nil, fmt.Errorf("it offers more than %d tools", maxOffers)
		}
		out = append(out, o)
	}
	return out, nil
}

// maxOffers bounds the tools of a server, which may name a next page without end.
const maxOffers = 1000

// relist asks again, because the server may offer something else.
func (l *connection) relist(ctx context.Context, timeout time.Duration) {
	l.beside(func() {
		select {
		case <-l.listing:
		case <-ctx.Done():
			return
		}
		defer func() { l.listing <- struct{}{} }()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		offers, err := list(ctx, l.session)
		if err != nil {
			return // the old list stands; a call that it should not have allowed is refused by the server
		}
		l.mu.Lock()
		l.offers = offers
		l.mu.Unlock()
	})
}

// beside runs f beside the calls, until close waits for it.
func (l *connection) beside(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.work.Go(f)
	}
}

func (l *connection) has(tool string) bool {
	return slices.ContainsFunc(l.offered(), func(o offer) bool { return o.Name == tool })
}

// offered is what the server offers, as it said last.
func (l *connection) offered() []offer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offers
}

// close ends the session, its process and all that runs for it. At once: the process is killed, because it failed. The text says for people
// why the session is over.
func (l *connection) close(atOnce bool, grace time.Duration) string {
	l.stop()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if l.process != nil {
		if atOnce {
			if l.process.silent.Load() {
				waitFor(l.process.ended, grace) // it is ending by itself, or closed its output for no reason
			}
			_ = l.process.group.Signal(syscall.SIGKILL) // it may be gone already
		}
		reason := l.process.exit()
		l.process.stop(grace)
		if l.session != nil {
			_ = l.session.Close() // its process is gone, which is what it says
		}
		<-l.over
		l.work.Wait()
		return "the server " + reason + saidBy(l.process.said)
	}
	timer := time.AfterFunc(grace, l.web.abort) // what still runs
	defer timer.Stop()
	if l.session != nil {
		_ = l.session.Close() // a server that cannot be told forgets the session by itself
	}
	l.web.close()
	<-l.over
	l.work.Wait()
	return fmt.Sprintf("the connection ended: %v", l.err)
}

// call carries out one call. A call that found the server gone before it was handed over waits for the next start.
func (s *server) call(ctx context.Context, tool string, arguments json.RawMessage) (tools.Observation, error) {
	for {
		l, err := s.ready(ctx)
		if err != nil {
			return tools.Observation{}, err
		}
		if !l.has(tool) {
			return tools.Observation{}, errors.New("its server no longer offers this tool; use another one")
		}
		marked, sent := withBegun(ctx)
		result, err := l.session.CallTool(marked, &sdk.CallToolParams{Name: tool, Arguments: jsonObject(arguments)})
		if err == nil {
			l.answered.Store(true)
			return observation(result)
		}
		if !sent.Load() && ctx.Err() == nil && l.lost(err) {
			s.drop(l)
			continue
		}
		return tools.Observation{}, s.failure(ctx, l, err)
	}
}

// lost says whether err, of a call that was not handed over, is the connection's end. The end of the reading is told to the calls that wait
// for the pipe in its own words: a deadline, a closed file.
func (l *connection) lost(err error) bool {
	if errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.ErrClosedPipe) {
		return true
	}
	var refused *jsonrpc.Error
	var file *os.PathError
	return l.process != nil && !errors.As(err, &refused) &&
		(errors.As(err, &file) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errTooLarge))
}

// rejected is what the library calls a request that did not get through, over HTTP. The session goes on.
var rejected = jsonrpc.Error{Code: -32005, Message: "rejected by transport"}

// failure turns the library's error into the tool's.
func (s *server) failure(ctx context.Context, l *connection, err error) error {
	var refused *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && l.process != nil {
			s.check(l)
		}
		return ctx.Err()
	case errors.Is(err, sdk.ErrConnectionClosed) || !errors.As(err, &refused) || refused.Code == rejected.Code && refused.Message == rejected.Message:
		return &tools.BrokenError{Text: "the server of this tool broke off during the call; try it again"}
	}
	l.answered.Store(true)
	if refused.Code == jsonrpc.CodeInternalError {
		return &tools.BrokenError{Text: "the server of this tool failed: " + refused.Message}
	}
	return &tools.TextError{Text: refused.Message}
}

// check ends a server that answers nothing any more, after a call that it did not answer in time. A refusal is an answer, too.
func (s *server) check(l *connection) {
	l.beside(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.bounds.check) // shorter when the session ends
		defer cancel()
		if err := l.session.Ping(ctx, nil); err != nil && ctx.Err() != nil {
			s.drop(l)
			_ = l.process.group.Signal(syscall.SIGKILL) // it may be gone already
		}
	})
}
