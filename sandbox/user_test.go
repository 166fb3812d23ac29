//go:build linux

package sandbox

import "syscall"

// asNobody makes a process of root's the user of programs in a sandbox.
func asNobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
