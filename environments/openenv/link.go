package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	dialTime  = 10 * time.Second // for the handshake, as in OpenEnv's client
	pingEvery = 20 * time.Second // likewise
	closeTime = 2 * time.Second  // for the server's side of a close
)

// link is one websocket to a server, and with it one session. One goroutine reads, also while nobody waits, because a pong is only sent by a
// reader; another one pings. A link that failed in any way stays failed: after a reply that did not come in time, the next one would be taken for it.
type link struct {
	ws      *websocket.Conn
	replies chan []byte
	waiting atomic.Bool // a request is out
	ended   chan struct{}
	mu      sync.Mutex
	err     error // why it failed; the first reason
	stop    context.CancelFunc
	all     sync.WaitGroup
	closing sync.Once
}

// dialOptions are what every link of a source has.
type dialOptions struct {
	header     http.Header
	client     *http.Client
	maxMessage int64
	ping       time.Duration // between pings
	timeout    time.Duration // of a message, and of the answer to a ping
}

// dial opens a websocket and makes sure that a session is behind it: a server without room accepts the connection, and says so after it.
func dial(ctx context.Context, url string, o dialOptions) (*link, error) {
	handshake, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	ws, answer, err := websocket.Dial(handshake, url, &websocket.DialOptions{HTTPClient: o.client, HTTPHeader: o.header})
	if err != nil {
		return nil, refused(answer, err)
	}
	ws.SetReadLimit(o.maxMessage)
	running, stop := context.WithCancel(context.Background())
	l := &link{ws: ws, replies: make(chan []byte, 1), ended: make(chan struct{}), stop: stop}
	l.all.Go(func() { l.read(running, o.maxMessage) })
	l.all.Go(func() { l.ping(running, o.ping, o.timeout) })
	greeting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	_, err = l.ask(greeting, message{Type: "state"})
	switch codeOf(err) {
	case codeCapacity, codeFactory, codeSession:
	case "":
		if err == nil {
			return l, nil
		}
	default: // an environment that has no state yet is there all the same
		return l, nil
	}
	l.cut(err)
	l.all.Wait()
	return nil, err
}

// refused says why there is no websocket.
func refused(answer *http.Response, err error) error {
	if answer == nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return errors.New("it does not answer")
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			return op // without the layers of libraries around it
		}
		return err
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("it refuses the connection with status %d: give its key as api_key", answer.StatusCode)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("it has no websocket at /ws (status %d): it is no OpenEnv server, or one older than core 0.2.0", answer.StatusCode)
	}
	var text []byte
	if answer.Body != nil {
		text, _ = io.ReadAll(io.LimitReader(answer.Body, tooManyToShow))
	}
	if len(text) > 0 {
		return fmt.Errorf("it refuses the connection with status %d: %s", answer.StatusCode, clip(string(text)))
	}
	return fmt.Errorf("it refuses the connection with status %d", answer.StatusCode)
}

func (l *link) read(ctx context.Context, most int64) {
	defer close(l.ended)
	for {
		kind, data, err := l.ws.Read(ctx)
		switch {
		case err != nil:
			l.cut(readError(err, most))
			return
		case kind != websocket.MessageText:
			l.cut(errors.New("it sent a binary message"))
			return
		case !l.waiting.CompareAndSwap(true, false):
			if _, err := parseReply(data); codeOf(err) != "" { // no room, or the session's end
				l.cut(err)
			} else {
				l.cut(fmt.Errorf("it sent a message that nobody asked for: %s", clip(string(data))))
			}
			return
		}
		l.replies <- data // has room: a request takes its reply before the next one is out
	}
}

// readError says why a read failed.
func readError(err error, most int64) error {
	var closed websocket.CloseError
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return fmt.Errorf("it sent more than %d bytes in one message; max_message allows more", most)
	case errors.As(err, &closed):
		if closed.Reason != "" {
			return fmt.Errorf("it closed the connection (%d: %s)", closed.Code, clip(closed.Reason))
		}
		return fmt.Errorf("it closed the connection (%d)", closed.Code)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection broke")
	}
	return fmt.Errorf("the connection broke: %w", err)
}

func (l *link) ping(ctx context.Context, every, timeout time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answered, cancel := context.WithTimeout(ctx, timeout)
		err := l.ws.Ping(answered)
		cancel()
		if err != nil && ctx.Err() == nil {
			l.cut(fmt.Errorf("it did not answer a ping within %v", timeout))
			return
		}
	}
}

// cut ends the link. The first reason stands.
func (l *link) cut(why error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = why
	}
	l.mu.Unlock()
	l.stop() // of a read: it closes the websocket
}

// failed is why the link cannot be used any more; nil: it can.
func (l *link) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// ask sends a message and waits for its reply. A *serverError leaves the link as it is; after any other error it is of no more use.
func (l *link) ask(ctx context.Context, m message) (message, error) {
	if err := l.failed(); err != nil {
		return message{}, err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return message{}, fmt.Errorf("the message cannot be written: %w", err)
	}
	l.waiting.Store(true)
	if err := l.ws.Write(ctx, websocket.MessageText, data); err != nil && ctx.Err() == nil {
		l.cutAfterRead(ctx, fmt.Errorf("the connection broke: %w", err)) // its last word may say why
	}
	var reply []byte
	select {
	case reply = <-l.replies:
	case <-l.ended:
		select {
		case reply = <-l.replies:
		default:
			return message{}, l.failed()
		}
	case <-ctx.Done():
		err := error(errors.New("it did not answer in time"))
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
		l.cut(err)
		return message{}, err
	}
	answer, err := parseReply(reply)
	if err != nil && codeOf(err) == "" || codeOf(err) == codeSession || codeOf(err) == codeCapacity || codeOf(err) == codeFactory {
		l.cut(err)
	}
	return answer, err
}

// cutAfterRead lets the reader find the end, which a failed write announces, and ends the link where it does not.
func (l *link) cutAfterRead(ctx context.Context, why error) {
	wait := time.NewTimer(closeTime)
	defer wait.Stop()
	select {
	case <-l.ended:
	case <-ctx.Done():
	case <-wait.C:
		l.cut(why)
		<-l.ended
	}
}

// close says goodbye, so that the server has room for the next session soon, and waits for its side for a moment.
func (l *link) close() {
	l.closing.Do(func() {
		if l.failed() == nil {
			l.waiting.Store(true) // whatever still comes is nobody's
			leaving, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			if l.ws.Write(leaving, websocket.MessageText, []byte(`{"type":"close"}`)) == nil {
				select {
				case <-l.ended:
				case <-leaving.Done():
				}
			}
		}
		l.cut(errors.New("the connection was closed"))
		_ = l.ws.CloseNow()
		l.all.Wait()
	})
}
