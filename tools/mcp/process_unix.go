//go:build unix

package mcp

import "syscall"

func ownGroup() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a)
	return a
}

func killGroup(pid int, s syscall.Signal) { _ = syscall.Kill(-pid, s) } // it may be gone already
