package chess

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
)

// engine is a chess engine that speaks UCI over its standard input and output: one process, which answers one question at a time. It starts at its first
// question, and again after it died or did not answer in time. Answers depend on the position and on nothing that was asked before. It is safe for
// concurrent use.
type engine struct {
	path  string
	limit time.Duration // of a question; 0: answer

	ask  sync.Mutex // held while a question is asked
	run  *process
	done bool
}

// process is one start of the engine.
type process struct {
	name  string // what it says of itself, such as "Stockfish 15.1"
	in    io.WriteCloser
	lines chan string // closed when it ended
	group *procgroup.Group
	ended chan struct{}
}

const (
	depth  = 6                // of a search, in plies: it sees a mate in two
	answer = 25 * time.Second // that a question may take, the start of the program included: less than a step's own deadline, and a thousandth of it is usual
)

// verdict is the engine's answer.
type verdict struct {
	best string // move in UCI's notation; "" where there is none
	mate int    // moves until the side to move mates, negative until it is mated; 0: no mate was seen
}

// findEngine is the path of the program, also where Debian puts games.
func findEngine(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && name == defaultEngine {
		path, err = exec.LookPath("/usr/games/" + name)
	}
	if err != nil {
		return "", fmt.Errorf("the chess engine %s is not installed; apt-get install stockfish, or give its path as engine", name)
	}
	return path, nil
}

// best asks for the best move of a position. Who is cancelled while others are answered is not asked for; a question that is out is waited for all the
// same, because to break it off would end the engine for all.
func (e *engine) best(ctx context.Context, fen string) (verdict, error) {
	e.ask.Lock()
	defer e.ask.Unlock()
	if err := ctx.Err(); err != nil {
		return verdict{}, fmt.Errorf("the engine %s was not asked: %w", e.path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(e.limit, answer))
	defer cancel()
	v, err := e.question(ctx, fen)
	if err != nil {
		e.stop()
		return verdict{}, fmt.Errorf("the engine %s: %w", e.path, err)
	}
	return v, nil
}

func (e *engine) question(ctx context.Context, fen string) (v verdict, err error) {
	p, err := e.running(ctx)
	if err != nil {
		return v, err
	}
	if err := p.say("ucinewgame", "isready"); err != nil {
		return v, err
	}
	if err := p.until(ctx, "readyok", nil); err != nil {
		return v, err
	}
	if err := p.say("position fen "+fen, fmt.Sprintf("go depth %d", depth)); err != nil {
		return v, err
	}
	err = p.until(ctx, "bestmove", func(line string) {
		words := strings.Fields(line)
		for i, w := range words {
			switch {
			case w == "score" && i+2 < len(words):
				v.mate = 0
				if words[i+1] == "mate" {
					v.mate, _ = strconv.Atoi(words[i+2])
				}
			case w == "bestmove" && i+1 < len(words) && words[i+1] != "(none)":
				v.best = words[i+1]
			}
		}
	})
	return v, err
}

// name is what the engine says of itself: its version decides the answers.
func (e *engine) name(ctx context.Context) (string, error) {
	e.ask.Lock()
	defer e.ask.Unlock()
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("the engine %s was not asked: %w", e.path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(e.limit, answer))
	defer cancel()
	p, err := e.running(ctx)
	if err != nil {
		e.stop()
		return "", fmt.Errorf("the engine %s: %w", e.path, err)
	}
	return p.name, nil
}

// running starts the process where there is none.
func (e *engine) running(ctx context.Context) (*process, error) {
	if e.done {
		return nil, errors.New("it is closed")
	}
	if e.run != nil {
		return e.run, nil
	}
	p, err := start(e.path)
	if err != nil {
		return nil, err
	}
	e.run = p
	if err := p.say("uci"); err != nil {
		return nil, err
	}
	if err := p.until(ctx, "uciok", func(line string) {
		if name, ok := strings.CutPrefix(line, "id name "); ok {
			p.name = name
		}
	}); err != nil {
		return nil, err
	}
	return p, p.say("setoption name Threads value 1", "setoption name Hash value 1")
}

func start(path string) (*process, error) {
	c := exec.Command(path)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	group, err := procgroup.Start(c, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	p := &process{in: in, lines: make(chan string, 1024), group: group, ended: make(chan struct{})}
	go p.read(out)
	return p, nil
}

// read passes lines on until the process ended. Nobody waits for lines that nobody asked for: an engine that talks without end is ended.
func (p *process) read(out io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		select {
		case p.lines <- lines.Text():
			continue
		case <-time.After(answer):
		}
		break
	}
	_ = p.group.Signal(syscall.SIGKILL) // it closed its output, or is not to be trusted
	_ = p.group.Wait()
	close(p.lines)
}

func (p *process) say(lines ...string) error {
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			return fmt.Errorf("it ended: %w", err)
		}
	}
	return nil
}

// until reads lines up to one that begins with a word; see may be nil.
func (p *process) until(ctx context.Context, word string, see func(line string)) error {
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return fmt.Errorf("it ended before it said %s", word)
			}
			if see != nil {
				see(line)
			}
			if line == word || strings.HasPrefix(line, word+" ") {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("it did not say %s: %w", word, context.Cause(ctx))
		}
	}
}

// stop ends the process, without waiting for its consent.
func (e *engine) stop() {
	if e.run == nil {
		return
	}
	_ = e.run.in.Close()
	_ = e.run.group.Signal(syscall.SIGKILL)
	for range e.run.lines { // until it ended
	}
	<-e.run.ended
	e.run = nil
}

// close ends the engine for good.
func (e *engine) close() {
	e.ask.Lock()
	defer e.ask.Unlock()
	e.done = true
	e.stop()
}
