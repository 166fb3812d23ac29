package mcp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent ends the server when this process is killed. The signal follows the thread that started it, and Go ends threads only with
// goroutines that are locked to them.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// awaitExit returns when the process has ended, and leaves it to be reaped: until then nobody else gets its number.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killMarked kills every process whose environment has the mark: what a server started and what then left its process group. They may
// start others meanwhile, so it looks until there are none.
func killMarked(mark string) {
	for range 100 {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			if !hasMark(dir, mark) {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(dir))
			p, err := os.FindProcess(pid) // holds on to the process, whoever gets its number later
			if err != nil {
				continue
			}
			if hasMark(dir, mark) {
				found = p.Kill() == nil || found
			}
			_ = p.Release()
		}
		if !found {
			return
		}
	}
}

// hasMark is false for a process that has ended and is not reaped: it has no environment any more.
func hasMark(dir, mark string) bool {
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && bytes.Contains(environment, []byte(mark))
}
