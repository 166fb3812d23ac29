package browser

import "syscall"

// orphaned lets the kernel kill the browser when this process is killed; what it started ends when its pipes to the browser do.
func orphaned(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
