//go:build unix

package python

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
)

// plainProcess is a worker without a sandbox, in a process group of its own.
//
// life is the end of a pipe that nobody writes to. The worker has the other end as file descriptor 3 and, on Linux, asks the kernel to kill its
// group when the pipe ends, which is when this process does: its own handler of a signal cannot run where native code keeps the interpreter's lock.
type plainProcess struct {
	group          *procgroup.Group
	mark           string // of all that the worker starts
	life           *os.File
	stdin          *os.File
	stdout, stderr *os.File
}

// atomicWrite is the least PIPE_BUF of the systems of today, in bytes: a pipe that does not block takes so much whole or not at all.
const atomicWrite = 512

// writeNow writes a short line to a pipe that takes it at once, and says whether it did.
func writeNow(pipe syscall.RawConn, line []byte) bool {
	if len(line) > atomicWrite {
		return false
	}
	n := 0
	err := pipe.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), line) // a full pipe, or a worker that is gone: send meets it again
		return true
	})
	return err == nil && n == len(line)
}

// startPlain starts args with the variables env beside this process's own. What it starts has the mark, also under prefix and its name, if any: for a
// program that hands on no others.
func startPlain(args, env []string, prefix string) (*plainProcess, error) {
	p := &plainProcess{}
	var theirs []*os.File
	pipe := func(write bool) (ours *os.File, err error) {
		r, w, err := os.Pipe()
		if write {
			ours, theirs = w, append(theirs, r)
		} else {
			ours, theirs = r, append(theirs, w)
		}
		return ours, err
	}
	var err1, err2, err3, err4 error
	p.stdin, err1 = pipe(true)
	p.stdout, err2 = pipe(false)
	p.stderr, err3 = pipe(false)
	p.life, err4 = pipe(true)
	err := errors.Join(err1, err2, err3, err4)
	if err == nil {
		c := exec.Command(args[0], args[1:]...)
		c.Env = append(os.Environ(), env...)
		if p.mark = procgroup.Mark(); p.mark != "" {
			c.Env = append(c.Env, p.mark)
			if prefix != "" {
				c.Env = append(c.Env, prefix+p.mark)
			}
		}
		c.Stdin, c.Stdout, c.Stderr = theirs[0], theirs[1], theirs[2]
		c.ExtraFiles = theirs[3:]
		p.group, err = procgroup.Start(c, syscall.SIGTERM) // a worker that gets it ends what it started, and itself
	}
	for _, f := range theirs {
		f.Close() // nil after a failed pipe: an error that says nothing new
	}
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

func (p *plainProcess) closeFiles() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr, p.life} {
		f.Close() // only read from, or broken already
	}
}

func (p *plainProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *plainProcess) Stdout() io.Reader     { return p.stdout }
func (p *plainProcess) Stderr() io.Reader     { return p.stderr }

// Wait waits for the process, ends what it left behind, and lets readers see the end soon even where something escaped.
func (p *plainProcess) Wait() error {
	err := p.group.Wait()
	procgroup.CollectMarked(p.mark)
	p.life.Close() // nothing was written
	late := time.Now().Add(time.Second)
	_ = p.stdout.SetReadDeadline(late) // pipes have deadlines
	_ = p.stderr.SetReadDeadline(late)
	return err
}

// Kill ends the process and its group.
func (p *plainProcess) Kill() error { return p.group.Signal(syscall.SIGKILL) }
