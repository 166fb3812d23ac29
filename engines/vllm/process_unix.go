//go:build unix

package vllm

import (
	"os/exec"
	"syscall"
)

// processGroup gives the server a group of its own, so that its workers end with it.
func processGroup() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a)
	return a
}

func signalGroup(c *exec.Cmd, s syscall.Signal) { _ = syscall.Kill(-c.Process.Pid, s) } // it may be gone already
