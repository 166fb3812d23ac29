//go:build linux

package sandbox

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedHere are those that only this architecture has.
var deniedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_USTAT, unix.SYS_SYSFS,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS_INOTIFY_INIT,
}

// deniedToOwnersHere are the older forms of deniedToOwners, and of utimensat with a path.
var deniedToOwnersHere = []uint32{
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}

// setIDHere are the older calls that give a file its mode.
func setIDHere() []bpf.Instruction {
	return slices.Concat(
		when(unix.SYS_OPEN, refuseSetIDFiles(1, 2)...),
		when(unix.SYS_CREAT, refuseBits(1, setID)...),
		when(unix.SYS_CHMOD, refuseBits(1, setID)...),
		when(unix.SYS_MKNOD, refuseBits(1, setID)...),
	)
}
