package vllm

import "syscall"

// endWithParent ends the server when this process is killed. The signal follows the thread that started it, and Go ends
// threads only with goroutines that are locked to them.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
