package openenv

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// channel is the server's side of a websocket. One goroutine reads ahead, because a pong is only seen by a reader and an environment may take
// long; one pings. Its context ends with the connection.
type channel struct {
	ws      *websocket.Conn
	o       ServerOptions
	ctx     context.Context
	stop    context.CancelFunc
	frames  chan []byte
	behind  atomic.Bool // messages lie before what the reader would read next, pongs also
	reading chan struct{}
	pinging chan struct{}
}

func newChannel(ctx context.Context, ws *websocket.Conn, o ServerOptions) *channel {
	c := &channel{ws: ws, o: o, frames: make(chan []byte, 1), reading: make(chan struct{}), pinging: make(chan struct{})}
	var stop context.CancelFunc
	c.ctx, stop = context.WithCancel(context.Background())
	told := context.AfterFunc(ctx, func() { // the server ends; its client should know that it was not its own network
		defer stop()
		_ = ws.Close(websocket.StatusGoingAway, "the server is shutting down")
	})
	c.stop = func() {
		told()
		stop()
	}
	ws.SetReadLimit(o.MaxMessage)
	go c.read()
	go c.ping()
	return c
}

func (c *channel) read() {
	defer close(c.reading)
	defer c.stop()
	for {
		kind, data, err := c.ws.Read(c.ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			_ = c.ws.Close(websocket.StatusUnsupportedData, "messages are JSON texts")
			return
		}
		select {
		case c.frames <- data:
			continue
		default:
		}
		c.behind.Store(true)
		select {
		case c.frames <- data:
		case <-c.ctx.Done():
			return
		}
		c.behind.Store(false)
	}
}

// ping ends the channel of a client that is silent, also while a call runs. One that sent more than is read until that returns is not: its pongs lie
// behind, and the call has a deadline.
func (c *channel) ping() {
	defer close(c.pinging)
	tick := time.NewTicker(c.o.Ping)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		if c.behind.Load() {
			continue
		}
		answered, cancel := context.WithTimeout(c.ctx, c.o.Pong)
		err := c.ws.Ping(answered)
		cancel()
		if err != nil && !c.behind.Load() {
			c.stop()
			return
		}
	}
}

// next is the next message; false: there will be none.
func (c *channel) next() ([]byte, bool) {
	select {
	case data := <-c.frames:
		return data, c.ctx.Err() == nil
	case <-c.ctx.Done():
		return nil, false
	}
}

// write sends a message. A client that does not take it in time loses its connection.
func (c *channel) write(data []byte) bool {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Write)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, data); err != nil {
		c.stop()
		return false
	}
	return true
}

// close says goodbye.
func (c *channel) close(code websocket.StatusCode, why string) { _ = c.ws.Close(code, why) }

// end joins what the channel started.
func (c *channel) end() {
	if c.ctx.Err() == nil {
		c.stop()
	}
	_ = c.ws.CloseNow()
	<-c.reading
	<-c.pinging
}
