package python

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python/protocol"
	"github.com/agentfly/agentfly/sandbox"
)

const (
	mostReply  = 64 << 20               // bytes of a line that a worker may write
	mostStderr = 2 << 10                // bytes of standard error that are kept
	lull       = 100 * time.Millisecond // for a call that was told to end to do so before it is interrupted
	grace      = 1 * time.Second        // between the end of a call's time and the end of a worker that does not react
)

// worker is one process. Its counters belong to the pool's mutex.
type worker struct {
	process sandbox.Process
	stderr  *said
	gone    chan struct{} // closed when the process has ended and nothing of it runs
	detail  string        // how it ended; after gone

	pipe syscall.RawConn // its standard input, where that is a pipe of this process; or nil

	turn  chan struct{} // of a worker that is asked by converse: held by who asks, and by nobody after its end
	lines *bufio.Reader // what it writes; of who has the turn

	mu      sync.Mutex
	out     [][]byte // lines to write
	writing bool     // send holds lines that it has not written
	more    chan struct{}
	pending map[int64]chan protocol.Reply
	asks    map[int64]chan protocol.Ask // of calls that have an environment
	wrong   error                       // why it was killed, if it spoke nonsense

	busy    bool // a call that is not async runs
	async   int  // async calls that run
	sticky  int  // trajectories that keep state in it
	removed bool // it is gone; maybe before it had a place in the pool
}

// startWorker starts a process; ended is called once when it is gone. One that holds an environment answers converse, all others ask.
func startWorker(ctx context.Context, l launch, copyTo io.Writer, ended func(*worker)) (*worker, error) {
	process, err := l.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("python: the worker does not start: %w", err)
	}
	w := &worker{
		process: process, stderr: newSaid(copyTo), gone: make(chan struct{}), more: make(chan struct{}, 1), pending: map[int64]chan protocol.Reply{},
		asks: map[int64]chan protocol.Ask{},
	}
	if file, ok := process.Stdin().(*os.File); ok {
		if w.pipe, err = file.SyscallConn(); err != nil {
			w.pipe = nil // of a process that is gone already
		}
	}
	if l.first != nil {
		w.write(l.first)
	}
	var reading sync.WaitGroup
	w.lines = bufio.NewReaderSize(process.Stdout(), 64<<10)
	if l.alone {
		w.turn = make(chan struct{}, 1)
	} else {
		reading.Go(w.read)
	}
	reading.Go(func() { _, _ = io.Copy(w.stderr, process.Stderr()) }) // what is lost is for people only
	dead := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { w.send(dead) })
	go func() {
		err := process.Wait()
		close(dead)
		reading.Wait()
		if l.alone {
			w.turn <- struct{}{} // who asks reads to the end
		}
		process.Stdin().Close()
		writing.Wait()
		for _, r := range []io.Reader{process.Stdout(), process.Stderr()} {
			if c, ok := r.(io.Closer); ok {
				c.Close() // only read from
			}
		}
		w.end(err)
		ended(w)
		close(w.gone)
	}()
	return w, nil
}

// end fails the calls that wait.
func (w *worker) end(err error) {
	how := "it ended"
	if err != nil {
		how = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != nil {
		how = w.wrong.Error()
	}
	w.detail = "the worker ended (" + how + ")"
	if text := w.stderr.String(); text != "" {
		w.detail += "; the last that it wrote: " + text
	}
	for _, answer := range w.pending {
		close(answer)
	}
	w.pending = nil
}

// mostAsks is how many questions of one call to its environment wait at once.
const mostAsks = 64

// ask sends a request with an id of its own. The channel gets the reply, or is closed when the worker ends before it.
func (w *worker) ask(r protocol.Request) <-chan protocol.Reply {
	answer, _ := w.askWith(r)
	return answer
}

// askWith is ask for a call that may ask back, where the request says that there is an environment: what it asks comes over the second channel until
// forget is called, and is answered with tell.
func (w *worker) askWith(r protocol.Request) (<-chan protocol.Reply, <-chan protocol.Ask) {
	answer := make(chan protocol.Reply, 1)
	var asks chan protocol.Ask
	if r.Environment {
		asks = make(chan protocol.Ask, mostAsks)
	}
	line, err := json.Marshal(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		close(answer)
		return answer, asks
	}
	if err != nil { // arguments that are no JSON
		answer <- protocol.Reply{ID: r.ID, Error: "the arguments cannot be sent: " + err.Error()}
		return answer, asks
	}
	w.pending[r.ID] = answer
	if asks != nil {
		w.asks[r.ID] = asks
	}
	w.append(line)
	return answer, asks
}

// forget ends the asking of a call.
func (w *worker) forget(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asks, id)
}

// asked hands on what a call asks its environment. A worker gets an answer to everything that it asks: it waits for one.
func (w *worker) asked(call int64, a protocol.Ask) {
	w.mu.Lock()
	asks := w.asks[call]
	w.mu.Unlock()
	why := "it is no longer the function's: the call that it was lent to is over"
	if asks != nil {
		select {
		case asks <- a:
			return
		default:
			why = fmt.Sprintf("more than %d questions of one call wait for their answers", mostAsks)
		}
	}
	w.tell(protocol.Request{ID: call, Op: "answer", Ask: a.ID, Error: why})
}

func (w *worker) tell(r protocol.Request) {
	if line, err := json.Marshal(r); err == nil { // it has no free JSON
		w.write(line)
	}
}

func (w *worker) write(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(line)
}

// append writes a line where its pipe takes it at once, and leaves it to send otherwise: to wake send would cost as much as the rest of a short request.
func (w *worker) append(line []byte) {
	line = append(bytes.Clone(line), '\n')
	if len(w.out) == 0 && !w.writing && w.pipe != nil && writeNow(w.pipe, line) {
		return
	}
	w.out = append(w.out, line)
	select {
	case w.more <- struct{}{}:
	default: // the writer knows
	}
}

// send writes what is to be written, so that nobody who asks waits for a worker that does not read.
func (w *worker) send(dead <-chan struct{}) {
	for {
		select {
		case <-dead:
			return
		case <-w.more:
		}
		w.mu.Lock()
		lines := w.out
		w.out, w.writing = nil, true
		w.mu.Unlock()
		for _, line := range lines {
			if _, err := w.process.Stdin().Write(line); err != nil {
				return // the worker ends: who waits learns it then
			}
		}
		w.mu.Lock()
		w.writing = false
		w.mu.Unlock()
	}
}

func (w *worker) read() {
	for {
		line, err := readLine(w.lines)
		var r protocol.Reply
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			w.unread(err)
			_, _ = io.Copy(io.Discard, w.lines) // a full pipe would keep it alive
			return
		}
		if r.Ask != nil {
			w.asked(r.ID, *r.Ask)
			continue
		}
		w.mu.Lock()
		answer := w.pending[r.ID]
		delete(w.pending, r.ID)
		w.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
}

// unread ends a worker that spoke nonsense. One that ended is gone by itself.
func (w *worker) unread(err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, os.ErrClosed) {
		w.kill(fmt.Errorf("it wrote what is no reply: %w", err))
	}
}

// converse sends a request and reads the reply itself, of a worker that answers one request after the other: no goroutine has to wake another one,
// which takes as long as a short step. When ctx is done before, the worker is killed. ok is false where it ended without a reply.
func (w *worker) converse(ctx context.Context, request protocol.Request) (reply protocol.Reply, ok bool, err error) {
	line, err := json.Marshal(request)
	if err != nil { // arguments that are no JSON
		return protocol.Reply{ID: request.ID, Error: "the arguments cannot be sent: " + err.Error()}, true, nil
	}
	end := func() {
		w.kill(fmt.Errorf("%s did not end in time", strings.TrimPrefix(request.Op, "env_")))
		if late, has := w.process.Stdout().(interface{ SetReadDeadline(time.Time) error }); has {
			_ = late.SetReadDeadline(time.Now().Add(grace)) // where the kernel does not end it
		}
	}
	select {
	case w.turn <- struct{}{}:
	case <-w.gone:
		return reply, false, nil
	case <-ctx.Done():
		end()
		return reply, false, ctx.Err()
	}
	defer func() { <-w.turn }()
	defer context.AfterFunc(ctx, end)()
	w.write(line)
	for {
		line, err := readLine(w.lines)
		if err == nil {
			reply = protocol.Reply{}
			err = json.Unmarshal(line, &reply)
		}
		if err != nil {
			w.unread(err)
			return protocol.Reply{}, false, ctx.Err()
		}
		if reply.ID == request.ID {
			return reply, true, nil
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > mostReply {
			return nil, fmt.Errorf("a line of more than %d MiB", mostReply>>20)
		}
	}
}

// kill ends the process; why stands in its detail.
func (w *worker) kill(why error) {
	w.mu.Lock()
	if w.wrong == nil {
		w.wrong = why
	}
	w.mu.Unlock()
	_ = w.process.Kill() // it may be gone already
}

// said is standard error of a process: its end is kept, and all of it goes on to where people read it.
type said struct {
	mu   sync.Mutex
	to   io.Writer // nil: nowhere
	tail *wording.Tail
}

func newSaid(to io.Writer) *said { return &said{to: to, tail: wording.NewTail(mostStderr)} }

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		_, _ = s.to.Write(b) // for people
	}
	return s.tail.Write(b)
}

// String is the end in one line.
func (s *said) String() string { return strings.Join(strings.Fields(s.tail.String()), " ") }
