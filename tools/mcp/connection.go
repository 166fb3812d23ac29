package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds what one message of a server may hold, in bytes.
const maxMessage = 16 << 20

// stdio talks to a server over its standard input and output. The library's own transport reads messages of any size, ends at a line that is
// no message, and may wait without end for a server that does not read.
type stdio struct {
	process *process
	reader  *bufio.Reader
	writing chan struct{} // holds one token, that of the writer
	closed  sync.Once
	gone    chan struct{}
}

func newStdio(p *process) *stdio {
	return &stdio{process: p, reader: bufio.NewReader(p.out), writing: make(chan struct{}, 1), gone: make(chan struct{})}
}

// Connect is the transport's: there is one connection.
func (s *stdio) Connect(context.Context) (sdk.Connection, error) { return s, nil }

// Read returns the next message. A line that is none is kept with what the server said on standard error.
func (s *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for ctx.Err() == nil {
		line, err := readLine(s.reader, maxMessage)
		if err != nil {
			s.process.silent.Store(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		message, err := jsonrpc.DecodeMessage(keepDigits(line))
		if err == nil {
			return message, nil
		}
		_, _ = s.process.said.Write(append(bytes.Clone(line[:min(len(line), mostSaid-1)]), '\n'))
	}
	return nil, ctx.Err()
}

var errTooLarge = fmt.Errorf("a message of the server has more than %d MiB", maxMessage>>20)

// readLine returns a line without its end.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errTooLarge
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSpace(line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case errors.Is(err, os.ErrClosed):
			return nil, io.EOF
		default:
			return nil, err
		}
	}
}

// Write sends a message. A server that does not read it until ctx is done gets the rest never: the connection is over.
func (s *stdio) Write(ctx context.Context, message jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gone:
		return io.ErrClosedPipe
	}
	defer func() { <-s.writing }()
	select {
	case <-s.gone:
		return io.ErrClosedPipe
	default:
	}
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(late)
		_ = s.process.in.SetWriteDeadline(time.Now())
	})
	n, err := s.process.in.Write(append(data, '\n'))
	if n > 0 || err == nil {
		begun(ctx)
	}
	if !stop() {
		<-late
		_ = s.process.in.SetWriteDeadline(time.Time{})
	}
	if err != nil && n > 0 { // what follows would not be read as a message
		_ = s.Close()
	}
	return err
}

// Close ends the reading and the writing. The process is its owner's to end.
func (s *stdio) Close() error {
	s.closed.Do(func() {
		close(s.gone)
		_ = s.process.in.Close()
		_ = s.process.out.SetReadDeadline(time.Now())
	})
	return nil
}

func (s *stdio) SessionID() string { return "" }

// begunKey marks a context whose call says so when it is handed to the server: from then on it may have been carried out.
type begunKey struct{}

func withBegun(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, begunKey{}, sent), sent
}

func begun(ctx context.Context) {
	if sent, ok := ctx.Value(begunKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}
