//go:build unix

package browser

import (
	"os/exec"
	"syscall"
)

// alone gives the browser a process group of its own, so that all that it starts ends with it.
func alone(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	orphaned(c.SysProcAttr)
}

// endAll kills the browser with all that it started.
func endAll(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // of a group that is gone, nobody

// alive tells whether a process is there.
func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }
