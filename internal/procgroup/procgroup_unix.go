//go:build unix

package procgroup

import (
	"errors"
	"os/exec"
	"syscall"
)

func attributes(orphaned syscall.Signal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a, orphaned)
	return a
}

func signal(c *exec.Cmd, s syscall.Signal) error {
	err := syscall.Kill(-c.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) { // all are gone already
		return nil
	}
	return err
}
