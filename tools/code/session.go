package code

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
)

//go:embed driver.py
var driver string

const (
	outputLimit = 32 << 10 // bytes of what a call wrote
	answerLimit = 4 << 20  // of the driver's line
	sessionCPU  = 10 * time.Minute
	callCPU     = time.Minute
)

// threads keeps numeric libraries from starting a thread for every processor, which the limit of processes would refuse.
var threads = []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"}

// session is a Python interpreter that waits for code. One call at a time.
type session struct {
	p      sandbox.Process
	lines  *bufio.Scanner
	number int
}

type answer struct {
	Number int    `json:"number"`
	Output string `json:"output"`
	Error  string `json:"error"`
}

// startSession starts an interpreter in a folder and waits until it is ready. It lives until it is killed.
func startSession(ctx context.Context, box *sandbox.Sandbox, dir string, cpu time.Duration) (*session, error) {
	p, err := box.Start(context.WithoutCancel(ctx), sandbox.Program{
		Args: []string{"python3", "-I", "-u", "-c", driver}, Env: threads, Workspace: dir, Limits: sandbox.Limits{CPU: cpu},
	})
	if err != nil {
		return nil, err
	}
	s := &session{p: p, lines: bufio.NewScanner(p.Stdout())}
	s.lines.Buffer(nil, answerLimit)
	if _, err := s.read(ctx); err != nil {
		said, _ := io.ReadAll(io.LimitReader(p.Stderr(), 4096)) // of a tree that is gone
		s.kill()
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		return nil, fmt.Errorf("code: python3 does not start in the sandbox (%s): %w", lines[len(lines)-1], err)
	}
	return s, nil
}

// run runs code. After an error the session is of no use any more.
func (s *session) run(ctx context.Context, code string) (answer, error) {
	s.number++
	line, err := json.Marshal(struct {
		Number int    `json:"number"`
		Code   string `json:"code"`
		Limit  int    `json:"limit"`
	}{s.number, code, outputLimit})
	if err != nil {
		return answer{}, err
	}
	stop := context.AfterFunc(ctx, s.kill) // the code may not read, too
	defer stop()
	if _, err := s.p.Stdin().Write(append(line, '\n')); err != nil {
		return answer{}, s.why(ctx)
	}
	return s.read(ctx)
}

func (s *session) read(ctx context.Context) (answer, error) {
	stop := context.AfterFunc(ctx, s.kill)
	defer stop()
	var a answer
	if !s.lines.Scan() {
		return a, s.why(ctx)
	}
	if err := json.Unmarshal(s.lines.Bytes(), &a); err != nil || a.Number != s.number {
		return a, errors.New("the interpreter was disturbed")
	}
	return a, nil
}

// why is the reason why a session ended by itself or by ctx.
func (s *session) why(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.lines.Err() != nil { // it goes on, and says what it should not
		return errors.New("the interpreter was disturbed")
	}
	return ended(s.p.Wait())
}

func (s *session) kill() { _ = s.p.Kill() }

// ended says why a program in a sandbox ended, in words for the model.
func ended(err error) error {
	var exit *sandbox.ExitError
	switch {
	case err == nil:
		return errors.New("the interpreter has ended")
	case !errors.As(err, &exit) || exit.Blind():
		return &tools.BrokenError{Text: "the sandbox failed"}
	case exit.Exceeded == "memory":
		return errors.New("it used too much memory")
	case exit.Exceeded == "disk":
		return errors.New("its files took too much room")
	case exit.Exceeded == sandbox.Unwatched:
		return errors.New("its use of memory and disk could not be watched")
	case exit.Signal == "SIGXCPU":
		return errors.New("it used too much processor time")
	case exit.Signal != "":
		return fmt.Errorf("it was ended by %s", exit.Signal)
	default:
		return fmt.Errorf("it ended with status %d", exit.Exit)
	}
}
