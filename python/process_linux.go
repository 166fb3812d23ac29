package python

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent tells the worker when this process is killed; it then ends what it started, and itself. The signal follows the thread that
// started it, and Go ends threads only with goroutines that are locked to them.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }

// waitDead returns when a child is dead, and leaves it to be waited for.
func waitDead(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
