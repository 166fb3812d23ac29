// Package procgroup starts programs in process groups of their own, so that a program ends together with all that it started.
//
// It does not limit what the programs do: package sandbox does.
package procgroup

import (
	"os/exec"
	"sync"
	"syscall"
)

// Group is a program and what it started, but for what left its process group. Its methods are safe for concurrent use.
type Group struct {
	command *exec.Cmd
	mu      sync.Mutex
	reaped  bool // its number may belong to another process now
}

// Start starts a command in a group of its own; it sets the command's SysProcAttr. The command's standard files are files or nil, not readers
// and writers that Wait would have to copy for. On Linux the program, not its group, gets the signal orphaned when this process dies: the
// kernel sends it when the thread that started the program ends, and Go ends threads only with goroutines that are locked to them.
func Start(c *exec.Cmd, orphaned syscall.Signal) (*Group, error) {
	c.SysProcAttr = attributes(orphaned)
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &Group{command: c}, nil
}

// PID is the number of the program and of its group.
func (g *Group) PID() int { return g.command.Process.Pid }

// Signal sends s to what is left of the group; to nobody once Wait has returned.
func (g *Group) Signal(s syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return nil
	}
	return signal(g.command, s)
}

// Wait waits for the program's end, kills what it left behind in its group, and returns what exec.Cmd.Wait does. It is called once.
func (g *Group) Wait() error {
	held := awaitExit(g.PID())
	var err error
	if !held {
		err = g.command.Wait()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = signal(g.command, syscall.SIGKILL) // nobody may be left
	if held {
		err = g.command.Wait()
	}
	g.reaped = true
	return err
}
