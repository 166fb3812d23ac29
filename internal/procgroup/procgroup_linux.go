package procgroup

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func endWithParent(a *syscall.SysProcAttr, s syscall.Signal) { a.Pdeathsig = s }

// awaitExit returns when the process has ended, and leaves it to be reaped: until then nobody else gets its number.
func awaitExit(pid int) bool {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
