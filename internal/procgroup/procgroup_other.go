//go:build !unix

package procgroup

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func attributes(syscall.Signal) *syscall.SysProcAttr { return nil }

// signal ends the program alone: there are no groups.
func signal(c *exec.Cmd, _ syscall.Signal) error {
	if err := c.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
