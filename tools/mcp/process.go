package mcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/internal/wording"
)

// process is the server's, with all that it starts. It runs in a process group of its own.
type process struct {
	group  *procgroup.Group
	in     *os.File      // its standard input
	out    *os.File      // its standard output
	said   *wording.Tail // on its standard error
	mark   string        // in the environment of it and of what it starts; "": the system cannot tell
	silent atomic.Bool   // its output has ended
	ended  chan struct{} // closed when it and all that it started are gone
	err    error         // why it ended; valid once ended is closed
}

func start(c config) (*process, error) {
	p := &process{said: wording.NewTail(mostSaid), mark: procgroup.Mark(), ended: make(chan struct{})}
	command := exec.Command(c.Command[0], c.Command[1:]...)
	command.Dir, command.Env = c.Dir, c.environment()
	if p.mark != "" {
		command.Env = append(command.Env, p.mark)
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), stdin.Close(), in.Close())
	}
	errOut, stderr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), stdin.Close(), in.Close(), out.Close(), stdout.Close())
	}
	p.in, p.out = in, out
	command.Stdin, command.Stdout, command.Stderr = stdin, stdout, stderr
	p.group, err = procgroup.Start(command, syscall.SIGKILL)
	err = errors.Join(err, stdin.Close(), stdout.Close(), stderr.Close())
	if p.group == nil {
		return nil, errors.Join(err, in.Close(), out.Close(), errOut.Close())
	}
	go p.watch(errOut)
	return p, nil
}

// leftover is how long the pipes of a process that ended are read: one that hid from its group may hold them open.
const leftover = time.Second

// watch waits for the end of the process, ends what it left behind, and closes ended.
func (p *process) watch(errOut *os.File) {
	defer close(p.ended)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_, _ = io.Copy(p.said, errOut) // the end of a tail is no failure
	}()
	p.err = p.group.Wait()
	procgroup.CollectMarked(p.mark) // what left its group
	_ = p.out.SetReadDeadline(time.Now().Add(leftover))
	_ = errOut.SetReadDeadline(time.Now().Add(leftover))
	<-heard
	_ = errOut.Close()
}

// stop ends the process: its input is closed first, then it is asked, then killed. Each gets grace to work. It returns when the process and
// all that it started are gone.
func (p *process) stop(grace time.Duration) {
	_ = p.in.Close()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if waitFor(p.ended, grace) {
			break
		}
		_ = p.group.Signal(s) // it may be gone already
	}
	<-p.ended
	_ = p.out.Close()
}

func waitFor(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// exit says how the process ended, for people.
func (p *process) exit() string {
	select {
	case <-p.ended:
		if p.err == nil {
			return "ended with exit status 0"
		}
		return "ended with " + p.err.Error()
	default:
		return "closed its output"
	}
}
